"""Appends record batches to partitions.

Generated from schema/produce.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Records, Struct


class PartitionProduceData(Struct):
    __slots__ = ("index", "records",)
    FIELDS = __slots__

    def __init__(
        self,
        index: int = 0,
        records: Records | None = b"",
    ) -> None:
        self.index = index
        self.records = records


class TopicProduceData(Struct):
    __slots__ = ("name", "topic_id", "partition_data",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partition_data: list[PartitionProduceData] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_data: list[PartitionProduceData] = [] if partition_data is None else partition_data


class ProduceRequest(Message):
    API_KEY = 0
    __slots__ = ("transactional_id", "acks", "timeout_ms", "topic_data",)
    FIELDS = __slots__

    def __init__(
        self,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[TopicProduceData] | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data: list[TopicProduceData] = [] if topic_data is None else topic_data


class BatchIndexAndErrorMessage(Struct):
    __slots__ = ("batch_index", "batch_index_error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        batch_index: int = 0,
        batch_index_error_message: str | None = None,
    ) -> None:
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message


class LeaderIdAndEpoch(Struct):
    __slots__ = ("leader_id", "leader_epoch",)
    FIELDS = __slots__

    def __init__(
        self,
        leader_id: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class PartitionProduceResponse(Struct):
    __slots__ = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset", "record_errors", "error_message", "current_leader",)
    FIELDS = __slots__

    def __init__(
        self,
        index: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[BatchIndexAndErrorMessage] | None = None,
        error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors: list[BatchIndexAndErrorMessage] = [] if record_errors is None else record_errors
        self.error_message = error_message
        self.current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch() if current_leader is None else current_leader


class TopicProduceResponse(Struct):
    __slots__ = ("name", "topic_id", "partition_responses",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        partition_responses: list[PartitionProduceResponse] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_responses: list[PartitionProduceResponse] = [] if partition_responses is None else partition_responses


class NodeEndpoint(Struct):
    __slots__ = ("node_id", "host", "port", "rack",)
    FIELDS = __slots__

    def __init__(
        self,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        rack: str | None = None,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


class ProduceResponse(Message):
    API_KEY = 0
    __slots__ = ("responses", "throttle_time_ms", "node_endpoints",)
    FIELDS = __slots__

    def __init__(
        self,
        responses: list[TopicProduceResponse] | None = None,
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.responses: list[TopicProduceResponse] = [] if responses is None else responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints: list[NodeEndpoint] = [] if node_endpoints is None else node_endpoints
