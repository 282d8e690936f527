"""What a test sees of a group and its members, as their coordinator has them, and what it may do to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kohort.broker.broker import Broker
from kohort.client.group.consumer_protocol import decode_assignment
from kohort.client.types import TopicPartition
from kohort.coordinator.classic import group as core
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.state import ConsumerMember
from kohort.coordinator.events import RebalanceAsked, SessionEnded
from kohort.coordinator.history import CLASSIC, CONSUMER, SHARE, Rebalance
from kohort.coordinator.settings import partition_for
from kohort.coordinator.shard import Shard
from kohort.coordinator.share.group import ShareGroup
from kohort.settings import nearest
from kohort.testing.waiting import wait_until, wait_until_async
from kohort.wire.consumer_protocol import BadConsumerProtocol

if TYPE_CHECKING:
    from kohort.testing.kafka import Kafka


class MemberView(NamedTuple):
    """A member of a group at one moment; its assignment is known once the group is Stable."""

    id: str
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    group_instance_id: str | None = None


class GroupSnapshot(NamedTuple):
    """A group of any type at one moment."""

    group_id: str
    type: str
    state: str
    members: tuple[MemberView, ...] = ()
    generation: int = -1
    leader: str | None = None
    protocol: str | None = None
    is_settled: bool = False
    """Whether it is Stable, and no member waits for its assignment."""
    is_empty: bool = True
    """Whether it has no members, and nobody is about to join."""


class GroupView:
    """A group by its id; each property asks the coordinator anew. A group that does not exist is Dead and empty."""

    def __init__(self, kafka: Kafka, group_id: str) -> None:
        self._kafka = kafka
        self.id = group_id

    def __repr__(self) -> str:
        return f"<group {self.id!r}>"

    @property
    def type(self) -> str:
        """The protocol that its members use: classic, consumer (KIP-848) or share."""
        return self._now().type

    @property
    def state(self) -> str:
        """The state as Kafka's tools print it.

        Empty, Stable or Dead; a classic group may be PreparingRebalance or CompletingRebalance, a consumer group
        Assigning or Reconciling.
        """
        return self._now().state

    @property
    def members(self) -> list[MemberView]:
        return list(self._now().members)

    @property
    def generation(self) -> int:
        """The generation of a classic group, the epoch of any other."""
        return self._now().generation

    @property
    def leader(self) -> str | None:
        """The id of the member that assigns the partitions; None if the broker does."""
        return self._now().leader

    @property
    def protocol(self) -> str | None:
        """The name of the assignor: of the one that the members agreed on, if the group is classic."""
        return self._now().protocol

    def committed(self) -> dict[TopicPartition, int]:
        """Returns the committed offset of each partition that has one."""
        return self._kafka.on_broker(lambda broker: _committed(broker, self.id))

    def lag(self) -> dict[TopicPartition, int]:
        """Returns how many records follow the committed offset of each partition."""
        return self._kafka.on_broker(lambda broker: _lag(broker, self.id))

    def why(self) -> list[Rebalance]:
        """Returns the last rebalances, the oldest first; `rebalance.sentence()` tells one in words."""

        def history(broker: Broker) -> list[Rebalance]:
            found = shard_of(broker, self.id)
            kept = found.histories.get(self.id) if found is not None else None
            return list(kept.entries) if kept is not None else []

        return self._kafka.on_broker(history)

    def rebalance(self, reason: str = "asked for by the test") -> None:
        """Does what `kafka.rebalance(group)` does."""
        self._kafka.rebalance(self.id, reason)

    # --- waiting -----------------------------------------------------------------------------------

    def wait_stable(self, members: int | None = None, timeout: float = 30) -> None:
        """Waits until all members have their assignments; `members` says how many there must be.

        Raises TimeoutError after `timeout` seconds. If the client runs on the test's own event loop, use
        `await group.wait_stable_async()` instead.
        """
        wait_until(lambda: self._is_stable(members), timeout, lambda: self._is_not(members, timeout))

    async def wait_stable_async(self, members: int | None = None, timeout: float = 30) -> None:
        await wait_until_async(
            lambda: self._is_stable(members), timeout, lambda: self._is_not(members, timeout)
        )

    def wait_empty(self, timeout: float = 30) -> None:
        """Waits until the group has no members; raises TimeoutError after `timeout` seconds."""
        wait_until(lambda: not self._has_members(), timeout, lambda: self._is_not(0, timeout))

    async def wait_empty_async(self, timeout: float = 30) -> None:
        await wait_until_async(lambda: not self._has_members(), timeout, lambda: self._is_not(0, timeout))

    def _has_members(self) -> bool:
        return not self._now().is_empty

    def _is_stable(self, members: int | None) -> bool:
        now = self._now()
        enough = bool(now.members) if members is None else len(now.members) == members
        return now.is_settled and enough

    def _is_not(self, members: int | None, timeout: float) -> str:
        wanted = "Stable" if members is None else f"Stable with {members} members" if members else "empty"
        ids = ", ".join(member.id for member in self.members) or "nobody"
        history = "\n  ".join(rebalance.sentence() for rebalance in self.why()[-5:]) or "no rebalance yet"
        return (
            f"after {timeout} s the group {self.id!r} is not {wanted}: it is {self.state} with {ids}. "
            f"What happened last:\n  {history}"
        )

    def _now(self) -> GroupSnapshot:
        dead = GroupSnapshot(self.id, CLASSIC, GroupState.DEAD.value)
        return self._kafka.on_broker(lambda broker: all_groups(broker).get(self.id, dead))


_AT_REST = (GroupState.EMPTY, GroupState.DEAD)


def shard_of(broker: Broker, group_id: str) -> Shard | None:
    """Returns the shard that a group lives in; None before the first group."""
    if not broker.has_groups:
        return None
    shards = broker.groups.runtime.shards
    return shards[partition_for(group_id, len(shards))]


def all_groups(broker: Broker) -> dict[str, GroupSnapshot]:
    """Returns the groups of all types, as their coordinator has them now; on the broker's thread."""
    if not broker.has_groups:
        return {}
    found: dict[str, GroupSnapshot] = {}
    for shard in broker.groups.runtime.shards:
        found |= {group_id: _classic(group) for group_id, group in shard.groups.items()}
        for group_id, group in shard.consumer_groups.items():
            assignor = group.preferred_assignor() or shard.settings.group_consumer_assignors[0]
            found[group_id] = _modern(broker, CONSUMER, group, assignor)
        for group_id, share_group in shard.share_groups.items():
            found[group_id] = _modern(broker, SHARE, share_group, "simple")
    return found


def ask_to_rebalance(broker: Broker, group_id: str, reason: str) -> None:
    """Makes a group rebalance; on the broker's thread. Raises ValueError if the group has no members."""
    known = all_groups(broker)
    if group_id not in known or not known[group_id].members:
        with_members = [other for other, group in known.items() if group.members]
        raise ValueError(f"there is no group {group_id!r} with members{nearest(group_id, with_members)}")
    _happens(broker, group_id, RebalanceAsked(group_id, reason))


def end_session(broker: Broker, name: str) -> None:
    """Ends the session of the member of this id or other name; on the broker's thread. ValueError lists the members."""
    everyone = [(group, member) for group in all_groups(broker).values() for member in group.members]
    found = [(group, member) for group, member in everyone if member.id == name]
    found = found or [(g, m) for g, m in everyone if name in (m.group_instance_id, m.client_id)]
    if len(found) != 1:
        ids = ", ".join(member.id for _, member in found or everyone) or "nobody at all"
        many = f"{len(found)} members are" if found else "no member is"
        raise ValueError(f"{many} called {name!r}; there is {ids}")
    group, member = found[0]
    _happens(broker, group.group_id, SessionEnded(group.group_id, member.id))


def _happens(broker: Broker, group_id: str, event: RebalanceAsked | SessionEnded) -> None:
    runtime = broker.groups.runtime
    runtime.handle(partition_for(group_id, len(runtime.shards)), event, broker.clock.steady_ms())
    broker.groups.fire_due()  # sets the timer for what this has begun


def _committed(broker: Broker, group_id: str) -> dict[TopicPartition, int]:
    found = shard_of(broker, group_id)
    offsets = found.durable.offsets_of(group_id) if found is not None else {}
    return {TopicPartition(*key): positioned.committed.offset for key, positioned in sorted(offsets.items())}


def _lag(broker: Broker, group_id: str) -> dict[TopicPartition, int]:
    lag = {}
    for (topic, index), offset in _committed(broker, group_id).items():
        partition = broker.partition(topic, index)
        if not isinstance(partition, int):
            lag[TopicPartition(topic, index)] = max(partition.high_watermark - offset, 0)
    return lag


def _classic(group: core.Group) -> GroupSnapshot:
    members = tuple(map(_member, group.members.values()))
    is_settled = group.state is GroupState.STABLE and not group.pending_syncs
    is_empty = not (group.members or group.pending_joins) and group.state in _AT_REST
    agreed = (group.generation_id, group.leader_id, group.protocol_name)
    return GroupSnapshot(group.group_id, CLASSIC, group.state.value, members, *agreed, is_settled, is_empty)


def _member(member: core.Member) -> MemberView:
    host = member.client_host.removeprefix("/")
    assignment = assigned_partitions(member.assignment)
    return MemberView(member.member_id, member.client_id, host, assignment, member.group_instance_id)


def _modern(
    broker: Broker, group_type: str, group: ConsumerGroup | ShareGroup, assignor: str
) -> GroupSnapshot:
    state = group.state_name()
    members = []
    for member in group.members.values():
        partitions = tuple(
            TopicPartition(topic.name, partition)
            for topic_id, assigned in member.assigned.items()
            if (topic := broker.store.topics_by_id.get(topic_id)) is not None
            for partition in assigned
        )
        instance_id = member.instance_id if isinstance(member, ConsumerMember) else None
        host = member.client_host.removeprefix("/")
        members.append(
            MemberView(member.member_id, member.client_id, host, tuple(sorted(partitions)), instance_id)
        )
    is_settled = state == "Stable" and not group.refresh_due
    return GroupSnapshot(
        group.group_id,
        group_type,
        state,
        tuple(members),
        group.group_epoch,
        None,
        assignor,
        is_settled,
        not members,
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Returns the partitions in a consumer's assignment; none if it is of another protocol and cannot be read."""
    try:
        return tuple(sorted(decode_assignment(assignment).partitions))
    except BadConsumerProtocol:
        return ()
