"""Which brokers there are, and who leads which partition.

Generated from schema/metadata.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class MetadataRequestTopic(Struct):
    __slots__ = ("topic_id", "name",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        name: str | None = "",
    ) -> None:
        self.topic_id = topic_id
        self.name = name


class MetadataRequest(Message):
    API_KEY = 3
    __slots__ = ("topics", "allow_auto_topic_creation", "include_cluster_authorized_operations", "include_topic_authorized_operations",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[MetadataRequestTopic] | None = None,
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
    ) -> None:
        self.topics = topics
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.include_topic_authorized_operations = include_topic_authorized_operations


class MetadataResponseBroker(Struct):
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


class MetadataResponsePartition(Struct):
    __slots__ = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "offline_replicas",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = -1,
        replica_nodes: list[int] | None = None,
        isr_nodes: list[int] | None = None,
        offline_replicas: list[int] | None = None,
    ) -> None:
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.replica_nodes: list[int] = [] if replica_nodes is None else replica_nodes
        self.isr_nodes: list[int] = [] if isr_nodes is None else isr_nodes
        self.offline_replicas: list[int] = [] if offline_replicas is None else offline_replicas


class MetadataResponseTopic(Struct):
    __slots__ = ("error_code", "name", "topic_id", "is_internal", "partitions", "topic_authorized_operations",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        is_internal: bool = False,
        partitions: list[MetadataResponsePartition] | None = None,
        topic_authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions: list[MetadataResponsePartition] = [] if partitions is None else partitions
        self.topic_authorized_operations = topic_authorized_operations


class MetadataResponse(Message):
    API_KEY = 3
    __slots__ = ("throttle_time_ms", "brokers", "cluster_id", "controller_id", "topics", "cluster_authorized_operations", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        brokers: list[MetadataResponseBroker] | None = None,
        cluster_id: str | None = None,
        controller_id: int = -1,
        topics: list[MetadataResponseTopic] | None = None,
        cluster_authorized_operations: int = -2147483648,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.brokers: list[MetadataResponseBroker] = [] if brokers is None else brokers
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.topics: list[MetadataResponseTopic] = [] if topics is None else topics
        self.cluster_authorized_operations = cluster_authorized_operations
        self.error_code = error_code
