"""Moves replicas of partitions between brokers, or cancels such moves.

Generated from schema/alter_partition_reassignments.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class ReassignablePartition(Struct):
    __slots__ = ("partition_index", "replicas",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        replicas: list[int] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.replicas = replicas


class ReassignableTopic(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[ReassignablePartition] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[ReassignablePartition] = [] if partitions is None else partitions


class AlterPartitionReassignmentsRequest(Message):
    API_KEY = 45
    __slots__ = ("timeout_ms", "allow_replication_factor_change", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        timeout_ms: int = 60000,
        allow_replication_factor_change: bool = True,
        topics: list[ReassignableTopic] | None = None,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.topics: list[ReassignableTopic] = [] if topics is None else topics


class ReassignablePartitionResponse(Struct):
    __slots__ = ("partition_index", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class ReassignableTopicResponse(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[ReassignablePartitionResponse] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[ReassignablePartitionResponse] = [] if partitions is None else partitions


class AlterPartitionReassignmentsResponse(Message):
    API_KEY = 45
    __slots__ = ("throttle_time_ms", "allow_replication_factor_change", "error_code", "error_message", "responses",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        allow_replication_factor_change: bool = True,
        error_code: int = 0,
        error_message: str | None = "",
        responses: list[ReassignableTopicResponse] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[ReassignableTopicResponse] = [] if responses is None else responses
