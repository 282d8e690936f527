"""The invariants of a shard: what must be true after every step."""

from __future__ import annotations

from collections import Counter

from kohort.coordinator.classic.group import Group
from kohort.coordinator.classic.join import ReplacementWrite
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.history import EMPTY, LOST, RUNNING, STABLE
from kohort.coordinator.offsets import CommitWrite
from kohort.coordinator.replay import Durable
from kohort.coordinator.shard import Shard, ShardStatus
from kohort.wire.messages.group_metadata_value import GroupMetadataValue

REBALANCING = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class Broken(AssertionError):
    """An invariant does not hold; the message says which, where, and with which seed it comes again."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Broken(message)


def check_shard(shard: Shard) -> None:
    for group in shard.groups.values():
        check_group(shard, group)
    if shard.status is ShardStatus.ACTIVE:
        for group_id in (*shard.durable.groups, *shard.durable.groups_with_offsets()):
            if group_id not in shard.groups:
                raise Broken(f"group {group_id} is in the log but not in the shard")


def check_group(shard: Shard, group: Group) -> None:
    g = f"group {group.group_id} ({group.state.value}, generation {group.generation_id})"
    _check_membership(group, g)
    _check_waiting(shard, group, g)
    _check_timers(group, g)
    _check_history(shard, group, g)
    if (
        group.state is GroupState.STABLE
        and not any(
            getattr(write, "group", None) is group and not isinstance(write, CommitWrite)
            for write, _ in shard.writes.values()
        )
        and not same_group(shard.durable.groups.get(group.group_id), live_record(group))
    ):
        raise Broken(f"{g} is Stable but the log says {shard.durable.groups.get(group.group_id)}")


def live_record(group: Group) -> GroupMetadataValue:
    return group.as_record({m.member_id: m.assignment for m in group.members.values()})


def same_group(one: GroupMetadataValue | None, other: GroupMetadataValue | None) -> bool:
    """Whether two groups are equal but for the order of members and the time of the last change of state."""
    if one is None or other is None:
        return one is other
    return one._replace(members=(), current_state_timestamp_ms=0) == other._replace(
        members=(), current_state_timestamp_ms=0
    ) and set(one.members) == set(other.members)


def _check_membership(group: Group, g: str) -> None:
    members = group.members
    if not all(k == m.member_id for k, m in members.items()):
        raise Broken(f"{g}: a member under another's id")
    static = {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id is not None}
    if group.static_members != static:
        raise Broken(f"{g}: static members {group.static_members}, really {static}")
    votes = Counter(name for m in members.values() for name, _ in m.protocols)
    if group.votes != votes:
        raise Broken(f"{g}: votes {group.votes}, really {dict(votes)}")
    if set(group.pending_joins) & set(members):
        raise Broken(f"{g}: a pending id is a member")
    if members:
        if group.leader_id not in members:
            raise Broken(f"{g}: the leader {group.leader_id} is not a member")
        if len(members) not in votes.values():
            raise Broken(f"{g}: no protocol that all members support")
    if group.state in (GroupState.EMPTY, GroupState.DEAD) and members:
        raise Broken(f"{g} has members {list(members)}")
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE) and not members:
        raise Broken(f"{g} has no members")


def _check_waiting(shard: Shard, group: Group, g: str) -> None:
    joins = sum(m.awaiting_join is not None for m in group.members.values())
    syncs = [m.member_id for m in group.members.values() if m.awaiting_sync is not None]
    if joins != group.awaiting_joins:
        raise Broken(f"{g}: {joins} wait to join, {group.awaiting_joins} counted")
    if joins and group.state is not GroupState.PREPARING_REBALANCE:
        replaced = any(isinstance(w, ReplacementWrite) and w.group is group for w, _ in shard.writes.values())
        if not (group.state is GroupState.STABLE and replaced):
            raise Broken(f"{g}: a join is parked for ever")
    if syncs and group.state is not GroupState.COMPLETING_REBALANCE:
        raise Broken(f"{g}: {syncs} wait to sync for ever")
    if not group.pending_syncs <= set(group.members):
        raise Broken(f"{g}: strangers are expected to sync")
    all_joined = joins == len(group.members) and not group.pending_joins
    delayed = group.previous_state is GroupState.EMPTY
    if group.state is GroupState.PREPARING_REBALANCE and all_joined and not delayed:
        raise Broken(f"{g}: all have joined, but the join does not complete")
    commits = Counter(
        key
        for write, _ in shard.writes.values()
        if isinstance(write, CommitWrite) and write.group is group
        for key in write.keys
    )
    if Counter(key for keys in group.pending_commits for key in keys) != commits:
        raise Broken(f"{g}: pending offsets are not the commits under way")


def _check_timers(group: Group, g: str) -> None:
    if group.state is GroupState.PREPARING_REBALANCE and group.join_deadline_ms is None:
        raise Broken(f"{g} waits for its members without a timer")
    awaits_syncs = group.state is GroupState.COMPLETING_REBALANCE and group.pending_syncs
    if awaits_syncs and group.sync_deadline_ms is None:
        raise Broken(f"{g} waits for syncs without a timer")
    for member in group.members.values():
        session = member.session
        if session.timer_ms is None:
            if not member.needs_no_heartbeat():
                raise Broken(f"{g}: {member.member_id} can never expire")
        elif session.timer_ms > session.deadline_ms:
            raise Broken(f"{g}: {member.member_id} expires too late")
    for member_id, session in group.pending_joins.items():
        if session.timer_ms is None:
            raise Broken(f"{g}: the pending id {member_id} can never expire")


def _check_history(shard: Shard, group: Group, g: str) -> None:
    history = shard.histories.get(group.group_id)
    latest = history.latest if history else None
    running = latest is not None and latest.outcome == RUNNING
    if running != (group.state in REBALANCING):
        raise Broken(f"{g}: the history says {latest}")
    if latest is None or latest.outcome == LOST:
        return
    if group.state in (GroupState.STABLE, GroupState.EMPTY):
        expected = STABLE if group.state is GroupState.STABLE else EMPTY
        if latest.outcome != expected:
            raise Broken(f"{g}: the history ended {latest.outcome}")
        if latest.generation_after != group.generation_id:
            raise Broken(f"{g}: the history says {latest}")
    if latest.generation_after is not None and latest.generation_after != latest.generation_before + 1:
        raise Broken(f"{g}: the history says {latest}")


def check_twin(shard: Shard, twin: Durable) -> None:
    """Checks that the durable state of a shard is what a replay of its log says, no more and no less."""
    for name in ("groups", "offsets", "open_transactions"):
        ours, theirs = getattr(shard.durable, name), getattr(twin, name)
        if ours != theirs:
            raise Broken(f"partition {shard.partition}: {name} are {ours}, a replay says {theirs}")
