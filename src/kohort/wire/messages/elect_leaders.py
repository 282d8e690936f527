"""Asks for a leader election.

Generated from schema/elect_leaders.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class TopicPartitions(Struct):
    __slots__ = ("topic", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic: str = "",
        partitions: list[int] | None = None,
    ) -> None:
        self.topic = topic
        self.partitions: list[int] = [] if partitions is None else partitions


class ElectLeadersRequest(Message):
    API_KEY = 43
    __slots__ = ("election_type", "topic_partitions", "timeout_ms",)
    FIELDS = __slots__

    def __init__(
        self,
        election_type: int = 0,
        topic_partitions: list[TopicPartitions] | None = None,
        timeout_ms: int = 60000,
    ) -> None:
        self.election_type = election_type
        self.topic_partitions = topic_partitions
        self.timeout_ms = timeout_ms


class PartitionResult(Struct):
    __slots__ = ("partition_id", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_id: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.partition_id = partition_id
        self.error_code = error_code
        self.error_message = error_message


class ReplicaElectionResult(Struct):
    __slots__ = ("topic", "partition_result",)
    FIELDS = __slots__

    def __init__(
        self,
        topic: str = "",
        partition_result: list[PartitionResult] | None = None,
    ) -> None:
        self.topic = topic
        self.partition_result: list[PartitionResult] = [] if partition_result is None else partition_result


class ElectLeadersResponse(Message):
    API_KEY = 43
    __slots__ = ("throttle_time_ms", "error_code", "replica_election_results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        replica_election_results: list[ReplicaElectionResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.replica_election_results: list[ReplicaElectionResult] = [] if replica_election_results is None else replica_election_results
