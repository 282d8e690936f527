"""State and members of groups.

Generated from schema/describe_groups.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class DescribeGroupsRequest(Message):
    API_KEY = 15
    __slots__ = ("groups", "include_authorized_operations",)
    FIELDS = __slots__

    def __init__(
        self,
        groups: list[str] | None = None,
        include_authorized_operations: bool = False,
    ) -> None:
        self.groups: list[str] = [] if groups is None else groups
        self.include_authorized_operations = include_authorized_operations


class DescribedGroupMember(Struct):
    __slots__ = ("member_id", "group_instance_id", "client_id", "client_host", "member_metadata", "member_assignment",)
    FIELDS = __slots__

    def __init__(
        self,
        member_id: str = "",
        group_instance_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
        member_metadata: bytes = b"",
        member_assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.member_metadata = member_metadata
        self.member_assignment = member_assignment


class DescribedGroup(Struct):
    __slots__ = ("error_code", "error_message", "group_id", "group_state", "protocol_type", "protocol_data", "members", "authorized_operations",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        protocol_type: str = "",
        protocol_data: str = "",
        members: list[DescribedGroupMember] | None = None,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.protocol_type = protocol_type
        self.protocol_data = protocol_data
        self.members: list[DescribedGroupMember] = [] if members is None else members
        self.authorized_operations = authorized_operations


class DescribeGroupsResponse(Message):
    API_KEY = 15
    __slots__ = ("throttle_time_ms", "groups",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        groups: list[DescribedGroup] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = [] if groups is None else groups
