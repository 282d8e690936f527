"""Between brokers: changes of the state of share partitions, written by their leader.

Generated from schema/write_share_group_state.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class StateBatch(Struct):
    __slots__ = ("first_offset", "last_offset", "delivery_state", "delivery_count",)
    FIELDS = __slots__

    def __init__(
        self,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class PartitionData(Struct):
    __slots__ = ("partition", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count", "state_batches",)
    FIELDS = __slots__

    def __init__(
        self,
        partition: int = 0,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        state_batches: list[StateBatch] | None = None,
    ) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.state_batches: list[StateBatch] = [] if state_batches is None else state_batches


class WriteStateData(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class WriteShareGroupStateRequest(Message):
    API_KEY = 85
    __slots__ = ("group_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[WriteStateData] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[WriteStateData] = [] if topics is None else topics


class PartitionResult(Struct):
    __slots__ = ("partition", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message


class WriteStateResult(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions


class WriteShareGroupStateResponse(Message):
    API_KEY = 85
    __slots__ = ("results",)
    FIELDS = __slots__

    def __init__(
        self,
        results: list[WriteStateResult] | None = None,
    ) -> None:
        self.results: list[WriteStateResult] = [] if results is None else results
