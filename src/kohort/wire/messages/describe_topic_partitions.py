"""Topics and partitions, page by page.

Generated from schema/describe_topic_partitions.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class TopicRequest(Struct):
    __slots__ = ("name",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
    ) -> None:
        self.name = name


class CursorRequest(Struct):
    __slots__ = ("topic_name", "partition_index",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        partition_index: int = 0,
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index


class DescribeTopicPartitionsRequest(Message):
    API_KEY = 75
    __slots__ = ("topics", "response_partition_limit", "cursor",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[TopicRequest] | None = None,
        response_partition_limit: int = 2000,
        cursor: CursorRequest | None = None,
    ) -> None:
        self.topics: list[TopicRequest] = [] if topics is None else topics
        self.response_partition_limit = response_partition_limit
        self.cursor = cursor


class DescribeTopicPartitionsResponsePartition(Struct):
    __slots__ = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "eligible_leader_replicas", "last_known_elr", "offline_replicas",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] | None = None,
        isr_nodes: list[int] | None = None,
        eligible_leader_replicas: list[int] | None = None,
        last_known_elr: list[int] | None = None,
        offline_replicas: list[int] | None = None,
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes: list[int] = [] if replica_nodes is None else replica_nodes
        self.isr_nodes: list[int] = [] if isr_nodes is None else isr_nodes
        self.eligible_leader_replicas = eligible_leader_replicas
        self.last_known_elr = last_known_elr
        self.offline_replicas: list[int] = [] if offline_replicas is None else offline_replicas


class DescribeTopicPartitionsResponseTopic(Struct):
    __slots__ = ("error_code", "name", "topic_id", "is_internal", "partitions", "topic_authorized_operations",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        is_internal: bool = False,
        partitions: list[DescribeTopicPartitionsResponsePartition] | None = None,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions: list[DescribeTopicPartitionsResponsePartition] = [] if partitions is None else partitions
        self.topic_authorized_operations = topic_authorized_operations


class CursorResponse(Struct):
    __slots__ = ("topic_name", "partition_index",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        partition_index: int = 0,
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index


class DescribeTopicPartitionsResponse(Message):
    API_KEY = 75
    __slots__ = ("throttle_time_ms", "topics", "next_cursor",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[DescribeTopicPartitionsResponseTopic] | None = None,
        next_cursor: CursorResponse | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[DescribeTopicPartitionsResponseTopic] = [] if topics is None else topics
        self.next_cursor = next_cursor
