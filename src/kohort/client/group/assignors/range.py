"""The `range` assignor: cuts the partitions of each topic into as many ranges as it has members.

Members come in the same order for every topic, so that topics with the same number of partitions and the same
members are divided the same way: a program that joins two such topics by key finds both sides in one member.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice

from kohort.client.group.assignors.assignor import (
    Assignor,
    TopicPartitions,
    assignments,
    in_static_order,
    partition_counts,
    racks_matter,
)
from kohort.client.group.consumer_protocol import Assignment, Subscription
from kohort.client.types import TopicPartition


class RangeAssignor(Assignor):
    """`range`: Kafka's default. Where racks tell replicas apart, members get near ones first, within equal shares."""

    name = "range"

    def assign(self, cluster: TopicPartitions, members: Mapping[str, Subscription]) -> dict[str, Assignment]:
        given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        topics = _topics(cluster, members)
        if any(topic.racks_matter for topic in topics):
            _assign_by_rack(topics, given)
        for topic in topics:
            topic.assign_ranges(given)
        return assignments(given)


def _topics(cluster: TopicPartitions, members: Mapping[str, Subscription]) -> list[_Topic]:
    counts = partition_counts(cluster, members.values())
    subscribers: dict[str, dict[str, str | None]] = {topic: {} for topic in counts}
    for member_id in in_static_order(members):
        subscription = members[member_id]
        for topic in subscription.topics:
            if topic in subscribers:
                subscribers[topic][member_id] = subscription.rack_id or None
    return [_Topic(topic, count, subscribers[topic], cluster) for topic, count in counts.items()]


class _Topic:
    """How far the division of one topic has come."""

    def __init__(
        self, name: str, count: int, subscribers: dict[str, str | None], cluster: TopicPartitions
    ) -> None:
        self.name = name
        self.count = count
        self.subscribers = subscribers  # member id -> rack, in order
        self.share, self.larger_shares = divmod(count, len(subscribers))
        self.taken: dict[str, int] = dict.fromkeys(subscribers, 0)
        self.free = [True] * count
        self.racks: list[frozenset[str]] = []
        member_racks = {rack for rack in subscribers.values() if rack is not None}
        if member_racks:
            no_rack: frozenset[str] = frozenset()
            self.racks = [cluster.racks.get(TopicPartition(name, p), no_rack) for p in range(count)]
        self.racks_matter = bool(member_racks) and racks_matter(member_racks, self.racks)

    def room(self, member_id: str) -> int:
        """How many more partitions a member may get."""
        return max(0, self.share + (self.larger_shares > 0) - self.taken[member_id])

    def give(self, member_id: str, partitions: list[int], given: dict[str, list[TopicPartition]]) -> None:
        self.taken[member_id] += len(partitions)
        if self.taken[member_id] > self.share:
            self.larger_shares -= 1
        for partition in partitions:
            self.free[partition] = False
            given[member_id].append(TopicPartition(self.name, partition))

    def assign_ranges(self, given: dict[str, list[TopicPartition]]) -> None:
        """Gives away everything that is still free."""
        free = self._free_in(None)
        for member_id in self.subscribers:
            self._give_next(member_id, free, given)

    def assign_ranges_by_rack(self, given: dict[str, list[TopicPartition]]) -> None:
        """Gives away what is free and has a replica in the member's rack; a member without a rack takes any."""
        # One iterator per rack: what one member of a rack passed over was taken, or is not in the rack.
        walks = {rack: self._free_in(rack) for rack in set(self.subscribers.values())}
        for member_id, rack in self.subscribers.items():
            self._give_next(member_id, walks[rack], given)

    def _give_next(self, member_id: str, free: Iterator[int], given: dict[str, list[TopicPartition]]) -> None:
        partitions = list(islice(free, self.room(member_id)))
        if partitions:
            self.give(member_id, partitions, given)

    def _free_in(self, rack: str | None) -> Iterator[int]:
        for partition in range(self.count):
            if self.free[partition] and (rack is None or rack in self.racks[partition]):
                yield partition


def _assign_by_rack(topics: list[_Topic], given: dict[str, list[TopicPartition]]) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
    for topic in topics:
        if topic.racks:
            alike.setdefault((tuple(topic.subscribers), topic.count), []).append(topic)
    for group in alike.values():
        if len(group) > 1:
            _assign_together_by_rack(group, given)
        elif group[0].racks_matter:
            group[0].assign_ranges_by_rack(given)


def _assign_together_by_rack(group: list[_Topic], given: dict[str, list[TopicPartition]]) -> None:
    """Gives partition n of all these topics to one member that is near to each of them, or to nobody yet."""
    first = group[0]  # all topics of the group progress in step with it
    place = {member_id: place for place, member_id in enumerate(first.subscribers)}
    waiting: dict[str | None, deque[str]] = {}
    for member_id, rack in first.subscribers.items():
        waiting.setdefault(rack, deque()).append(member_id)
    for partition in range(first.count):
        near = frozenset.intersection(*(topic.racks[partition] for topic in group))
        heads = []
        for rack in (None, *near):
            queue = waiting.get(rack, deque())
            while queue and not first.room(queue[0]):
                queue.popleft()
            heads += list(islice(queue, 1))
        if heads:
            member_id = min(heads, key=place.__getitem__)
            for topic in group:
                topic.give(member_id, [partition], given)
