"""ShareDraft: the changes of one step to a share group. Each is applied at once, and all are written together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.coordinator.classic.rebalance import Cause
from kohort.coordinator.effects import ShareStateWanted
from kohort.coordinator.history import SHARE
from kohort.coordinator.modern.group import ModernWrite, later_changes
from kohort.coordinator.modern.state import (
    AssignmentChange,
    Change,
    GroupEpochChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
)
from kohort.coordinator.modern.topics import metadata_hash
from kohort.coordinator.replay import Durable
from kohort.coordinator.share.group import ShareGroup
from kohort.coordinator.share.records import records_of
from kohort.coordinator.share.state import ShareGroupMember, ShareState, StatePartitionsChange, StateTopics
from kohort.coordinator.step_context import StepContext
from kohort.wire.errors import ErrorCode

NOTHING_WANTED: StateTopics = {}


class ShareDraft:
    """The changes of one step. `write` begins the write; without changes it does nothing."""

    def __init__(self, step: StepContext, group: ShareGroup) -> None:
        self.step, self.group = step, group
        self.changes: list[Change] = []
        self.wanted: StateTopics = NOTHING_WANTED
        self.has_bumped = False

    def add(self, change: Change) -> None:
        change.apply_to(self.group)
        self.changes.append(change)

    def topics_hash(self) -> int:
        return metadata_hash(self.group.subscribers, self.step.shard.topics)

    def bump(self, cause: Cause) -> None:
        """Begins the next epoch of the group: its target must be computed anew."""
        group, step = self.group, self.step
        if not self.has_bumped:
            self.has_bumped = True
            history = step.history(group)
            if history.interrupted():
                step.tell(group)
            history.began(step.now_ms, group.group_epoch, cause.member_id, cause.reason, SHARE)
            step.tell(group)
        self.add(GroupEpochChange(group.group_epoch + 1, self.topics_hash()))

    def initialize(self, topics: StateTopics) -> None:
        """Notes that these partitions need state; it is asked for when that is durable."""
        self.add(StatePartitionsChange(self.group.state_partitions.begun(topics)))
        self.group.initializing_since.update(dict.fromkeys(topics, self.step.now_ms))
        self.wanted = topics

    def write(self) -> None:
        if self.changes:
            changes = tuple(self.changes)
            group = self.group
            write = ShareWrite(records_of(group.group_id, changes), [], group, changes, self.wanted)
            write.begin(self.step)


def end_share_member(draft: ShareDraft, member: ShareGroupMember) -> None:
    member_id = member.member_id
    draft.add(AssignmentChange(member_id, None))
    draft.add(TargetChange(member_id, None))
    draft.add(SubscriptionChange(member_id, None))
    draft.group.sessions.pop(member_id, None)


def end_of_share_group(state: ShareState) -> list[Change]:
    """Returns the tombstones of all records of a group, in the order on which Kafka insists."""
    known = dict.fromkeys((*state.members, *state.targets))
    changes: list[Change] = [AssignmentChange(member_id, None) for member_id in known]
    changes += [TargetChange(member_id, None) for member_id in known]
    changes.append(TargetEpochChange(None))
    changes += [SubscriptionChange(member_id, None) for member_id in known]
    changes += [StatePartitionsChange(None), GroupEpochChange(None)]
    return changes


@dataclass(slots=True, eq=False)
class ShareWrite(ModernWrite):
    group: ShareGroup
    wanted: StateTopics = field(default_factory=dict)

    def replay(self, durable: Durable, base_offset: int, producer_id: int) -> None:
        durable.apply_to_share_group(self.group.group_id, self.changes)

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        ModernWrite.settled(self, step, error)
        group = self.group
        if error or step.shard.share_groups.get(group.group_id) is not group:
            return
        if self.wanted:
            step.effects.append(
                ShareStateWanted(group.group_id, group.group_epoch, partitions_of(self.wanted))
            )
        if not group.in_flight:
            tell_progress(step, group)

    def revert(self, step: StepContext, error: ErrorCode) -> None:
        revert_share_group(step, self.group.group_id)


def partitions_of(topics: StateTopics) -> Mapping[bytes, frozenset[int]]:
    return {topic_id: topic.partitions for topic_id, topic in topics.items()}


def revert_share_group(step: StepContext, group_id: str) -> None:
    """Makes the live group what Durable says, plus what is still on its way to the log."""
    shard = step.shard
    state = ShareState()
    durable = shard.durable.share_groups.get(group_id)
    if durable is not None:
        state.take_over(durable)
    state.apply_all(later_changes(shard, ShareWrite, group_id))
    group = shard.share_groups.get(group_id)
    if not state.exists:
        if group is not None:
            del shard.share_groups[group_id]
            shard.histories.pop(group_id, None)
        return
    if group is None:
        group = shard.share_groups[group_id] = ShareGroup(group_id)
    group.take_over(state)
    group.refresh_due = True
    group.initializing_since.clear()
    resume_sessions(step, group)


def resume_sessions(step: StepContext, group: ShareGroup) -> None:
    """Begins the sessions that the members of a group need and do not have, after a load or a failed write."""
    for member_id in list(group.sessions):
        if member_id not in group.members:
            del group.sessions[member_id]
    timeout_ms = step.shard.config_of(group.group_id).share_session_timeout_ms
    for member_id in group.members:
        if member_id not in group.sessions:
            group.renew(step, member_id, timeout_ms)


def tell_progress(step: StepContext, group: ShareGroup) -> None:
    """Notes in the history that all members are at the group's epoch, which its records now say."""
    history = step.history(group)
    current = history.latest
    if current is None or current.outcome != "running" or group.assignment_epoch != group.group_epoch:
        return
    if all(member.epoch == group.group_epoch for member in group.members.values()):
        history.join_completed(step.now_ms, group.group_epoch, group.members)
        assignments = {m.member_id: repr(sorted(m.assigned.items())).encode() for m in group.members.values()}
        history.stable(step.now_ms, assignments)
        step.tell(group)
