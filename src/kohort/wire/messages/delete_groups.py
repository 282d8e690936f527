"""Deletes empty groups.

Generated from schema/delete_groups.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class DeleteGroupsRequest(Message):
    API_KEY = 42
    __slots__ = ("groups_names",)
    FIELDS = __slots__

    def __init__(
        self,
        groups_names: list[str] | None = None,
    ) -> None:
        self.groups_names: list[str] = [] if groups_names is None else groups_names


class DeletableGroupResult(Struct):
    __slots__ = ("group_id", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        error_code: int = 0,
    ) -> None:
        self.group_id = group_id
        self.error_code = error_code


class DeleteGroupsResponse(Message):
    API_KEY = 42
    __slots__ = ("throttle_time_ms", "results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        results: list[DeletableGroupResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[DeletableGroupResult] = [] if results is None else results
