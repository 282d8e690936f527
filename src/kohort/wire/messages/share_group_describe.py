"""State and members of share groups (KIP-932).

Generated from schema/share_group_describe.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from kohort.wire.struct import ZERO_UUID, Message, Struct


class ShareGroupDescribeRequest(Message):
    API_KEY = 77
    __slots__ = ("group_ids", "include_authorized_operations",)
    FIELDS = __slots__

    def __init__(
        self,
        group_ids: list[str] | None = None,
        include_authorized_operations: bool = False,
    ) -> None:
        self.group_ids: list[str] = [] if group_ids is None else group_ids
        self.include_authorized_operations = include_authorized_operations


class TopicPartitions(Struct):
    __slots__ = ("topic_id", "topic_name", "partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        topic_name: str = "",
        partitions: list[int] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions: list[int] = [] if partitions is None else partitions


class Assignment(Struct):
    __slots__ = ("topic_partitions",)
    FIELDS = __slots__

    def __init__(
        self,
        topic_partitions: list[TopicPartitions] | None = None,
    ) -> None:
        self.topic_partitions: list[TopicPartitions] = [] if topic_partitions is None else topic_partitions


class Member(Struct):
    __slots__ = ("member_id", "rack_id", "member_epoch", "client_id", "client_host", "subscribed_topic_names", "assignment",)
    FIELDS = __slots__

    def __init__(
        self,
        member_id: str = "",
        rack_id: str | None = None,
        member_epoch: int = 0,
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] | None = None,
        assignment: Assignment | None = None,
    ) -> None:
        self.member_id = member_id
        self.rack_id = rack_id
        self.member_epoch = member_epoch
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names: list[str] = [] if subscribed_topic_names is None else subscribed_topic_names
        self.assignment: Assignment = Assignment() if assignment is None else assignment


class DescribedGroup(Struct):
    __slots__ = ("error_code", "error_message", "group_id", "group_state", "group_epoch", "assignment_epoch", "assignor_name", "members", "authorized_operations",)
    FIELDS = __slots__

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = None,
        group_id: str = "",
        group_state: str = "",
        group_epoch: int = 0,
        assignment_epoch: int = 0,
        assignor_name: str = "",
        members: list[Member] | None = None,
        authorized_operations: int = -2147483648,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.group_id = group_id
        self.group_state = group_state
        self.group_epoch = group_epoch
        self.assignment_epoch = assignment_epoch
        self.assignor_name = assignor_name
        self.members: list[Member] = [] if members is None else members
        self.authorized_operations = authorized_operations


class ShareGroupDescribeResponse(Message):
    API_KEY = 77
    __slots__ = ("throttle_time_ms", "groups",)
    FIELDS = __slots__

    def __init__(
        self,
        throttle_time_ms: int = 0,
        groups: list[DescribedGroup] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.groups: list[DescribedGroup] = [] if groups is None else groups
