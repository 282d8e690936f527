"""Between brokers: drops the state of share partitions.

Generated from schema/delete_share_group_state.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class PartitionData(Struct):
    __slots__ = ("partition",)
    FIELDS = __slots__

    def __init__(
        self,
        partition: int = 0,
    ) -> None:
        self.partition = partition


class DeleteStateData(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class DeleteShareGroupStateRequest(Message):
    API_KEY = 86
    __slots__ = ("group_id", "topics",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        topics: list[DeleteStateData] | None = None,
    ) -> None:
        self.group_id = group_id
        self.topics: list[DeleteStateData] = [] if topics is None else topics


class PartitionResult(Struct):
    __slots__ = ("partition", "error_code", "error_message",)
    FIELDS = __slots__

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message


class DeleteStateResult(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions


class DeleteShareGroupStateResponse(Message):
    API_KEY = 86
    __slots__ = ("results",)
    FIELDS = __slots__

    def __init__(
        self,
        results: list[DeleteStateResult] | None = None,
    ) -> None:
        self.results: list[DeleteStateResult] = [] if results is None else results
