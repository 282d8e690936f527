"""A group's positions, written.

Generated from schema/offset_commit.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class OffsetCommitRequestPartition(Struct):
    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata


class OffsetCommitRequestTopic(Struct):
    __slots__ = ("name", "topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[OffsetCommitRequestPartition] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetCommitRequestPartition] = [] if partitions is None else partitions


class OffsetCommitRequest(Message):
    API_KEY = 8
    __slots__ = ("group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id", "retention_time_ms", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
        topics: list[OffsetCommitRequestTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.retention_time_ms = retention_time_ms
        self.topics: list[OffsetCommitRequestTopic] = [] if topics is None else topics


class OffsetCommitResponsePartition(Struct):
    __slots__ = ("partition_index", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class OffsetCommitResponseTopic(Struct):
    __slots__ = ("name", "topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[OffsetCommitResponsePartition] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[OffsetCommitResponsePartition] = [] if partitions is None else partitions


class OffsetCommitResponse(Message):
    API_KEY = 8
    __slots__ = ("throttle_time_ms", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[OffsetCommitResponseTopic] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetCommitResponseTopic] = [] if topics is None else topics
