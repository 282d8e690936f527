"""What a test sees of a group and its members, as their coordinator has them, and what it may do to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kohort.broker.broker import Broker
from kohort.client.group.consumer_protocol import decode_assignment
from kohort.client.types import TopicPartition
from kohort.coordinator.classic import group as core
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.events import RebalanceAsked, SessionEnded
from kohort.coordinator.history import Rebalance
from kohort.coordinator.settings import partition_for
from kohort.coordinator.shard import Shard
from kohort.settings import nearest
from kohort.testing.waiting import wait_until, wait_until_async
from kohort.wire.consumer_protocol import BadConsumerProtocol

if TYPE_CHECKING:
    from kohort.testing.kafka import Kafka

T = TypeVar("T")


class MemberView(NamedTuple):
    """A member of a group at one moment; its assignment is known once the group is Stable."""

    id: str
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    group_instance_id: str | None = None


class GroupView:
    """A group by its id; each property asks the coordinator anew. A group that does not exist is Dead and empty."""

    def __init__(self, kafka: Kafka, group_id: str) -> None:
        self._kafka = kafka
        self.id = group_id

    def __repr__(self) -> str:
        return f"<group {self.id!r}>"

    @property
    def state(self) -> str:
        """Empty, PreparingRebalance, CompletingRebalance, Stable or Dead, as Kafka's tools print it."""
        return self._ask(lambda group: group.state.value, GroupState.DEAD.value)

    @property
    def members(self) -> list[MemberView]:
        return self._ask(lambda group: [_member(m) for m in group.members.values()], [])

    @property
    def generation(self) -> int:
        return self._ask(lambda group: group.generation_id, -1)

    @property
    def leader(self) -> str | None:
        """The id of the member that assigns the partitions."""
        return self._ask(lambda group: group.leader_id, None)

    @property
    def protocol(self) -> str | None:
        """The name of the assignor that the members agreed on."""
        return self._ask(lambda group: group.protocol_name, None)

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
        return self._ask(lambda g: bool(g.members or g.pending_joins) or g.state not in _AT_REST, False)

    def _is_stable(self, members: int | None) -> bool:
        def stable(group: core.Group) -> bool:
            enough = bool(group.members) if members is None else len(group.members) == members
            return group.state is GroupState.STABLE and enough and not group.pending_syncs

        return self._ask(stable, False)

    def _is_not(self, members: int | None, timeout: float) -> str:
        wanted = "Stable" if members is None else f"Stable with {members} members" if members else "empty"
        ids = ", ".join(member.id for member in self.members) or "nobody"
        history = "\n  ".join(rebalance.sentence() for rebalance in self.why()[-5:]) or "no rebalance yet"
        return (
            f"after {timeout} s the group {self.id!r} is not {wanted}: it is {self.state} with {ids}. "
            f"What happened last:\n  {history}"
        )

    def _ask(self, question: Callable[[core.Group], T], otherwise: T) -> T:
        def answer(broker: Broker) -> T:
            found = shard_of(broker, self.id)
            group = found.groups.get(self.id) if found is not None else None
            return question(group) if group is not None else otherwise

        return self._kafka.on_broker(answer)


_AT_REST = (GroupState.EMPTY, GroupState.DEAD)


def shard_of(broker: Broker, group_id: str) -> Shard | None:
    """Returns the shard that a group lives in; None before the first group."""
    if not broker.has_groups:
        return None
    shards = broker.groups.runtime.shards
    return shards[partition_for(group_id, len(shards))]


def all_groups(broker: Broker) -> dict[str, core.Group]:
    if not broker.has_groups:
        return {}
    return {group_id: g for shard in broker.groups.runtime.shards for group_id, g in shard.groups.items()}


def ask_to_rebalance(broker: Broker, group_id: str, reason: str) -> None:
    """Makes a group rebalance; on the broker's thread. Raises ValueError if the group has no members."""
    known = all_groups(broker)
    if group_id not in known or not known[group_id].members:
        with_members = [other for other, group in known.items() if group.members]
        raise ValueError(f"there is no group {group_id!r} with members{nearest(group_id, with_members)}")
    _happens(broker, group_id, RebalanceAsked(group_id, reason))


def end_session(broker: Broker, name: str) -> None:
    """Ends the session of the member of this id or other name; on the broker's thread. ValueError lists the members."""
    everyone = [(group, member) for group in all_groups(broker).values() for member in group.members.values()]
    found = [(group, member) for group, member in everyone if member.member_id == name]
    found = found or [(g, m) for g, m in everyone if name in (m.group_instance_id, m.client_id)]
    if len(found) != 1:
        ids = ", ".join(member.member_id for _, member in found or everyone) or "nobody at all"
        many = f"{len(found)} members are" if found else "no member is"
        raise ValueError(f"{many} called {name!r}; there is {ids}")
    group, member = found[0]
    _happens(broker, group.group_id, SessionEnded(group.group_id, member.member_id))


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


def _member(member: core.Member) -> MemberView:
    host = member.client_host.removeprefix("/")
    assignment = assigned_partitions(member.assignment)
    return MemberView(member.member_id, member.client_id, host, assignment, member.group_instance_id)


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Returns the partitions in a consumer's assignment; none if it is of another protocol and cannot be read."""
    try:
        return tuple(sorted(decode_assignment(assignment).partitions))
    except BadConsumerProtocol:
        return ()
