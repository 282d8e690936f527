"""Which groups this broker coordinates.

Generated from schema/list_groups.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class ListGroupsRequest(Message):
    API_KEY = 16
    __slots__ = ("states_filter", "types_filter",)
    FIELDS = __slots__

    def __init__(
        self,
        states_filter: list[str] | None = None,
        types_filter: list[str] | None = None,
    ) -> None:
        self.states_filter: list[str] = [] if states_filter is None else states_filter
        self.types_filter: list[str] = [] if types_filter is None else types_filter


class ListedGroup(Struct):
    __slots__ = ("group_id", "protocol_type", "group_state", "group_type",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        protocol_type: str = "",
        group_state: str = "",
        group_type: str = "",
    ) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.group_state = group_state
        self.group_type = group_type


class ListGroupsResponse(Message):
    API_KEY = 16
    __slots__ = ("throttle_time_ms", "error_code", "groups",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListedGroup] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.groups: list[ListedGroup] = [] if groups is None else groups
