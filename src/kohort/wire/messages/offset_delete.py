"""Deletes a group's committed offsets.

Generated from schema/offset_delete.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class OffsetDeleteRequestPartition(Struct):
    __slots__ = ("partition_index",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class OffsetDeleteRequestTopic(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[OffsetDeleteRequestPartition] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[OffsetDeleteRequestPartition] = [] if partitions is None else partitions


class OffsetDeleteRequest(Message):
    API_KEY = 47
    __slots__ = ("group_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[OffsetDeleteRequestTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[OffsetDeleteRequestTopic] = [] if topics is None else topics


class OffsetDeleteResponsePartition(Struct):
    __slots__ = ("partition_index", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetDeleteResponseTopic(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[OffsetDeleteResponsePartition] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[OffsetDeleteResponsePartition] = [] if partitions is None else partitions


class OffsetDeleteResponse(Message):
    API_KEY = 47
    __slots__ = ("error_code", "throttle_time_ms", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponseTopic] | None = None,
    ) -> None:
        self.error_code = error_code
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetDeleteResponseTopic] = [] if topics is None else topics
