"""A group's positions, read.

Generated from schema/offset_fetch.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class OffsetFetchRequestTopic(Struct):
    __slots__ = ("name", "partition_indexes",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partition_indexes: list[int] | None = None,
    ) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes


class OffsetFetchRequestTopics(Struct):
    __slots__ = ("name", "topic_id", "partition_indexes",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partition_indexes: list[int] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes


class OffsetFetchRequestGroup(Struct):
    __slots__ = ("group_id", "member_id", "member_epoch", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        member_id: str | None = None,
        member_epoch: int = -1,
        topics: list[OffsetFetchRequestTopics] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.topics = topics


class OffsetFetchRequest(Message):
    API_KEY = 9
    __slots__ = ("group_id", "topics", "groups", "require_stable",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[OffsetFetchRequestTopic] | None = None,
        groups: list[OffsetFetchRequestGroup] | None = None,
        require_stable: bool = False,
    ) -> None:
        self.group_id = group_id
        self.topics = topics
        self.groups: list[OffsetFetchRequestGroup] = [] if groups is None else groups
        self.require_stable = require_stable


class OffsetFetchResponsePartition(Struct):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopic(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[OffsetFetchResponsePartition] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[OffsetFetchResponsePartition] = [] if partitions is None else partitions


class OffsetFetchResponsePartitions(Struct):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code


class OffsetFetchResponseTopics(Struct):
    __slots__ = ("name", "topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[OffsetFetchResponsePartitions] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetFetchResponsePartitions] = [] if partitions is None else partitions


class OffsetFetchResponseGroup(Struct):
    __slots__ = ("group_id", "topics", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[OffsetFetchResponseTopics] | None = None,
        error_code: int = 0,
    ) -> None:
        self.group_id = group_id
        self.topics: list[OffsetFetchResponseTopics] = [] if topics is None else topics
        self.error_code = error_code


class OffsetFetchResponse(Message):
    API_KEY = 9
    __slots__ = ("throttle_time_ms", "topics", "error_code", "groups",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[OffsetFetchResponseTopic] | None = None,
        error_code: int = 0,
        groups: list[OffsetFetchResponseGroup] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetFetchResponseTopic] = [] if topics is None else topics
        self.error_code = error_code
        self.groups: list[OffsetFetchResponseGroup] = [] if groups is None else groups
