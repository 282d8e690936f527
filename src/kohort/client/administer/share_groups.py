"""The steps of Admin's calls that concern the offsets of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kohort.client.admin_types import SharePartitionOffset
from kohort.client.administer.asking import Asking, named, outcome
from kohort.client.core import arguments
from kohort.client.core.requests import RETRIABLE, GroupOf
from kohort.client.core.steps import Steps
from kohort.client.errors import error_for
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kohort.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kohort.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)


class ShareGroupCalls(Asking):
    """The calls that concern share groups alone; groups.py has those for groups of all types."""

    def share_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, deadline_ms: int
    ) -> Steps[dict[TopicPartition, SharePartitionOffset]]:
        """Returns where the share partitions of a group start; those that have not started yet are left out."""
        group_id = arguments.group_id(group_id)
        topics = None
        if partitions is not None:
            topics = [
                DescribeShareGroupOffsetsRequestTopic(topic, indexes)
                for topic, indexes in _by_topic(partitions).items()
            ]
        asked = DescribeShareGroupOffsetsRequestGroup(group_id, topics)
        response = yield from self.ask(
            DescribeShareGroupOffsetsRequest([asked]), GroupOf(group_id), deadline_ms,
            verdict=lambda r: next((g.error_code for g in r.groups if g.error_code in RETRIABLE), 0),
        )  # fmt: skip
        (group,) = response.groups
        _raise_if_refused(group, group_id)
        found = outcome(
            (TopicPartition(topic.topic_name, row.partition_index), row, row)
            for topic in group.topics
            for row in topic.partitions
        )
        return {partition: _offset(row) for partition, row in found.items() if row.start_offset >= 0}

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], deadline_ms: int
    ) -> Steps[None]:
        """Sets where the share partitions of a group without members start; makes the group if there is none."""
        group_id = arguments.group_id(group_id)
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic,
                [
                    AlterShareGroupOffsetsRequestPartition(index, offsets[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in _by_topic(offsets).items()
        ]
        response = yield from self.ask(
            AlterShareGroupOffsetsRequest(group_id, topics), GroupOf(group_id), deadline_ms,
            verdict=lambda r: r.error_code if r.error_code in RETRIABLE else 0,
        )  # fmt: skip
        _raise_if_refused(response, group_id)
        outcome(
            (TopicPartition(topic.topic_name, row.partition_index), row, None)
            for topic in response.responses
            for row in topic.partitions
        )

    def delete_share_group_offsets(
        self, group_id: str, topics: Sequence[str], deadline_ms: int
    ) -> Steps[None]:
        """Forgets all state of topics in a share group without members."""
        group_id = arguments.group_id(group_id)
        wanted = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
        response = yield from self.ask(
            DeleteShareGroupOffsetsRequest(group_id, wanted), GroupOf(group_id), deadline_ms,
            verdict=lambda r: r.error_code if r.error_code in RETRIABLE else 0,
        )  # fmt: skip
        _raise_if_refused(response, group_id)
        outcome((topic.topic_name, topic, None) for topic in response.responses)


def _raise_if_refused(row: Any, group_id: str) -> None:
    """Raises what a coordinator answered for the whole group."""
    code = row.error_code
    if not code:
        return
    if code == ErrorCode.NON_EMPTY_GROUP:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"share group {group_id} has members: stop them first (`kohort groups describe {group_id}` shows them)",
        )
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        said = f" (the broker says: {row.error_message})" if row.error_message else ""
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id}{said}")
    raise error_for(code, named(group_id, row.error_message))


def _offset(row: Any) -> SharePartitionOffset:
    return SharePartitionOffset(
        row.start_offset,
        row.leader_epoch if row.leader_epoch >= 0 else None,
        row.lag if row.lag >= 0 else None,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
