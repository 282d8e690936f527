"""Draft: the changes of one step to a consumer group. Each is applied at once, and all are written together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kohort.coordinator.classic.group import Group, from_record
from kohort.coordinator.classic.rebalance import Cause
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.records import ClassicGroupChange, records_of
from kohort.coordinator.consumer.state import (
    UNREVOKED,
    ConsumerGroupState,
    ConsumerMember,
    ConsumerState,
    PartitionMetadataChange,
    RegexChange,
)
from kohort.coordinator.history import CONSUMER, RUNNING
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
from kohort.coordinator.step_context import StepContext
from kohort.wire.errors import ErrorCode

__all__ = ["Cause", "ConsumerWrite", "Draft", "end_member", "end_of_group"]


class Draft:
    """The changes of one step. `write` begins the write; without changes it does nothing."""

    def __init__(self, step: StepContext, group: ConsumerGroup, first: Iterable[Change] = ()) -> None:
        """Takes changes that are already in the group, to be written before all others."""
        self.step = step
        self.group = group
        self.changes: list[Change] = list(first)
        self.cause: Cause | None = None

    def add(self, change: Change) -> None:
        change.apply_to(self.group)
        self.changes.append(change)

    def bump(self, cause: Cause) -> None:
        """Begins the next epoch of the group: its target must be computed anew."""
        group = self.group
        if self.cause is None:
            self.cause = cause
            begin_history(self.step, group, cause)
        self.add(GroupEpochChange(group.group_epoch + 1, self.topics_hash()))
        if group.has_partition_metadata:
            self.add(PartitionMetadataChange(False))

    def topics_hash(self) -> int:
        return metadata_hash(self.group.subscribed_topics(), self.step.shard.topics)

    def write(self) -> None:
        if self.changes:
            changes = tuple(self.changes)
            write = ConsumerWrite(records_of(self.group.group_id, changes), [], self.group, changes)
            write.begin(self.step)

    def abandon(self) -> None:
        """Takes all changes back: nothing is written."""
        revert_group(self.step, self.group.group_id)


# ---- the ends of members and groups


def end_member(draft: Draft, member: ConsumerMember) -> None:
    """Ends a member, and the regular expression that nobody subscribes to any more, but not its epoch."""
    member_id = member.member_id
    draft.add(AssignmentChange(member_id, None))
    draft.add(TargetChange(member_id, None))
    draft.add(SubscriptionChange(member_id, None))
    forget_timers(draft.group, member_id)


def end_unused_regex(draft: Draft, regex: str) -> None:
    group = draft.group
    if regex and not group.regex_subscribers[regex] and regex in group.regexes:
        draft.add(RegexChange(regex, None))


def end_of_group(state: ConsumerState) -> list[Change]:
    """Returns the tombstones of all records of a group, in the order on which Kafka insists."""
    known = dict.fromkeys((*state.members, *state.targets))
    changes: list[Change] = [AssignmentChange(member_id, None) for member_id in known]
    changes += [TargetChange(member_id, None) for member_id in known]
    changes.append(TargetEpochChange(None))
    changes += [SubscriptionChange(member_id, None) for member_id in known]
    changes += [RegexChange(regex, None) for regex in state.regexes]
    changes += [PartitionMetadataChange(False), GroupEpochChange(None)]
    return changes


def forget_timers(group: ConsumerGroup, member_id: str) -> None:
    group.sessions.pop(member_id, None)
    group.rebalance_deadlines.pop(member_id, None)
    group.join_deadlines.pop(member_id, None)
    group.sync_deadlines.pop(member_id, None)


# ---- the write


@dataclass(slots=True, eq=False)
class ConsumerWrite(ModernWrite):
    group: ConsumerGroup

    def replay(self, durable: Durable, base_offset: int, producer_id: int) -> None:
        group_id = self.group.group_id
        durable.apply_to_consumer_group(
            group_id, [change for change in self.changes if not isinstance(change, ClassicGroupChange)]
        )
        for change in self.changes:
            if isinstance(change, ClassicGroupChange):
                durable.apply_group(group_id, change.value)

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        ModernWrite.settled(self, step, error)
        group = self.group
        if not error and not group.in_flight and step.shard.consumer_groups.get(group.group_id) is group:
            tell_progress(step, group)

    def revert(self, step: StepContext, error: ErrorCode) -> None:
        revert_group(step, self.group.group_id)


def revert_group(step: StepContext, group_id: str) -> None:
    """Makes the live group what Durable says, plus what is still on its way to the log."""
    shard = step.shard
    state = ConsumerState()
    durable = shard.durable.consumer_groups.get(group_id)
    if durable is not None:
        state.take_over(durable)
    changes = later_changes(shard, ConsumerWrite, group_id)
    state.apply_all(change for change in changes if not isinstance(change, ClassicGroupChange))
    group = shard.consumer_groups.get(group_id)
    if state.exists:
        if group is None:
            classic = shard.groups.pop(group_id, None)
            group = shard.consumer_groups[group_id] = ConsumerGroup(group_id)
            if classic is not None:
                shard.answer_parked(step, classic, ErrorCode.REBALANCE_IN_PROGRESS)
                group.pending_commits = classic.pending_commits
        group.take_over(state)
        group.refresh_due = True
        resume_timers(step, group)
    elif group is not None:
        del shard.consumer_groups[group_id]
        _restore_classic(step, group)


def _restore_classic(step: StepContext, group: ConsumerGroup) -> None:
    """Brings a classic group back whose conversion could not be written, or that held only offsets."""
    shard, group_id = step.shard, group.group_id
    record = shard.durable.groups.get(group_id)
    if record is not None:
        classic = from_record(group_id, record)
    elif group.pending_commits or group_id in shard.durable.groups_with_offsets():
        classic = Group(group_id)
    else:
        shard.histories.pop(group_id, None)
        return
    classic.pending_commits = group.pending_commits
    shard.groups[group_id] = classic
    for member in classic.members.values():
        step.renew(classic, member)


def resume_timers(step: StepContext, group: ConsumerGroup) -> None:
    """Sets the timers that the members of a group need and do not have, after a load or a failed write."""
    for member_id in [*group.sessions, *group.rebalance_deadlines]:
        if member_id not in group.members:
            forget_timers(group, member_id)
    for member in group.members.values():
        if member.member_id not in group.sessions:
            group.renew(step, member.member_id, session_timeout_ms(step, group, member))
        watch_revocation(step, group, member)


def session_timeout_ms(step: StepContext, group: ConsumerGroup, member: ConsumerMember) -> int:
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return step.shard.config_of(group.group_id).consumer_session_timeout_ms


def watch_revocation(step: StepContext, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Sets the rebalance timer of a member that has to give up partitions; forgets it if it has none to give up.

    A member that uses the classic protocol is watched by its join and sync timers instead.
    """
    from kohort.coordinator.events import TimerKind

    member_id, watched = member.member_id, group.rebalance_deadlines
    if member.is_classic or member.state is not UNREVOKED:
        watched.pop(member_id, None)
    elif member_id not in watched or watched[member_id][1] != member.epoch:
        delay_ms = max(member.rebalance_timeout_ms, 0)
        watched[member_id] = (group.set_timer(step, TimerKind.REBALANCE, member_id, delay_ms), member.epoch)


# ---- for people


def begin_history(step: StepContext, group: ConsumerGroup, cause: Cause) -> None:
    history = step.history(group)
    if history.interrupted():
        step.tell(group)
    history.began(step.now_ms, group.group_epoch, cause.member_id, cause.reason, CONSUMER)
    step.tell(group)


def tell_progress(step: StepContext, group: ConsumerGroup) -> None:
    """Notes in the history how far the group is on its way to Stable, which its records now say."""
    history = step.history(group)
    current = history.latest
    if current is None or current.outcome != RUNNING:
        return
    state = group.state_name()
    names = [m.instance_id or m.member_id for m in group.members.values()]
    if current.generation_after != group.group_epoch and state != ConsumerGroupState.ASSIGNING:
        history.join_completed(step.now_ms, group.group_epoch, names)
        step.tell(group)
    if history.waits_for(_holding(step, group), step.now_ms):
        step.tell(group)
    if state == ConsumerGroupState.STABLE:
        history.stable(step.now_ms, assignments_by_name(group))
        step.tell(group)


def _holding(step: StepContext, group: ConsumerGroup) -> list[tuple[str, str]]:
    """Returns who has yet to give up what, in words."""
    found = []
    for member_id in group.revoking:
        member = group.members[member_id]
        named = sorted(
            f"{topic.name if topic is not None else 'a deleted topic'} {', '.join(map(str, sorted(partitions)))}"
            for topic, partitions in (
                (step.shard.topics.topic_by_id(t), partitions) for t, partitions in member.pending.items()
            )
        )
        found.append((member.instance_id or member_id, " and ".join(named)))
    return found


def assignments_by_name(group: ConsumerGroup) -> dict[str, bytes]:
    """Returns what each member owns, by instance id where there is one: only whether it changes counts."""
    return {
        m.instance_id or m.member_id: repr([(t, sorted(ps)) for t, ps in sorted(m.assigned.items())]).encode()
        for m in group.members.values()
    }
