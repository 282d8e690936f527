"""Between brokers: start offsets and counts of share partitions.

Generated from schema/read_share_group_state_summary.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition", "leader_epoch",)
    FIELDS = __slots__

    def __init__(
        self,
        partition: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch


class ReadStateSummaryData(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class ReadShareGroupStateSummaryRequest(Message):
    API_KEY = 87
    __slots__ = ("group_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[ReadStateSummaryData] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[ReadStateSummaryData] = [] if topics is None else topics


class PartitionResult(Struct):
    __slots__ = ("partition", "error_code", "error_message", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count",)
    FIELDS = __slots__

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count


class ReadStateSummaryResult(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions


class ReadShareGroupStateSummaryResponse(Message):
    API_KEY = 87
    __slots__ = ("results",)
    FIELDS = __slots__

    def __init__(
        self,
        results: list[ReadStateSummaryResult] | None = None,
    ) -> None:
        self.results: list[ReadStateSummaryResult] = [] if results is None else results
