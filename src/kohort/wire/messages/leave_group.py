"""Members go.

Generated from schema/leave_group.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class MemberIdentity(Struct):
    __slots__ = ("member_id", "group_instance_id", "reason",)
    FIELDS = __slots__

    def __init__(
        self,
        member_id: str = "",
        group_instance_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason


class LeaveGroupRequest(Message):
    API_KEY = 13
    __slots__ = ("group_id", "member_id", "members",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
        members: list[MemberIdentity] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.members: list[MemberIdentity] = [] if members is None else members


class MemberResponse(Struct):
    __slots__ = ("member_id", "group_instance_id", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        member_id: str = "",
        group_instance_id: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code


class LeaveGroupResponse(Message):
    API_KEY = 13
    __slots__ = ("throttle_time_ms", "error_code", "members",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[MemberResponse] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.members: list[MemberResponse] = [] if members is None else members
