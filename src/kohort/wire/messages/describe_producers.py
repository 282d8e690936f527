"""Active producers of partitions.

Generated from schema/describe_producers.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class TopicRequest(Struct):
    __slots__ = ("name", "partition_indexes",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partition_indexes: list[int] | None = None,
    ) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes


class DescribeProducersRequest(Message):
    API_KEY = 61
    __slots__ = ("topics",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[TopicRequest] | None = None,
    ) -> None:
        self.topics: list[TopicRequest] = [] if topics is None else topics


class ProducerState(Struct):
    __slots__ = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp", "coordinator_epoch", "current_txn_start_offset",)
    FIELDS = __slots__

    def __init__(
        self,
        producer_id: int = 0,
        producer_epoch: int = 0,
        last_sequence: int = -1,
        last_timestamp: int = -1,
        coordinator_epoch: int = 0,
        current_txn_start_offset: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_sequence = last_sequence
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_start_offset = current_txn_start_offset


class PartitionResponse(Struct):
    __slots__ = ("partition_index", "error_code", "error_message", "active_producers",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        active_producers: list[ProducerState] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.active_producers: list[ProducerState] = [] if active_producers is None else active_producers


class TopicResponse(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[PartitionResponse] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[PartitionResponse] = [] if partitions is None else partitions


class DescribeProducersResponse(Message):
    API_KEY = 61
    __slots__ = ("throttle_time_ms", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[TopicResponse] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[TopicResponse] = [] if topics is None else topics
