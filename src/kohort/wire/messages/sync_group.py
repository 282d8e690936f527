"""The leader gives the assignment, each member receives its part.

Generated from schema/sync_group.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class SyncGroupRequestAssignment(Struct):
    __slots__ = ("member_id", "assignment",)
    FIELDS = __slots__

    def __init__(
        self,
        member_id: str = "",
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.assignment = assignment


class SyncGroupRequest(Message):
    API_KEY = 14
    __slots__ = ("group_id", "generation_id", "member_id", "group_instance_id", "protocol_type", "protocol_name", "assignments",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: list[SyncGroupRequestAssignment] | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignments: list[SyncGroupRequestAssignment] = [] if assignments is None else assignments


class SyncGroupResponse(Message):
    API_KEY = 14
    __slots__ = ("throttle_time_ms", "error_code", "protocol_type", "protocol_name", "assignment",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignment = assignment
