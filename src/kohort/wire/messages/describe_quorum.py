"""Leader, voters and observers of the metadata log.

Generated from schema/describe_quorum.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition_index",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
    ) -> None:
        self.partition_index = partition_index


class TopicData(Struct):
    __slots__ = ("topic_name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class DescribeQuorumRequest(Message):
    API_KEY = 55
    __slots__ = ("topics",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[TopicData] | None = None,
    ) -> None:
        self.topics: list[TopicData] = [] if topics is None else topics


class ReplicaState(Struct):
    __slots__ = ("replica_id", "replica_directory_id", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp",)
    FIELDS = __slots__

    def __init__(
        self,
        replica_id: int = 0,
        replica_directory_id: bytes = ZERO_UUID,
        log_end_offset: int = 0,
        last_fetch_timestamp: int = -1,
        last_caught_up_timestamp: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.replica_directory_id = replica_directory_id
        self.log_end_offset = log_end_offset
        self.last_fetch_timestamp = last_fetch_timestamp
        self.last_caught_up_timestamp = last_caught_up_timestamp


class ResponsePartitionData(Struct):
    __slots__ = ("partition_index", "error_code", "error_message", "leader_id", "leader_epoch", "high_watermark", "current_voters", "observers",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        leader_id: int = 0,
        leader_epoch: int = 0,
        high_watermark: int = 0,
        current_voters: list[ReplicaState] | None = None,
        observers: list[ReplicaState] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.current_voters: list[ReplicaState] = [] if current_voters is None else current_voters
        self.observers: list[ReplicaState] = [] if observers is None else observers


class ResponseTopicData(Struct):
    __slots__ = ("topic_name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[ResponsePartitionData] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[ResponsePartitionData] = [] if partitions is None else partitions


class Listener(Struct):
    __slots__ = ("name", "host", "port",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        host: str = "",
        port: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port


class Node(Struct):
    __slots__ = ("node_id", "listeners",)
    FIELDS = __slots__

    def __init__(
        self,
        node_id: int = 0,
        listeners: list[Listener] | None = None,
    ) -> None:
        self.node_id = node_id
        self.listeners: list[Listener] = [] if listeners is None else listeners


class DescribeQuorumResponse(Message):
    API_KEY = 55
    __slots__ = ("error_code", "error_message", "topics", "nodes",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[ResponseTopicData] | None = None,
        nodes: list[Node] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.topics: list[ResponseTopicData] = [] if topics is None else topics
        self.nodes: list[Node] = [] if nodes is None else nodes
