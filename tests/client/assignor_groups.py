"""Groups to divide partitions in: short words for worked examples, and Hypothesis strategies for all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from hypothesis import strategies as st

from kohort.client.group.assignors import Assignment, Assignor, Subscription, TopicPartitions
from kohort.client.types import TopicPartition

Owned = dict[str, set[TopicPartition]]


def wants(*topics: str, instance: str | None = None, rack: str | None = None) -> Subscription:
    return Subscription(topics, group_instance_id=instance, rack_id=rack)


def parts(text: str) -> tuple[TopicPartition, ...]:
    """`"a0 a1 b0"`: partitions 0 and 1 of topic a, and 0 of b."""
    return tuple(TopicPartition(word[0], int(word[1:])) for word in text.split())


def shown(division: Mapping[str, Assignment]) -> dict[str, str]:
    return {
        member_id: " ".join(f"{topic}{number}" for topic, number in assignment.partitions)
        for member_id, assignment in division.items()
    }


class Group(NamedTuple):
    cluster: TopicPartitions
    members: dict[str, Subscription]

    @property
    def partitions(self) -> list[TopicPartition]:
        """All of all topics that someone subscribes to."""
        wanted = {topic for subscription in self.members.values() for topic in subscription.topics}
        counts = self.cluster.counts
        return [TopicPartition(topic, p) for topic in wanted & counts.keys() for p in range(counts[topic])]

    def owning(self, owned: Mapping[str, Iterable[TopicPartition]], generation_id: int = 3) -> Group:
        """The same group, joining with what it owns; members that own nothing are new."""
        members = dict(self.members)
        for member_id in members.keys() & owned.keys():
            members[member_id] = replace(
                members[member_id],
                owned_partitions=tuple(sorted(owned[member_id])),
                generation_id=generation_id,
            )
        return self._replace(members=members)

    def remembering(self, assignor: type[Assignor], division: Mapping[str, Assignment]) -> Group:
        """The same group, joining with the user data that each member has since it got its assignment."""
        members = dict(self.members)
        for member_id in members.keys() & division.keys():
            mine = assignor()
            mine.on_assignment(division[member_id], 3)
            user_data = mine.subscription_user_data(frozenset(members[member_id].topics))
            members[member_id] = replace(members[member_id], user_data=user_data, generation_id=3)
        return self._replace(members=members)


TOPICS = ("a", "b", "c", "d")
RACKS = ("rack-1", "rack-2", "rack-3")


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None, racks: bool = True) -> Group:
    """`alike`: all members subscribe to the same topics, or may differ; by default either."""
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1))
    ids = draw(st.lists(st.text("abcxyz-012", min_size=1, max_size=6), min_size=1, max_size=8, unique=True))
    topics = st.sets(st.sampled_from((*TOPICS, "unknown")), min_size=1 if alike else 0)
    alike = draw(st.booleans()) if alike is None else alike
    same = draw(topics)
    rack = st.sampled_from((None, *RACKS)) if racks and draw(st.booleans()) else st.none()
    members = {
        member_id: Subscription(
            tuple(sorted(same if alike else draw(topics))),
            rack_id=draw(rack),
            group_instance_id=draw(st.sampled_from((None, f"instance-{len(ids) - place}"))),
        )
        for place, member_id in enumerate(ids)
    }
    all_partitions = [TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)]
    near = st.frozensets(st.sampled_from(RACKS), max_size=2)
    partition_racks = {tp: draw(near) for tp in all_partitions} if racks and draw(st.booleans()) else {}
    return Group(TopicPartitions(counts, partition_racks), members)
