"""Drops the state of topics of an empty share group.

Generated from schema/delete_share_group_offsets.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class DeleteShareGroupOffsetsRequestTopic(Struct):
    __slots__ = ("topic_name",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
    ) -> None:
        self.topic_name = topic_name


class DeleteShareGroupOffsetsRequest(Message):
    API_KEY = 92
    __slots__ = ("group_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[DeleteShareGroupOffsetsRequestTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[DeleteShareGroupOffsetsRequestTopic] = [] if topics is None else topics


class DeleteShareGroupOffsetsResponseTopic(Struct):
    __slots__ = ("topic_name", "topic_id", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


class DeleteShareGroupOffsetsResponse(Message):
    API_KEY = 92
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "responses",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[DeleteShareGroupOffsetsResponseTopic] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[DeleteShareGroupOffsetsResponseTopic] = [] if responses is None else responses
