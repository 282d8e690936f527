"""Builds and reads the requests about offsets: OffsetCommit, OffsetFetch, ListOffsets, OffsetForLeaderEpoch.

This module knows which field is in which version, and whether topics go by name or by id. What an answer means for the
consumer is decided in commits.py, committed.py, lookup.py and positions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kohort.client.core.cluster import Cluster
from kohort.client.errors import known_code
from kohort.client.offsets.subscription import Position
from kohort.client.types import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.struct import ZERO_UUID, Message

Make = Callable[[int], Message]
Offsets = dict[TopicPartition, OffsetAndMetadata]

BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch that names topics; from 10 on they have ids."""

MEMBERS_SINCE = 9
"""The version of OffsetFetch that says who asks."""

SHOWN = 10


def names(partitions: Iterable[TopicPartition]) -> str:
    """Lists partitions for people: all of a few, the first of many."""
    all_of_them = [str(TopicPartition._make(p)) for p in sorted(partitions)]
    more = f" and {len(all_of_them) - SHOWN} more" if len(all_of_them) > SHOWN else ""
    return ", ".join(all_of_them[:SHOWN]) + more


def as_partition(given: tuple[str, int]) -> TopicPartition:
    """Returns what a user gave as a TopicPartition; raises ValueError in the call itself if it is none."""
    partition = TopicPartition._make(given)
    if (
        not isinstance(partition.topic, str)
        or not isinstance(partition.partition, int)
        or not partition.topic.strip()
    ):
        raise ValueError(f"a partition is (topic, number), as in ('orders', 0), not {tuple(given)!r}")
    return partition


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition[0], []).append(TopicPartition._make(partition))
    return topics


def ids_of(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[str, bytes] | None:
    """Returns the ids of the partitions' topics; None unless all are known, since a request has names or ids."""
    ids: dict[str, bytes] = {}
    for topic in {partition[0] for partition in partitions}:
        info = cluster.topics.get(topic)
        if info is None or info.topic_id == ZERO_UUID:
            return None
        ids[topic] = info.topic_id
    return ids


def names_by_id(ids: Mapping[str, bytes] | None) -> dict[bytes, str]:
    return {topic_id: name for name, topic_id in (ids or {}).items()}


# --- OffsetCommit --------------------------------------------------------------------------------------


def offset_commit(offsets: Offsets, member: GroupMetadata, ids: Mapping[str, bytes] | None) -> Make:
    def make(version: int) -> Message:
        return OffsetCommitRequest(
            group_id=member.group_id,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=ids[topic] if ids is not None and version > BY_NAME else ZERO_UUID,
                    partitions=[_committed_partition(p, offsets[p]) for p in partitions],
                )
                for topic, partitions in by_topic(offsets).items()
            ],
        )

    return make


def _committed_partition(partition: TopicPartition, at: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=at.offset,
        committed_leader_epoch=at.leader_epoch if at.leader_epoch is not None else -1,
        committed_metadata=at.metadata,
    )


def commit_errors(
    response: Any, version: int, offsets: Offsets, topics: Mapping[bytes, str]
) -> dict[TopicPartition, ErrorCode]:
    """Returns what went wrong, by partition. A partition without an answer counts as an error too."""
    answered: dict[TopicPartition, ErrorCode] = {}
    for topic in response.topics:
        name = topics.get(topic.topic_id, "") if version > BY_NAME else topic.name
        for partition in topic.partitions:
            answered[TopicPartition(name, partition.partition_index)] = known_code(partition.error_code)
    codes = {p: answered.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in offsets}
    return {p: code for p, code in codes.items() if code is not ErrorCode.NONE}


# --- OffsetFetch ---------------------------------------------------------------------------------------


def offset_fetch(
    group_id: str,
    partitions: Iterable[TopicPartition],
    ids: Mapping[str, bytes] | None,
    member: GroupMetadata | None = None,
) -> Make:
    """Asks for stable offsets: while a transaction is open, the broker refuses to give the offset before it.

    `member` is who asks, if that matters to the group: the consumer protocol tells nobody who is not up to date.
    """
    topics = {topic: [p.partition for p in of] for topic, of in by_topic(partitions).items()}

    def make(version: int) -> Message:
        if version < 8:
            return OffsetFetchRequest(
                group_id=group_id,
                topics=[OffsetFetchRequestTopic(topic, indexes) for topic, indexes in topics.items()],
                require_stable=version >= 7,
            )
        asks = member if version >= MEMBERS_SINCE else None
        group = OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=None if asks is None else asks.member_id,
            member_epoch=-1 if asks is None else asks.generation_id,
            topics=[
                OffsetFetchRequestTopics(
                    name=topic,
                    topic_id=ids[topic] if ids is not None and version > BY_NAME else ZERO_UUID,
                    partition_indexes=indexes,
                )
                for topic, indexes in topics.items()
            ],
        )
        return OffsetFetchRequest(groups=[group], require_stable=True)

    return make


def fetched_offsets(
    response: Any, version: int, group_id: str, topics: Mapping[bytes, str]
) -> tuple[ErrorCode, dict[TopicPartition, tuple[ErrorCode, OffsetAndMetadata | None]]]:
    """Returns the group's error, and each partition's error or offset (None: nothing is committed)."""
    part = response
    if version >= 8:
        groups = [group for group in response.groups if group.group_id == group_id]
        if not groups:
            return ErrorCode.UNKNOWN_SERVER_ERROR, {}
        part = groups[0]
    found: dict[TopicPartition, tuple[ErrorCode, OffsetAndMetadata | None]] = {}
    for topic in part.topics:
        name = topics.get(topic.topic_id, "") if version > BY_NAME else topic.name
        for p in topic.partitions:
            epoch = p.committed_leader_epoch if p.committed_leader_epoch >= 0 else None
            at = OffsetAndMetadata(p.committed_offset, p.metadata or "", epoch)
            found[TopicPartition(name, p.partition_index)] = (
                known_code(p.error_code),
                at if p.committed_offset >= 0 else None,
            )
    return known_code(part.error_code), found


# --- ListOffsets ---------------------------------------------------------------------------------------


def list_offsets(
    times: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_ms: int,
) -> Make:
    def make(version: int) -> Message:
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            timeout_ms=timeout_ms,
            topics=[
                ListOffsetsTopic(
                    topic,
                    [ListOffsetsPartition(p.partition, epochs.get(p, -1), times[p]) for p in partitions],
                )
                for topic, partitions in by_topic(times).items()
            ],
        )

    return make


def listed_offsets(
    response: Any, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ErrorCode, OffsetAndTimestamp | None]]:
    """Returns each partition's error or offset. None: the log holds no record that is so young."""
    found: dict[TopicPartition, tuple[ErrorCode, OffsetAndTimestamp | None]] = dict.fromkeys(
        asked, (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    )
    for topic in response.topics:
        for p in topic.partitions:
            epoch = p.leader_epoch if p.leader_epoch >= 0 else None
            at = OffsetAndTimestamp(p.offset, p.timestamp, epoch) if p.offset >= 0 else None
            if (partition := TopicPartition(topic.name, p.partition_index)) in found:
                found[partition] = (known_code(p.error_code), at)
    return found


# --- OffsetForLeaderEpoch ------------------------------------------------------------------------------


def offset_for_leader_epoch(positions: Mapping[TopicPartition, Position]) -> Make:
    def make(version: int) -> Message:
        return OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic,
                    [
                        OffsetForLeaderPartition(
                            p.partition, positions[p].leader_epoch, positions[p].offset_epoch
                        )
                        for p in partitions
                    ],
                )
                for topic, partitions in by_topic(positions).items()
            ],
        )

    return make


def epoch_ends(response: Any) -> Iterator[tuple[TopicPartition, ErrorCode, int, int]]:
    """Yields partition, error, leader epoch and end offset; -1 where the leader does not know the epoch."""
    for topic in response.topics:
        for p in topic.partitions:
            yield (
                TopicPartition(topic.topic, p.partition),
                known_code(p.error_code),
                p.leader_epoch,
                p.end_offset,
            )
