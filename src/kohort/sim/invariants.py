"""What must be true of a shard after every step, whatever happened."""

from __future__ import annotations

from collections import Counter

from kohort.coordinator.group import Group
from kohort.coordinator.history import EMPTY, LOST, RUNNING, STABLE
from kohort.coordinator.join import Replacement
from kohort.coordinator.offsets import Commit
from kohort.coordinator.records import GroupMetadata
from kohort.coordinator.replay import Durable
from kohort.coordinator.shard import Shard
from kohort.coordinator.state import State

REBALANCING = (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE)


class Broken(AssertionError):
    """An invariant does not hold; the message says which, where, and with which seed it comes again."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Broken(message)


def check_shard(shard: Shard) -> None:
    for group in shard.groups.values():
        check_group(shard, group)


def check_group(shard: Shard, group: Group) -> None:
    g = f"group {group.group_id} ({group.state.value}, generation {group.generation_id})"
    _check_membership(group, g)
    _check_waiting(shard, group, g)
    _check_timers(group, g)
    _check_history(shard, group, g)
    if group.state is State.STABLE and not any(
        getattr(write, "group", None) is group and not isinstance(write, Commit)
        for write, _ in shard.writes.values()
    ):
        require(
            same_group(shard.durable.groups.get(group.group_id), live_record(group)),
            f"{g} is Stable but the log says {shard.durable.groups.get(group.group_id)}",
        )


def live_record(group: Group) -> GroupMetadata:
    return group.as_record({m.member_id: m.assignment for m in group.members.values()})


def same_group(one: GroupMetadata | None, other: GroupMetadata | None) -> bool:
    """Equal but for the order of the members and the time of the last change of state."""
    if one is None or other is None:
        return one is other
    return one._replace(members=(), state_timestamp_ms=0) == other._replace(
        members=(), state_timestamp_ms=0
    ) and set(one.members) == set(other.members)


def _check_membership(group: Group, g: str) -> None:
    members = group.members
    require(all(k == m.member_id for k, m in members.items()), f"{g}: a member under another's id")
    static = {m.group_instance_id: m.member_id for m in members.values() if m.group_instance_id is not None}
    require(group.static_members == static, f"{g}: static members {group.static_members}, really {static}")
    votes = Counter(name for m in members.values() for name, _ in m.protocols)
    require(group.votes == votes, f"{g}: votes {group.votes}, really {dict(votes)}")
    require(not (set(group.pending_joins) & set(members)), f"{g}: a pending id is a member")
    if members:
        require(group.leader_id in members, f"{g}: the leader {group.leader_id} is not a member")
        require(len(members) in votes.values(), f"{g}: no protocol that all members support")
    if group.state in (State.EMPTY, State.DEAD):
        require(not members, f"{g} has members {list(members)}")
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        require(bool(members), f"{g} has no members")


def _check_waiting(shard: Shard, group: Group, g: str) -> None:
    joins = sum(m.awaiting_join is not None for m in group.members.values())
    syncs = [m.member_id for m in group.members.values() if m.awaiting_sync is not None]
    require(joins == group.awaiting_joins, f"{g}: {joins} wait to join, {group.awaiting_joins} counted")
    if joins and group.state is not State.PREPARING_REBALANCE:
        replaced = any(isinstance(w, Replacement) and w.group is group for w, _ in shard.writes.values())
        require(group.state is State.STABLE and replaced, f"{g}: a join is parked for ever")
    require(not syncs or group.state is State.COMPLETING_REBALANCE, f"{g}: {syncs} wait to sync for ever")
    require(group.pending_syncs <= set(group.members), f"{g}: strangers are expected to sync")
    if group.state is State.PREPARING_REBALANCE:
        complete = group.all_joined() and group.previous_state is not State.EMPTY
        require(not complete, f"{g}: all have joined, but the join does not complete")
    commits = Counter(
        key
        for write, _ in shard.writes.values()
        if isinstance(write, Commit) and write.group is group
        for key in write.keys
    )
    require(group.pending_offsets == commits, f"{g}: pending offsets are not the commits under way")


def _check_timers(group: Group, g: str) -> None:
    if group.state is State.PREPARING_REBALANCE:
        require(group.join_deadline_ms is not None, f"{g} waits for its members without a timer")
    if group.state is State.COMPLETING_REBALANCE and group.pending_syncs:
        require(group.sync_deadline_ms is not None, f"{g} waits for syncs without a timer")
    for member in group.members.values():
        session = member.session
        if session.timer_ms is None:
            require(member.needs_no_heartbeat(), f"{g}: {member.member_id} can never expire")
        else:
            require(session.timer_ms <= session.deadline_ms, f"{g}: {member.member_id} expires too late")
    for member_id, session in group.pending_joins.items():
        require(session.timer_ms is not None, f"{g}: the pending id {member_id} can never expire")


def _check_history(shard: Shard, group: Group, g: str) -> None:
    history = shard.histories.get(group.group_id)
    latest = history.latest if history else None
    running = latest is not None and latest.outcome == RUNNING
    require(running == (group.state in REBALANCING), f"{g}: the history says {latest}")
    if latest is None or latest.outcome == LOST:
        return
    if group.state in (State.STABLE, State.EMPTY):
        expected = STABLE if group.state is State.STABLE else EMPTY
        require(latest.outcome == expected, f"{g}: the history ended {latest.outcome}")
        require(latest.generation_after == group.generation_id, f"{g}: the history says {latest}")
    if latest.generation_after is not None:
        require(latest.generation_after == latest.generation_before + 1, f"{g}: the history says {latest}")


def check_twin(shard: Shard, twin: Durable) -> None:
    """The durable state of a shard is what its log says, no more and no less."""
    for name in ("groups", "offsets", "open_transactions"):
        ours, theirs = getattr(shard.durable, name), getattr(twin, name)
        require(ours == theirs, f"partition {shard.partition}: {name} are {ours}, a replay says {theirs}")
    for group_id in set(twin.groups) | set(twin.offsets):
        require(group_id in shard.groups, f"group {group_id} is in the log but not in the shard")
