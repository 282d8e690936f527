"""The `uniform` assignor for groups whose members subscribe to different topics."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heapreplace

from kohort.coordinator.assignors.spec import GroupSpec, PartitionsByTopic

# Topics whose subscribers overlap disturb each other's balance. Each round about halves what is left of it.
_MAX_ROUNDS = 16


def assign_mixed(spec: GroupSpec) -> dict[str, PartitionsByTopic]:
    """Divides topic by topic: the least loaded subscribers get what is free, then the most loaded give to them."""
    division = _Division(spec)
    division.give_away_free_partitions()
    division.balance()
    return division.target()


class _Division:
    """How far the division has come: the owner of each partition, and the load of each member.

    Members are numbers, their places in the sorted order of member ids.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self.members = sorted(spec.members)
        self.load = [0] * len(self.members)
        self.subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in spec.subscribed_topics()}
        self.owners: dict[bytes, list[int | None]] = {}
        for topic_id in self.subscribers:
            self.owners[topic_id] = [None] * spec.partitions[topic_id]
        for number, member_id in enumerate(self.members):
            for topic_id in spec.members[member_id].topic_ids:
                if topic_id in self.subscribers:
                    self.subscribers[topic_id].append(number)
        for number, member_id in enumerate(self.members):
            self._keep_old(number, spec, member_id)
        # Topics with many partitions for each subscriber first: what comes later levels out what they leave.
        self.topics = sorted(self.subscribers, key=self._topic_order)

    def _keep_old(self, number: int, spec: GroupSpec, member_id: str) -> None:
        member = spec.members[member_id]
        for topic_id, indexes in member.assigned.items():
            if topic_id not in member.topic_ids or topic_id not in self.owners:
                continue
            owners = self.owners[topic_id]
            for index in indexes:
                if index < len(owners) and owners[index] is None:
                    owners[index] = number
                    self.load[number] += 1

    def _topic_order(self, topic_id: bytes) -> tuple[float, int, bytes]:
        count = len(self.subscribers[topic_id])
        return -len(self.owners[topic_id]) / count, count, topic_id

    def target(self) -> dict[str, PartitionsByTopic]:
        given: list[dict[bytes, list[int]]] = [{} for _ in self.members]
        for topic_id, owners in self.owners.items():
            for index, owner in enumerate(owners):
                if owner is not None:
                    given[owner].setdefault(topic_id, []).append(index)
        return {
            member_id: {topic_id: frozenset(indexes) for topic_id, indexes in mine.items()}
            for member_id, mine in zip(self.members, given, strict=True)
        }

    def _by_load(self, topic_id: bytes) -> list[int]:
        return sorted(self.subscribers[topic_id], key=lambda number: (self.load[number], number))

    def give_away_free_partitions(self) -> None:
        for topic_id in self.topics:
            owners = self.owners[topic_id]
            free = [index for index, owner in enumerate(owners) if owner is None]
            least_loaded = _LeastLoaded(self._by_load(topic_id), self.load)
            for index in free:
                owners[index] = number = least_loaded.take()
                self.load[number] += 1

    def balance(self) -> None:
        """Moves partitions until a whole round over the topics moved none."""
        topics = [topic_id for topic_id in self.topics if len(self.subscribers[topic_id]) > 1]
        unmoved = 0
        for _ in range(_MAX_ROUNDS):
            for topic_id in topics:
                if unmoved == len(topics):
                    return
                unmoved = 0 if self._balance_topic(topic_id) else unmoved + 1

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Moves partitions of a topic from its most to its least loaded subscribers until they differ by one."""
        by_load = self._by_load(topic_id)
        if self.load[by_load[-1]] - self.load[by_load[0]] <= 1:
            return False
        owners = self.owners[topic_id]
        owned: dict[int, list[int]] = {}
        for index, owner in enumerate(owners):
            assert owner is not None, "free partitions are given away first"
            owned.setdefault(owner, []).append(index)
        moved = False
        givers, takers = _MostLoaded(by_load, self.load, owned), _LeastLoaded(by_load, self.load)
        while True:
            giver, taker = givers.take(), takers.take()
            if giver is None or self.load[giver] - self.load[taker] <= 1:
                return moved
            owners[owned[giver].pop()] = taker
            self.load[giver] -= 1
            self.load[taker] += 1
            moved = True


class _LeastLoaded:
    """Names the member with the lowest load, time and again; each time it is one more for that member."""

    def __init__(self, by_load: Iterable[int], load: list[int]) -> None:
        self.heap = [(load[number], place, number) for place, number in enumerate(by_load)]
        heapify(self.heap)

    def take(self) -> int:
        load, place, number = self.heap[0]
        heapreplace(self.heap, (load + 1, place, number))
        return number


class _MostLoaded:
    """Names the member with the highest load that owns something of the topic; each time it is one less for it.

    Members are in ascending order of load. Those from `start` to `end` have the highest load, `level`, and are named
    from the right to the left. Once all of them have given one, they are joined by those that have that load too.
    """

    def __init__(self, by_load: list[int], load: list[int], owned: dict[int, list[int]]) -> None:
        self.members = list(by_load)
        self.load, self.owned = load, owned
        self.start = self.end = len(by_load)
        self.next = self.start - 1
        self.level = 0

    def take(self) -> int | None:
        """Returns None if nobody is left who owns something."""
        while True:
            if self.next < self.start:
                self._lower_level()
            if self.next < 0:
                return None
            place, self.next = self.next, self.next - 1
            number = self.members[place]
            if self.owned.get(number):
                return number
            self.end -= 1  # behind the end are those that have nothing to give
            self.members[place], self.members[self.end] = self.members[self.end], number

    def _lower_level(self) -> None:
        if self.start and self.end <= self.start:
            self.level = self.load[self.members[self.start - 1]]
        else:
            self.level -= 1
        while self.start and self.load[self.members[self.start - 1]] == self.level:
            self.start -= 1
        self.next = self.end - 1
