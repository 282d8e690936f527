"""Which partitions are moving.

Generated from schema/list_partition_reassignments.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class ListPartitionReassignmentsTopics(Struct):
    __slots__ = ("name", "partition_indexes",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partition_indexes: list[int] | None = None,
    ) -> None:
        self.name = name
        self.partition_indexes: list[int] = [] if partition_indexes is None else partition_indexes


class ListPartitionReassignmentsRequest(Message):
    API_KEY = 46
    __slots__ = ("timeout_ms", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        timeout_ms: int = 60000,
        topics: list[ListPartitionReassignmentsTopics] | None = None,
    ) -> None:
        self.timeout_ms = timeout_ms
        self.topics = topics


class OngoingPartitionReassignment(Struct):
    __slots__ = ("partition_index", "replicas", "adding_replicas", "removing_replicas",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        replicas: list[int] | None = None,
        adding_replicas: list[int] | None = None,
        removing_replicas: list[int] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.replicas: list[int] = [] if replicas is None else replicas
        self.adding_replicas: list[int] = [] if adding_replicas is None else adding_replicas
        self.removing_replicas: list[int] = [] if removing_replicas is None else removing_replicas


class OngoingTopicReassignment(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[OngoingPartitionReassignment] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[OngoingPartitionReassignment] = [] if partitions is None else partitions


class ListPartitionReassignmentsResponse(Message):
    API_KEY = 46
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        topics: list[OngoingTopicReassignment] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.topics: list[OngoingTopicReassignment] = [] if topics is None else topics
