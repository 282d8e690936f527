"""Adds partitions to topics.

Generated from schema/create_partitions.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import Message, Struct


class CreatePartitionsAssignment(Struct):
    __slots__ = ("broker_ids",)
    FIELDS = __slots__

    def __init__(
        self,
        broker_ids: list[int] | None = None,
    ) -> None:
        self.broker_ids: list[int] = [] if broker_ids is None else broker_ids


class CreatePartitionsTopic(Struct):
    __slots__ = ("name", "count", "assignments",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        count: int = 0,
        assignments: list[CreatePartitionsAssignment] | None = None,
    ) -> None:
        self.name = name
        self.count = count
        self.assignments = assignments


class CreatePartitionsRequest(Message):
    API_KEY = 37
    __slots__ = ("topics", "timeout_ms", "validate_only",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[CreatePartitionsTopic] | None = None,
        timeout_ms: int = 0,
        validate_only: bool = False,
    ) -> None:
        self.topics: list[CreatePartitionsTopic] = [] if topics is None else topics
        self.timeout_ms = timeout_ms
        self.validate_only = validate_only


class CreatePartitionsTopicResult(Struct):
    __slots__ = ("name", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str = "",
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.error_code = error_code
        self.error_message = error_message


class CreatePartitionsResponse(Message):
    API_KEY = 37
    __slots__ = ("throttle_time_ms", "results",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        results: list[CreatePartitionsTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[CreatePartitionsTopicResult] = [] if results is None else results
