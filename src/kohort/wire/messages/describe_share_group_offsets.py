"""Where the share partitions of share groups start, and how far they are behind.

Generated from schema/describe_share_group_offsets.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class DescribeShareGroupOffsetsRequestTopic(Struct):
    __slots__ = ("topic_name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[int] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[int] = [] if partitions is None else partitions


class DescribeShareGroupOffsetsRequestGroup(Struct):
    __slots__ = ("group_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics = topics


class DescribeShareGroupOffsetsRequest(Message):
    API_KEY = 90
    __slots__ = ("groups",)
    FIELDS = __slots__

    def __init__(
        self,
        groups: list[DescribeShareGroupOffsetsRequestGroup] | None = None,
    ) -> None:
        self.groups: list[DescribeShareGroupOffsetsRequestGroup] = [] if groups is None else groups


class DescribeShareGroupOffsetsResponsePartition(Struct):
    __slots__ = ("partition_index", "start_offset", "leader_epoch", "lag", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        start_offset: int = 0,
        leader_epoch: int = 0,
        lag: int = -1,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset
        self.leader_epoch = leader_epoch
        self.lag = lag
        self.error_code = error_code
        self.error_message = error_message


class DescribeShareGroupOffsetsResponseTopic(Struct):
    __slots__ = ("topic_name", "topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[DescribeShareGroupOffsetsResponsePartition] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions: list[DescribeShareGroupOffsetsResponsePartition] = [] if partitions is None else partitions


class DescribeShareGroupOffsetsResponseGroup(Struct):
    __slots__ = ("group_id", "topics", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[DescribeShareGroupOffsetsResponseTopic] | None = None,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[DescribeShareGroupOffsetsResponseTopic] = [] if topics is None else topics
        self.error_code = error_code
        self.error_message = error_message


class DescribeShareGroupOffsetsResponse(Message):
    API_KEY = 90
    __slots__ = ("throttle_time_ms", "groups",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        groups: list[DescribeShareGroupOffsetsResponseGroup] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribeShareGroupOffsetsResponseGroup] = [] if groups is None else groups
