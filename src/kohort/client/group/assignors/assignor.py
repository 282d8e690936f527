"""Assignor: the base class of what divides partitions among the members of a group; users subclass it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from kohort.client.group.consumer_protocol import Assignment, Subscription
from kohort.client.types import TopicPartition


class RebalanceProtocol(Enum):
    """How members give partitions up.

    EAGER: a member gives up all it owns before it joins. COOPERATIVE: only what moves, and after the sync.
    """

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """What the leader knows of the topics: how many partitions each has, and the racks of their replicas."""

    counts: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)


class Assignor:
    """Divides partitions among the members of a group.

    A subclass gives a `name` (members of a group agree on one by it) and `assign`; the rest where it needs it:

        class Alphabetical(Assignor):
            name = "alphabetical"

            def assign(self, cluster, members):
                first, *others = sorted(members)
                everything = [TopicPartition(t, p) for t, n in cluster.counts.items() for p in range(n)]
                return {first: Assignment(tuple(everything))} | {other: Assignment() for other in others}
    """

    name: str = ""
    version: int = 0
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Bytes that this member sends to the leader along with its subscription to `topics`."""
        return None

    def assign(self, cluster: TopicPartitions, members: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Returns what each member gets, by member id, for every member. Called in the leader."""
        raise NotImplementedError(f"{type(self).__name__} must define assign(cluster, members)")

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Called in every member with what it got, before the user's own callbacks."""


def partition_counts(cluster: TopicPartitions, members: Iterable[Subscription]) -> dict[str, int]:
    """The topics that someone subscribes to and that exist, sorted, with their partition counts."""
    wanted = {topic for subscription in members for topic in subscription.topics}
    return {topic: cluster.counts[topic] for topic in sorted(wanted) if cluster.counts.get(topic, 0) > 0}


def in_static_order(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids, static members first and by their instance id: it outlives a restart, the member id does not."""

    def order(member_id: str) -> tuple[bool, str, str]:
        instance = members[member_id].group_instance_id
        return instance is None, instance or "", member_id

    return sorted(members, key=order)


def racks_matter(member_racks: set[str], partition_racks: Iterable[frozenset[str]]) -> bool:
    """Whether members are matched to replicas by rack. They are not if all partitions are in the same racks."""
    each = set(partition_racks)
    everywhere: frozenset[str] = frozenset().union(*each)
    return not member_racks.isdisjoint(everywhere) and each != {everywhere}


def assignments(given: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    """A division as assignments, sorted so that the same division gives the same bytes."""
    return {member_id: Assignment(tuple(sorted(partitions))) for member_id, partitions in given.items()}
