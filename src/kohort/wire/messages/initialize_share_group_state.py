"""Between brokers: makes the state of share partitions at the share coordinator.

Generated from schema/initialize_share_group_state.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition", "state_epoch", "start_offset",)
    FIELDS = __slots__

    def __init__(
        self,
        partition: int = 0,
        state_epoch: int = 0,
        start_offset: int = 0,
    ) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.start_offset = start_offset


class InitializeStateData(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class InitializeShareGroupStateRequest(Message):
    API_KEY = 83
    __slots__ = ("group_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[InitializeStateData] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[InitializeStateData] = [] if topics is None else topics


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


class InitializeStateResult(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions


class InitializeShareGroupStateResponse(Message):
    API_KEY = 83
    __slots__ = ("results",)
    FIELDS = __slots__

    def __init__(
        self,
        results: list[InitializeStateResult] | None = None,
    ) -> None:
        self.results: list[InitializeStateResult] = [] if results is None else results
