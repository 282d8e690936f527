"""Removes what has expired or was deleted: offsets past their retention, groups, the offsets of deleted topics."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.consumer.draft import ConsumerWrite, end_of_group
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.records import records_of
from kohort.coordinator.effects import DeleteResponse, RecordToWrite, Response, SetTimer
from kohort.coordinator.events import DeleteGroup, ShardRequest, TimerKind, TopicsDeleted
from kohort.coordinator.offsets import AnyOffsetGroup, held_offsets, unstable_offsets
from kohort.coordinator.records import CommittedOffset, group_tombstone, offset_tombstone
from kohort.coordinator.replay import Durable
from kohort.coordinator.share.admin import delete_share_group
from kohort.coordinator.step_context import StepContext, Write
from kohort.wire.errors import ErrorCode


def schedule(step: StepContext) -> None:
    deadline_ms = step.now_ms + step.settings.offsets_retention_check_interval_ms
    step.shard.expire_deadline_ms = deadline_ms
    step.effects.append(SetTimer(TimerKind.EXPIRE, "", "", deadline_ms))


def expire(step: StepContext) -> None:
    """Looks at all groups once for what has expired, and schedules the next round."""
    tombstones: list[RecordToWrite] = []
    ended: list[tuple[Group, int]] = []
    for group in step.shard.groups.values():
        if group.state is GroupState.DEAD:
            continue
        nothing_left = _expire_offsets(step, group, tombstones)
        if nothing_left and group.state is GroupState.EMPTY:
            tombstones.append(group_tombstone(group.group_id))
            ended.append((group, group.state_timestamp_ms))
    for group, _ in ended:
        group.move_to(GroupState.DEAD, step.now_ms)
    if tombstones:
        step.append(DeletionWrite(tuple(tombstones), [], tuple(ended), has_expired=True))
    for consumer_group in list(step.shard.consumer_groups.values()):
        _expire_consumer_group(step, consumer_group)
    schedule(step)


def _expire_consumer_group(step: StepContext, group: ConsumerGroup) -> None:
    tombstones: list[RecordToWrite] = []
    nothing_left = _expire_offsets(step, group, tombstones)
    step.shard.expired_offsets += len(tombstones)
    if nothing_left and not group.members and not group.in_flight:
        step.shard.expired_groups += 1
        _end_consumer_group(step, group, tombstones, [])
    elif tombstones:
        step.append(Write(tuple(tombstones), []))


def _end_consumer_group(
    step: StepContext,
    group: ConsumerGroup,
    tombstones: list[RecordToWrite],
    answers: list[tuple[ShardRequest, Response]],
) -> None:
    """Ends an empty group with its offsets; if that cannot be written it comes back."""
    changes = tuple(end_of_group(group))
    records = (*tombstones, *records_of(group.group_id, changes))
    del step.shard.consumer_groups[group.group_id]
    ConsumerGroupEnd(records, answers, group, changes).begin(step)


@dataclass(slots=True, eq=False)
class ConsumerGroupEnd(ConsumerWrite):
    """The end of a consumer group; its records are those of the group and of its offsets."""

    def replay(self, durable: Durable, base_offset: int, producer_id: int) -> None:
        Write.replay(self, durable, base_offset, producer_id)

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        ConsumerWrite.settled(self, step, error)
        if not error and step.shard.group_with_offsets(self.group.group_id) is None:
            step.shard.histories.pop(self.group.group_id, None)


def _expire_offsets(step: StepContext, group: AnyOffsetGroup, tombstones: list[RecordToWrite]) -> bool:
    """Adds a tombstone for each offset that has expired; True if the group has no other offsets."""
    unstable = unstable_offsets(step, group.group_id)
    pending = group.pending_offsets
    nothing_left = not unstable and not pending
    for key, positioned in step.shard.durable.offsets_of(group.group_id).items():
        topic, partition = key
        if (
            not group.is_subscribed_to(topic)
            and key not in pending
            and key not in unstable
            and _is_over(step, group, positioned.committed)
        ):
            tombstones.append(offset_tombstone(group.group_id, topic, partition))
        else:
            nothing_left = False
    return nothing_left


def _is_over(step: StepContext, group: AnyOffsetGroup, committed: CommittedOffset) -> bool:
    since_ms = committed.commit_timestamp_ms
    if isinstance(group, Group) and group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = since_ms if group.state_timestamp_ms == -1 else group.state_timestamp_ms
        elif group.state is not GroupState.STABLE or not group.is_consumer_group or group.topics is None:
            return False
    if committed.expire_timestamp_ms != -1:
        return step.now_ms >= committed.expire_timestamp_ms
    return step.now_ms - since_ms >= step.settings.offsets_retention_ms


def topics_deleted(step: StepContext, event: TopicsDeleted) -> None:
    gone = frozenset(event.topics)
    tombstones = tuple(
        offset_tombstone(group.group_id, topic, partition)
        for group in step.shard.groups_with_offsets()
        for topic, partition in held_offsets(step, group)
        if topic in gone
    )
    if tombstones:
        step.append(Write(tombstones, []))


def delete_group(step: StepContext, request: DeleteGroup) -> None:
    share_group = step.shard.share_groups.get(request.group_id or "")
    if share_group is not None:
        delete_share_group(step, share_group, request)
        return
    consumer_group = step.shard.consumer_groups.get(request.group_id or "")
    if consumer_group is not None:
        _delete_consumer_group(step, consumer_group, request)
        return
    group = step.shard.groups.get(request.group_id or "")
    if group is None or group.state is GroupState.DEAD:
        step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if group.state is not GroupState.EMPTY:
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP)
        return
    tombstones = [offset_tombstone(group.group_id, t, p) for t, p in held_offsets(step, group)]
    tombstones.append(group_tombstone(group.group_id))
    ended = ((group, group.state_timestamp_ms),)
    group.move_to(GroupState.DEAD, step.now_ms)
    response = DeleteResponse(ErrorCode.NONE, group.group_id)
    step.append(DeletionWrite(tuple(tombstones), [(request, response)], ended))


def _delete_consumer_group(step: StepContext, group: ConsumerGroup, request: DeleteGroup) -> None:
    if group.members:
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP)
        return
    tombstones = [offset_tombstone(group.group_id, t, p) for t, p in held_offsets(step, group)]
    response = DeleteResponse(ErrorCode.NONE, group.group_id)
    _end_consumer_group(step, group, tombstones, [(request, response)])


@dataclass(slots=True)
class DeletionWrite(Write):
    """Tombstones that end groups: these are Dead until the write is durable, but still shown as Empty."""

    ended: tuple[tuple[Group, int], ...]
    has_expired: bool = False

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        if self.has_expired and not error:
            step.shard.expired_groups += len(self.ended)
            step.shard.expired_offsets += len(self.records) - len(self.ended)
        for group, state_timestamp_ms in self.ended:
            if error:
                group.move_to(GroupState.EMPTY, step.now_ms)
                group.state_timestamp_ms = state_timestamp_ms
            elif step.shard.groups.get(group.group_id) is group:
                del step.shard.groups[group.group_id]
                step.shard.histories.pop(group.group_id, None)
