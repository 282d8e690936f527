"""Acquires records of share partitions for a member, and acknowledges what it has processed.

Generated from schema/share_fetch.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Records, Struct


class AcknowledgementBatch(Struct):
    __slots__ = ("first_offset", "last_offset", "acknowledge_types",)
    FIELDS = __slots__

    def __init__(
        self,
        first_offset: int = 0,
        last_offset: int = 0,
        acknowledge_types: list[int] | None = None,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.acknowledge_types: list[int] = [] if acknowledge_types is None else acknowledge_types


class FetchPartition(Struct):
    __slots__ = ("partition_index", "acknowledgement_batches",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        acknowledgement_batches: list[AcknowledgementBatch] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.acknowledgement_batches: list[AcknowledgementBatch] = [] if acknowledgement_batches is None else acknowledgement_batches


class FetchTopic(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[FetchPartition] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[FetchPartition] = [] if partitions is None else partitions


class ForgottenTopic(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[int] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[int] = [] if partitions is None else partitions


class ShareFetchRequest(Message):
    API_KEY = 78
    __slots__ = ("group_id", "member_id", "share_session_epoch", "max_wait_ms", "min_bytes", "max_bytes", "max_records", "batch_size", "share_acquire_mode", "is_renew_ack", "topics", "forgotten_topics_data",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str | None = None,
        member_id: str | None = "",
        share_session_epoch: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        max_records: int = 0,
        batch_size: int = 0,
        share_acquire_mode: int = 0,
        is_renew_ack: bool = False,
        topics: list[FetchTopic] | None = None,
        forgotten_topics_data: list[ForgottenTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.share_session_epoch = share_session_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.batch_size = batch_size
        self.share_acquire_mode = share_acquire_mode
        self.is_renew_ack = is_renew_ack
        self.topics: list[FetchTopic] = [] if topics is None else topics
        self.forgotten_topics_data: list[ForgottenTopic] = [] if forgotten_topics_data is None else forgotten_topics_data


class LeaderIdAndEpoch(Struct):
    __slots__ = ("leader_id", "leader_epoch",)
    FIELDS = __slots__

    def __init__(
        self,
        leader_id: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class AcquiredRecords(Struct):
    __slots__ = ("first_offset", "last_offset", "delivery_count",)
    FIELDS = __slots__

    def __init__(
        self,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_count = delivery_count


class PartitionData(Struct):
    __slots__ = ("partition_index", "error_code", "error_message", "acknowledge_error_code", "acknowledge_error_message", "current_leader", "records", "acquired_records",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acknowledge_error_code: int = 0,
        acknowledge_error_message: str | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        records: Records = b"",
        acquired_records: list[AcquiredRecords] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.acknowledge_error_code = acknowledge_error_code
        self.acknowledge_error_message = acknowledge_error_message
        self.current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch() if current_leader is None else current_leader
        self.records = records
        self.acquired_records: list[AcquiredRecords] = [] if acquired_records is None else acquired_records


class ShareFetchableTopicResponse(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


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


class ShareFetchResponse(Message):
    API_KEY = 78
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "acquisition_lock_timeout_ms", "responses", "node_endpoints",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        acquisition_lock_timeout_ms: int = 0,
        responses: list[ShareFetchableTopicResponse] | None = None,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.acquisition_lock_timeout_ms = acquisition_lock_timeout_ms
        self.responses: list[ShareFetchableTopicResponse] = [] if responses is None else responses
        self.node_endpoints: list[NodeEndpoint] = [] if node_endpoints is None else node_endpoints
