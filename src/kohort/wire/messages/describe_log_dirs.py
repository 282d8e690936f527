"""How much disk the partitions take.

Generated from schema/describe_log_dirs.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class DescribableLogDirTopic(Struct):
    __slots__ = ("topic", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic: str = "",
        partitions: list[int] | None = None,
    ) -> None:
        self.topic = topic
        self.partitions: list[int] = [] if partitions is None else partitions


class DescribeLogDirsRequest(Message):
    API_KEY = 35
    __slots__ = ("topics",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[DescribableLogDirTopic] | None = None,
    ) -> None:
        self.topics = topics


class DescribeLogDirsPartition(Struct):
    __slots__ = ("partition_index", "partition_size", "offset_lag", "is_future_key",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        partition_size: int = 0,
        offset_lag: int = 0,
        is_future_key: bool = False,
    ) -> None:
        self.partition_index = partition_index
        self.partition_size = partition_size
        self.offset_lag = offset_lag
        self.is_future_key = is_future_key


class DescribeLogDirsTopic(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[DescribeLogDirsPartition] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[DescribeLogDirsPartition] = [] if partitions is None else partitions


class DescribeLogDirsResult(Struct):
    __slots__ = ("error_code", "log_dir", "topics", "total_bytes", "usable_bytes", "is_cordoned",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        log_dir: str = "",
        topics: list[DescribeLogDirsTopic] | None = None,
        total_bytes: int = -1,
        usable_bytes: int = -1,
        is_cordoned: bool = False,
    ) -> None:
        self.error_code = error_code
        self.log_dir = log_dir
        self.topics: list[DescribeLogDirsTopic] = [] if topics is None else topics
        self.total_bytes = total_bytes
        self.usable_bytes = usable_bytes
        self.is_cordoned = is_cordoned


class DescribeLogDirsResponse(Message):
    API_KEY = 35
    __slots__ = ("throttle_time_ms", "error_code", "results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        results: list[DescribeLogDirsResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.results: list[DescribeLogDirsResult] = [] if results is None else results
