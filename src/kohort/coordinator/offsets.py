"""OffsetCommit, OffsetFetch and OffsetDelete: a commit is visible once it is durable, not before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.state import ANSWERS, EMPTY, PREPARING, STABLE, GroupState
from kohort.coordinator.commit_layout import CommitLayout, LaidOutOffsets, LaidOutRecords
from kohort.coordinator.consumer import commits
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.effects import (
    Append,
    CommitResponse,
    FetchedOffset,
    FetchResponse,
    OffsetDeleteResponse,
    RecordToWrite,
)
from kohort.coordinator.events import OffsetCommit, OffsetDelete, OffsetFetch, OffsetToCommit, TxnOffsetCommit
from kohort.coordinator.records import CommittedOffset, fits, offset_records, offset_tombstone
from kohort.coordinator.replay import Durable, MergedCommit, TopicPartition
from kohort.coordinator.step_context import StepContext, Write
from kohort.wire.errors import ErrorCode
from kohort.wire.struct import ZERO_UUID

if TYPE_CHECKING:
    from kohort.coordinator.shard import Shard

AnyOffsetGroup = Group | ConsumerGroup
"""A group that may have offsets."""
NONE = ErrorCode.NONE
_tuple = tuple.__new__  # a NamedTuple without its Python-level constructor: there are ten in a commit
INT64_MAX = 2**63 - 1


def commit_in_time(
    shard: Shard,
    layout: CommitLayout,
    generation_id: int,
    member_id: str,
    group_instance_id: str | None,
    now_ms: int,
) -> MergedCommit | None:
    """Whether a commit may take a short way: returns the merged commit that it replaces, else None.

    It may if it is in the layout of the commit before, its sender may commit, and no timer has to be set. If so, the
    member counts as heard of. The short ways are `Shard.commit_at_once` and `Shard.begin_commit`.
    """
    group = shard.groups.get(layout.group_id)
    if group is None:
        return _consumer_commit_in_time(shard, layout, generation_id, member_id)
    # If there is one, its metadata was accepted, and the group is in the log.
    merged = shard.durable.merged_commit(layout)
    state = group.state
    if generation_id < 0:
        return merged if state is EMPTY else None
    member = group.members.get(member_id)
    if (
        merged is None
        or member is None
        or generation_id != group.generation_id
        or (state is not STABLE and state is not PREPARING)
        or (group_instance_id is not None and group.static_members.get(group_instance_id) != member_id)
    ):
        return None
    return merged if member.session.moved(now_ms, member.session_timeout_ms) else None


def _consumer_commit_in_time(
    shard: Shard, layout: CommitLayout, member_epoch: int, member_id: str
) -> MergedCommit | None:
    """Does the same for a consumer group, whose members are not heard of by commits."""
    group = shard.consumer_groups.get(layout.group_id)
    member = group.members.get(member_id) if group is not None else None
    if member is None or not 0 <= member_epoch == member.epoch:
        return None
    return shard.durable.merged_commit(layout)


def commit_offsets(step: StepContext, request: OffsetCommit) -> None:
    group = _group_for_commit(step, request)
    if group is None:
        known_error = ErrorCode.GROUP_ID_NOT_FOUND if request.group_may_be_unknown else None
        step.refuse(request, known_error or ErrorCode.ILLEGAL_GENERATION)
        return
    error = _check_any_commit(step, group, request)
    if error:
        step.refuse(request, error)
        return
    if isinstance(group, Group) and (member := group.members.get(request.member_id)) is not None:
        step.renew(group, member)
    retention_ms, offsets = request.retention_time_ms, request.offsets
    if (
        isinstance(offsets, LaidOutOffsets)
        and retention_ms == -1
        and offsets.layout.metadata_units <= step.settings.offset_metadata_max_bytes
    ):
        step.effects.append(Append(*begin_laid_out(step.shard, group, request, offsets, step.now_ms)))
        return
    expires_ms = -1 if retention_ms == -1 else min(max(step.now_ms + retention_ms, 0), INT64_MAX)
    _write(step, group, request, expires_ms)


def begin_laid_out(
    shard: Shard, group: AnyOffsetGroup, request: OffsetCommit, offsets: LaidOutOffsets, now_ms: int
) -> tuple[int, LaidOutRecords]:
    """Begins the write of a commit in a layout, by the event and by the short way; returns its token and records."""
    layout = offsets.layout
    records = LaidOutRecords(layout, offsets.offsets, now_ms)
    group.pending_commits.append(layout.keys)
    write = LaidOutCommitWrite(records, [(request, layout.accepted)], group, layout.keys)
    return shard.begin_write(write), records


def commit_offsets_in_transaction(step: StepContext, request: TxnOffsetCommit) -> None:
    group = _group_for_commit(step, request)
    error = ErrorCode.ILLEGAL_GENERATION if group is None else _check_any_commit(step, group, request)
    if error or group is None:
        step.refuse(request, error)
        return
    _write(step, group, request, -1, request.producer_id, request.producer_epoch, request.verification)


def _group_for_commit(step: StepContext, request: OffsetCommit | TxnOffsetCommit) -> AnyOffsetGroup | None:
    """Returns the group; it makes one without members for a consumer that only stores its offsets."""
    assert request.group_id is not None
    group = step.shard.group_with_offsets(request.group_id)
    if group is None and request.generation_id < 0:
        group = step.shard.groups[request.group_id] = Group(request.group_id)
    return group


def _check_any_commit(
    step: StepContext, group: AnyOffsetGroup, request: OffsetCommit | TxnOffsetCommit
) -> ErrorCode:
    if isinstance(group, ConsumerGroup):
        return commits.check_commit(group, request, step.shard.topics)
    return _check_commit(group, request, transactional=isinstance(request, TxnOffsetCommit))


def _check_commit(group: Group, request: OffsetCommit | TxnOffsetCommit, *, transactional: bool) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ANSWERS[GroupState.DEAD].commit
    if request.generation_id < 0 and group.state is GroupState.EMPTY:
        return NONE
    if request.generation_id >= 0 or request.member_id or request.group_instance_id is not None:
        error = group.check_member(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
    elif not transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return NONE if transactional else ANSWERS[group.state].commit


def _write(
    step: StepContext,
    group: AnyOffsetGroup,
    request: OffsetCommit | TxnOffsetCommit,
    expires_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    verification: object = None,
) -> None:
    keys: list[TopicPartition] = []
    offsets: list[CommittedOffset] = []
    errors: list[ErrorCode] = []
    now_ms = step.now_ms
    for item in request.offsets:
        topic, partition, offset, leader_epoch, metadata, refused, topic_id = item
        error = _check_item(step, item) if metadata or refused else NONE
        errors.append(error)
        if not error:
            keys.append((topic, partition))
            kept_id = topic_id if expires_ms == -1 else ZERO_UUID  # the version with a retention has no id
            fields = (offset, leader_epoch, metadata or "", now_ms, expires_ms, kept_id)
            offsets.append(_tuple(CommittedOffset, fields))
    response = CommitResponse(tuple(errors))
    records = offset_records(group.group_id, keys, offsets)
    if not records:
        step.reply(request.request, response)
        step.shard.forget_if_unused(group)
        return
    commit = PlainCommitWrite(records, [(request, response)], group, tuple(keys), tuple(offsets))
    group.pending_commits.append(commit.keys)
    step.append(commit, producer_id, producer_epoch, verification)


def _check_item(step: StepContext, item: OffsetToCommit) -> ErrorCode:
    if item.refused:
        return item.refused
    metadata, limit = item.metadata or "", step.settings.offset_metadata_max_bytes
    # Kafka counts UTF-16 units here, whatever the setting is called.
    too_long = len(metadata) * 2 > limit and len(metadata.encode("utf-16-le", "surrogatepass")) > limit * 2
    if too_long or not fits(metadata):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return NONE


@dataclass(slots=True)
class CommitWrite(Write):
    group: AnyOffsetGroup
    keys: tuple[TopicPartition, ...]

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        self.settled_in(step.shard, error)

    def settled_in(self, shard: Shard, error: ErrorCode) -> None:
        self.group.pending_commits.remove(self.keys)
        if error:
            shard.forget_if_unused(self.group)
        elif shard.group_with_offsets(self.group.group_id) is None:
            # The group was dissolved meanwhile, but its offsets are there.
            shard.groups[self.group.group_id] = Group(self.group.group_id)

    def release(self, step: StepContext, error: ErrorCode) -> None:
        self.settled(step, error)
        ((request, response),) = self.answers
        if error:
            assert isinstance(response, CommitResponse)
            response = CommitResponse(tuple(e or error for e in response.errors))
        step.reply(request.request, response)


@dataclass(slots=True)
class PlainCommitWrite(CommitWrite):
    committed: tuple[CommittedOffset, ...]
    """What the records say, in their order; commits are a hot path, so the records are not decoded again."""

    def replay(self, durable: Durable, base_offset: int, producer_id: int) -> None:
        durable.apply_commit(self.group.group_id, self.keys, self.committed, base_offset, producer_id)


@dataclass(slots=True)
class LaidOutCommitWrite(CommitWrite):
    records: LaidOutRecords

    def replay(self, durable: Durable, base_offset: int, producer_id: int) -> None:
        assert producer_id == -1
        durable.apply_laid_out(self.records, base_offset)


# ---- fetch


def fetch_offsets(step: StepContext, request: OffsetFetch) -> None:
    assert request.group_id is not None
    durable = step.shard.durable
    consumer_group = durable.consumer_groups.get(request.group_id)
    error = commits.check_fetch(consumer_group, request) if consumer_group is not None else NONE
    if error:
        step.refuse(request, error)
        return
    unstable = unstable_offsets(step, request.group_id) if request.require_stable else set()
    committed = durable.offsets_of(request.group_id)
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topics is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in committed:
            by_topic.setdefault(topic, []).append(partition)
        wanted = by_topic.items()
    else:
        wanted = request.topics
    topics = []
    for topic, partitions in wanted:
        answers = []
        for partition in partitions:
            found = committed.get((topic, partition))
            if (topic, partition) in unstable:
                answers.append(FetchedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif found is None:
                answers.append(FetchedOffset(partition))
            else:
                offset, leader_epoch, metadata, _, _, topic_id = found.committed
                answers.append(FetchedOffset(partition, offset, leader_epoch, metadata, NONE, topic_id))
        topics.append((topic, tuple(answers)))
    step.reply(request.request, FetchResponse(NONE, request.group_id, tuple(topics)))


def unstable_offsets(step: StepContext, group_id: str) -> set[TopicPartition]:
    """Returns the partitions with a commit in a transaction that is open, or on its way to the log."""
    unstable = step.shard.durable.unstable(group_id)
    for write, producer_id in step.shard.writes.values():
        if producer_id != -1 and isinstance(write, CommitWrite) and write.group.group_id == group_id:
            unstable.update(write.keys)
    return unstable


# ---- delete


def delete_offsets(step: StepContext, request: OffsetDelete) -> None:
    group = step.shard.group_with_offsets(request.group_id or "")
    if group is None or (isinstance(group, Group) and group.state is GroupState.DEAD):
        step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if isinstance(group, Group) and group.state is not GroupState.EMPTY and not group.is_consumer_group:
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP)
        return
    held = held_offsets(step, group)
    tombstones: list[RecordToWrite] = []
    answers = []
    for topic, partitions in request.topics:
        subscribed = group.is_subscribed_to(topic)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else NONE
        answers.append((topic, tuple((p, error) for p in partitions)))
        tombstones += [
            offset_tombstone(group.group_id, topic, p)
            for p in partitions
            if not subscribed and (topic, p) in held
        ]
    before = step.shard.next_token
    if tombstones:
        step.append(Write(tuple(tombstones), []))
    step.reply_when_written(request, OffsetDeleteResponse(NONE, tuple(answers)), before=before)


def held_offsets(step: StepContext, group: AnyOffsetGroup) -> dict[TopicPartition, None]:
    """Returns every partition the group has an offset for: visible, on its way to the log, or in a transaction."""
    held: dict[TopicPartition, None] = dict.fromkeys(step.shard.durable.offsets_of(group.group_id))
    held.update(dict.fromkeys(group.pending_offsets))
    held.update(dict.fromkeys(sorted(step.shard.durable.unstable(group.group_id))))
    return held
