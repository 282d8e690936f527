"""Deletes topics by name, since v6 by id too.

Generated from schema/delete_topics.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class DeleteTopicState(Struct):
    __slots__ = ("name", "topic_id",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str | None = None,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.name = name
        self.topic_id = topic_id


class DeleteTopicsRequest(Message):
    API_KEY = 20
    __slots__ = ("topics", "topic_names", "timeout_ms",)
    FIELDS = __slots__

    def __init__(
        self,
        topics: list[DeleteTopicState] | None = None,
        topic_names: list[str] | None = None,
        timeout_ms: int = 0,
    ) -> None:
        self.topics: list[DeleteTopicState] = [] if topics is None else topics
        self.topic_names: list[str] = [] if topic_names is None else topic_names
        self.timeout_ms = timeout_ms


class DeletableTopicResult(Struct):
    __slots__ = ("name", "topic_id", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        name: str | None = "",
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


class DeleteTopicsResponse(Message):
    API_KEY = 20
    __slots__ = ("throttle_time_ms", "responses",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        responses: list[DeletableTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses: list[DeletableTopicResult] = [] if responses is None else responses
