"""Turns the answers about groups, classic ones and those of newer types, into what Admin returns."""

from __future__ import annotations

from typing import Any

from kohort.client.admin_types import GroupDescription, GroupListing, MemberDescription
from kohort.client.core.cluster import Node
from kohort.client.group.consumer_protocol import decode_assignment
from kohort.client.types import TopicPartition
from kohort.wire.consumer_protocol import PROTOCOL_TYPE, BadConsumerProtocol
from kohort.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kohort.wire.messages.list_groups import ListedGroup

DEAD = "Dead"
CLASSIC_MEMBER = 0
"""The type of a member, in ConsumerGroupDescribe, that speaks the classic protocol in a consumer group."""


def listing(row: ListedGroup) -> GroupListing:
    """Reads a row of ListGroups, whose type is "classic", "Classic" or, from brokers before 3.7, missing."""
    return GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type.lower() or "classic")


def classic_group(row: DescribedGroup, coordinator: Node | None) -> GroupDescription:
    return GroupDescription(
        row.group_id,
        DEAD if row.error_code else row.group_state,
        row.protocol_type,
        row.protocol_data,
        coordinator,
        tuple(_classic_member(member, row.protocol_type) for member in row.members),
    )


def _classic_member(member: DescribedGroupMember, protocol_type: str) -> MemberDescription:
    """Reads a member of a classic group; only the consumers' protocol says what it was assigned."""
    assigned: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE and member.member_assignment:
        try:
            assigned = decode_assignment(member.member_assignment).partitions
        except BadConsumerProtocol:
            pass  # a group may call itself "consumer" and speak a language of its own
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, assigned
    )


def newer_group(row: Any, group_type: str, coordinator: Node | None) -> GroupDescription:
    """Reads a row of ConsumerGroupDescribe or ShareGroupDescribe, which hardly differ."""
    return GroupDescription(
        row.group_id,
        row.group_state,
        group_type,
        row.assignor_name,
        coordinator,
        tuple(_newer_member(member, group_type) for member in row.members),
        group_type,
        row.group_epoch,
        row.assignment_epoch,
    )


def _newer_member(member: Any, group_type: str) -> MemberDescription:
    target = getattr(member, "target_assignment", None)
    is_classic = getattr(member, "member_type", None) == CLASSIC_MEMBER
    return MemberDescription(
        member.member_id,
        getattr(member, "instance_id", None),  # a share group has no static members
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        member.member_epoch,
        None if target is None else _partitions(target),
        "classic" if is_classic else group_type,
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )
