"""A member of a share group (KIP-932) joins, stays or leaves.

Generated from schema/share_group_heartbeat.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class ShareGroupHeartbeatRequest(Message):
    API_KEY = 76
    __slots__ = ("group_id", "member_id", "member_epoch", "rack_id", "subscribed_topic_names",)
    FIELDS = __slots__

    def __init__(
        self,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        rack_id: str | None = None,
        subscribed_topic_names: list[str] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.rack_id = rack_id
        self.subscribed_topic_names = subscribed_topic_names


class TopicPartitions(Struct):
    __slots__ = ("topic_id", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[int] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[int] = [] if partitions is None else partitions


class Assignment(Struct):
    __slots__ = ("topic_partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_partitions: list[TopicPartitions] | None = None,
    ) -> None:
        self.topic_partitions: list[TopicPartitions] = [] if topic_partitions is None else topic_partitions


class ShareGroupHeartbeatResponse(Message):
    API_KEY = 76
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "member_id", "member_epoch", "heartbeat_interval_ms", "assignment",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str | None = None,
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        assignment: Assignment | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.assignment = assignment
