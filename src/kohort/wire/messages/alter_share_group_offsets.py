"""Sets where the share partitions of an empty share group start.

Generated from schema/alter_share_group_offsets.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class AlterShareGroupOffsetsRequestPartition(Struct):
    __slots__ = ("partition_index", "start_offset",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        start_offset: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset


class AlterShareGroupOffsetsRequestTopic(Struct):
    __slots__ = ("topic_name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[AlterShareGroupOffsetsRequestPartition] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[AlterShareGroupOffsetsRequestPartition] = [] if partitions is None else partitions


class AlterShareGroupOffsetsRequest(Message):
    API_KEY = 91
    __slots__ = ("group_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[AlterShareGroupOffsetsRequestTopic] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[AlterShareGroupOffsetsRequestTopic] = [] if topics is None else topics


class AlterShareGroupOffsetsResponsePartition(Struct):
    __slots__ = ("partition_index", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.error_message = error_message


class AlterShareGroupOffsetsResponseTopic(Struct):
    __slots__ = ("topic_name", "topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_name: str = "",
        topic_id: bytes = ZERO_UUID,
        partitions: list[AlterShareGroupOffsetsResponsePartition] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.partitions: list[AlterShareGroupOffsetsResponsePartition] = [] if partitions is None else partitions


class AlterShareGroupOffsetsResponse(Message):
    API_KEY = 91
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "responses",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        responses: list[AlterShareGroupOffsetsResponseTopic] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.responses: list[AlterShareGroupOffsetsResponseTopic] = [] if responses is None else responses
