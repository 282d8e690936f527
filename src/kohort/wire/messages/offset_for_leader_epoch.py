"""Where a leader epoch ended (KIP-320).

Generated from schema/offset_for_leader_epoch.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class OffsetForLeaderPartition(Struct):
    __slots__ = ("partition", "current_leader_epoch", "leader_epoch",)
    FIELDS = __slots__

    def __init__(
        self,
        partition: int = 0,
        current_leader_epoch: int = -1,
        leader_epoch: int = 0,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch


class OffsetForLeaderTopic(Struct):
    __slots__ = ("topic", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic: str = "",
        partitions: list[OffsetForLeaderPartition] | None = None,
    ) -> None:
        self.topic = topic
        self.partitions: list[OffsetForLeaderPartition] = [] if partitions is None else partitions


class OffsetForLeaderEpochRequest(Message):
    API_KEY = 23
    __slots__ = ("replica_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        replica_id: int = -2,
        topics: list[OffsetForLeaderTopic] | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.topics: list[OffsetForLeaderTopic] = [] if topics is None else topics


class EpochEndOffset(Struct):
    __slots__ = ("error_code", "partition", "leader_epoch", "end_offset",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        partition: int = 0,
        leader_epoch: int = -1,
        end_offset: int = -1,
    ) -> None:
        self.error_code = error_code
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


class OffsetForLeaderTopicResult(Struct):
    __slots__ = ("topic", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic: str = "",
        partitions: list[EpochEndOffset] | None = None,
    ) -> None:
        self.topic = topic
        self.partitions: list[EpochEndOffset] = [] if partitions is None else partitions


class OffsetForLeaderEpochResponse(Message):
    API_KEY = 23
    __slots__ = ("throttle_time_ms", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[OffsetForLeaderTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[OffsetForLeaderTopicResult] = [] if topics is None else topics
