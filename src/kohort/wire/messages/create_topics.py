"""Makes topics.

Generated from schema/create_topics.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class CreatableReplicaAssignment(Struct):
    __slots__ = ("partition_index", "broker_ids",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        broker_ids: list[int] | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.broker_ids: list[int] = [] if broker_ids is None else broker_ids


class CreatableTopicConfig(Struct):
    __slots__ = ("name", "value",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        value: str | None = "",
    ) -> None:
        self.name = name
        self.value = value


class CreatableTopic(Struct):
    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        num_partitions: int = 0,
        replication_factor: int = 0,
        assignments: list[CreatableReplicaAssignment] | None = None,
        configs: list[CreatableTopicConfig] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.assignments: list[CreatableReplicaAssignment] = [] if assignments is None else assignments
        self.configs: list[CreatableTopicConfig] = [] if configs is None else configs


class CreateTopicsRequest(Message):
    API_KEY = 19
    __slots__ = ("topics", "timeout_ms", "validate_only",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[CreatableTopic] | None = None,
        timeout_ms: int = 60000,
        validate_only: bool = False,
    ) -> None:
        self.topics: list[CreatableTopic] = [] if topics is None else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only


class CreatableTopicConfigs(Struct):
    __slots__ = ("name", "value", "read_only", "config_source", "is_sensitive",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        value: str | None = "",
        read_only: bool = False,
        config_source: int = -1,
        is_sensitive: bool = False,
    ) -> None:
        self.name = name
        self.value = value
        self.read_only = read_only
        self.config_source = config_source
        self.is_sensitive = is_sensitive


class CreatableTopicResult(Struct):
    __slots__ = ("name", "topic_id", "error_code", "error_message", "topic_config_error_code", "num_partitions", "replication_factor", "configs",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = "",
        topic_config_error_code: int = 0,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: list[CreatableTopicConfigs] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message
        self.topic_config_error_code = topic_config_error_code
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.configs = configs


class CreateTopicsResponse(Message):
    API_KEY = 19
    __slots__ = ("throttle_time_ms", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: list[CreatableTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics: list[CreatableTopicResult] = [] if topics is None else topics
