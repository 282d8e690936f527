"""Moves the start of partitions up.

Generated from schema/delete_records.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class DeleteRecordsPartition(Struct):
    __slots__ = ("partition_index", "offset",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        offset: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.offset = offset


class DeleteRecordsTopic(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[DeleteRecordsPartition] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[DeleteRecordsPartition] = [] if partitions is None else partitions


class DeleteRecordsRequest(Message):
    API_KEY = 21
    __slots__ = ("topics", "timeout_ms",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[DeleteRecordsTopic] | None = None,
        timeout_ms: int = 0,
    ) -> None:
        self.topics: list[DeleteRecordsTopic] = [] if topics is None else topics
        self.timeout_ms = timeout_ms


class DeleteRecordsPartitionResult(Struct):
    __slots__ = ("partition_index", "low_watermark", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        low_watermark: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.low_watermark = low_watermark
        self.error_code = error_code


class DeleteRecordsTopicResult(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[DeleteRecordsPartitionResult] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[DeleteRecordsPartitionResult] = [] if partitions is None else partitions


class DeleteRecordsResponse(Message):
    API_KEY = 21
    __slots__ = ("throttle_time_ms", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[DeleteRecordsTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[DeleteRecordsTopicResult] = [] if topics is None else topics
