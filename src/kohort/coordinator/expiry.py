"""What ends: offsets nobody needs any more, groups with nothing left, the offsets of a deleted topic."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.state import State
from kohort.coordinator.effects import DeleteResponse, RecordToWrite, SetTimer
from kohort.coordinator.events import DeleteGroup, TimerKind, TopicsDeleted
from kohort.coordinator.offsets import held_offsets, unstable_offsets
from kohort.coordinator.records import CommittedOffset, group_tombstone, offset_tombstone
from kohort.coordinator.turn import Turn, Write
from kohort.wire.errors import ErrorCode


def schedule(turn: Turn) -> None:
    deadline_ms = turn.now_ms + turn.settings.offsets_retention_check_interval_ms
    turn.shard.expire_deadline_ms = deadline_ms
    turn.effects.append(SetTimer(TimerKind.EXPIRE, "", "", deadline_ms))


def expire(turn: Turn) -> None:
    """One round over all groups; the next is scheduled."""
    tombstones: list[RecordToWrite] = []
    ended: list[tuple[Group, int]] = []
    for group in turn.shard.groups.values():
        if group.state is State.DEAD:
            continue
        nothing_left = _expire_offsets(turn, group, tombstones)
        if nothing_left and group.state is State.EMPTY:
            tombstones.append(group_tombstone(group.group_id))
            ended.append((group, group.state_timestamp_ms))
    for group, _ in ended:
        group.move_to(State.DEAD, turn.now_ms)
    if tombstones:
        turn.append(Deletion(tuple(tombstones), [], tuple(ended)))
    schedule(turn)


def _expire_offsets(turn: Turn, group: Group, tombstones: list[RecordToWrite]) -> bool:
    """Adds a tombstone for each offset whose time is over; True if the group then has none."""
    unstable = unstable_offsets(turn, group.group_id)
    pending = group.pending_offsets
    nothing_left = not unstable and not pending
    for key, positioned in turn.shard.durable.offsets_of(group.group_id).items():
        topic, partition = key
        if (
            not group.is_subscribed_to(topic)
            and key not in pending
            and key not in unstable
            and _is_over(turn, group, positioned.committed)
        ):
            tombstones.append(offset_tombstone(group.group_id, topic, partition))
        else:
            nothing_left = False
    return nothing_left


def _is_over(turn: Turn, group: Group, committed: CommittedOffset) -> bool:
    since_ms = committed.commit_timestamp_ms
    if group.protocol_type is not None:
        if group.state is State.EMPTY:
            since_ms = since_ms if group.state_timestamp_ms == -1 else group.state_timestamp_ms
        elif group.state is not State.STABLE or not group.is_consumer_group or group.topics is None:
            return False
    if committed.expire_timestamp_ms != -1:
        return turn.now_ms >= committed.expire_timestamp_ms
    return turn.now_ms - since_ms >= turn.settings.offsets_retention_ms


def topics_deleted(turn: Turn, event: TopicsDeleted) -> None:
    gone = frozenset(event.topics)
    tombstones = tuple(
        offset_tombstone(group.group_id, topic, partition)
        for group in turn.shard.groups.values()
        for topic, partition in held_offsets(turn, group)
        if topic in gone
    )
    if tombstones:
        turn.append(Write(tombstones, []))


def delete_group(turn: Turn, request: DeleteGroup) -> None:
    group = turn.shard.groups.get(request.group_id or "")
    if group is None or group.state is State.DEAD:
        turn.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
        return
    if group.state is not State.EMPTY:
        turn.refuse(request, ErrorCode.NON_EMPTY_GROUP)
        return
    tombstones = [offset_tombstone(group.group_id, t, p) for t, p in held_offsets(turn, group)]
    tombstones.append(group_tombstone(group.group_id))
    ended = ((group, group.state_timestamp_ms),)
    group.move_to(State.DEAD, turn.now_ms)
    response = DeleteResponse(ErrorCode.NONE, group.group_id)
    turn.append(Deletion(tuple(tombstones), [(request, response)], ended))


@dataclass(slots=True)
class Deletion(Write):
    """Groups that end with these tombstones: Dead until those are durable, but still shown as Empty."""

    ended: tuple[tuple[Group, int], ...]

    def settled(self, turn: Turn, error: ErrorCode) -> None:
        for group, state_timestamp_ms in self.ended:
            if error:
                group.move_to(State.EMPTY, turn.now_ms)
                group.state_timestamp_ms = state_timestamp_ms
            elif turn.shard.groups.get(group.group_id) is group:
                del turn.shard.groups[group.group_id]
                turn.shard.histories.pop(group.group_id, None)
