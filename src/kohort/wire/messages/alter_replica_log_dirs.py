"""Moves replicas between the log directories of a broker.

Generated from schema/alter_replica_log_dirs.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class AlterReplicaLogDirTopic(Struct):
    __slots__ = ("name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        partitions: list[int] | None = None,
    ) -> None:
        self.name = name
        self.partitions: list[int] = [] if partitions is None else partitions


class AlterReplicaLogDir(Struct):
    __slots__ = ("path", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        path: str = "",
        topics: list[AlterReplicaLogDirTopic] | None = None,
    ) -> None:
        self.path = path
        self.topics: list[AlterReplicaLogDirTopic] = [] if topics is None else topics


class AlterReplicaLogDirsRequest(Message):
    API_KEY = 34
    __slots__ = ("dirs",)
    FIELDS = __slots__

    def __init__(
        self,
        dirs: list[AlterReplicaLogDir] | None = None,
    ) -> None:
        self.dirs: list[AlterReplicaLogDir] = [] if dirs is None else dirs


class AlterReplicaLogDirPartitionResult(Struct):
    __slots__ = ("partition_index", "error_code",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class AlterReplicaLogDirTopicResult(Struct):
    __slots__ = ("topic_name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[AlterReplicaLogDirPartitionResult] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[AlterReplicaLogDirPartitionResult] = [] if partitions is None else partitions


class AlterReplicaLogDirsResponse(Message):
    API_KEY = 34
    __slots__ = ("throttle_time_ms", "results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        results: list[AlterReplicaLogDirTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AlterReplicaLogDirTopicResult] = [] if results is None else results
