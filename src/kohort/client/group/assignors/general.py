"""The sticky division where members subscribe to different topics: as even as the subscriptions allow.

1. Each member keeps what it owns and still subscribes to; with racks, only what is near.
2. Each other partition goes to the member with the fewest that subscribes to its topic; with racks, first to near ones.
3. Partitions move from members to others with at least two fewer, until none can; first only those that were
   given in step 2, if that may be enough. If this did not make the division more even, it is undone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kohort.client.group.assignors.claims import Settled
from kohort.client.group.assignors.movements import Movements
from kohort.client.group.assignors.racks import Racks
from kohort.client.group.consumer_protocol import Subscription
from kohort.client.types import TopicPartition

# The rounds end by themselves after a few. A partition that moves instead of another one may leave the division less
# even than before, so nothing proves that they always end.
MOST_ROUNDS = 1000


class GeneralDivision:
    """`given` is the result of `divide`."""

    def __init__(
        self,
        counts: Mapping[str, int],
        members: Mapping[str, Subscription],
        settled: Settled,
        racks: Racks,
    ) -> None:
        self._racks = racks
        self._settled = settled
        self._topics_of = {
            member_id: frozenset(topic for topic in subscription.topics if topic in counts)
            for member_id, subscription in members.items()
        }
        self._subscribers = Counter(topic for topics in self._topics_of.values() for topic in topics)
        scarcest_first = sorted(counts, key=lambda topic: (self._subscribers[topic], topic))
        self._partitions = [
            TopicPartition(topic, p) for topic in scarcest_first for p in range(counts[topic])
        ]
        self._owner: dict[TopicPartition, str] = {}
        self._sizes = dict.fromkeys(members, 0)
        self._ranking = sorted((0, member_id) for member_id in members)  # (size, member id)
        self._movements = Movements()

    @property
    def given(self) -> dict[str, list[TopicPartition]]:
        result: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self._sizes}
        for partition, member_id in self._owner.items():
            result[member_id].append(partition)
        return result

    def divide(self) -> None:
        gave_up = self._keep_owned()
        from_nothing = not self._owner
        new = [partition for partition in self._partitions if partition not in self._owner]
        self._give(new)
        owner, before = dict(self._owner), self._unevenness()
        if not gave_up:
            self._even_out(new)
        if self._even_out(self._partitions) and not from_nothing and self._unevenness() >= before:
            self._owner = owner

    def _keep_owned(self) -> bool:
        """Returns whether a member had to give up a partition that exists."""
        gave_up = False
        for member_id, partitions in self._settled.owned.items():
            for partition in partitions:
                if partition.topic in self._topics_of[member_id] and not self._racks.apart(
                    member_id, partition
                ):
                    self._owner[partition] = member_id
                    self._sizes[member_id] += 1
                else:
                    gave_up = True
        self._ranking = sorted((size, member_id) for member_id, size in self._sizes.items())
        return gave_up

    def _give(self, partitions: Sequence[TopicPartition]) -> None:
        if self._racks:
            partitions = [partition for partition in partitions if not self._give_near(partition)]
        for partition in partitions:
            self._set_owner(partition, self._smallest(partition.topic))

    def _give_near(self, partition: TopicPartition) -> bool:
        for _, member_id in self._ranking:
            if partition.topic in self._topics_of[member_id] and not self._racks.apart(member_id, partition):
                self._set_owner(partition, member_id)
                return True
        return False

    def _smallest(self, topic: str) -> str:
        """The member with the fewest partitions among those that subscribe to a topic."""
        topics_of = self._topics_of
        return next(member_id for _, member_id in self._ranking if topic in topics_of[member_id])

    def _set_owner(self, partition: TopicPartition, member_id: str) -> None:
        old = self._owner.get(partition)
        if old is not None:
            self._resize(old, -1)
        self._owner[partition] = member_id
        self._resize(member_id, 1)

    def _resize(self, member_id: str, change: int) -> None:
        size = self._sizes[member_id]
        del self._ranking[bisect_left(self._ranking, (size, member_id))]
        insort(self._ranking, (size + change, member_id))
        self._sizes[member_id] = size + change

    def _even_out(self, partitions: Iterable[TopicPartition]) -> bool:
        """Moves what makes the division more even. Returns whether anything moved."""
        shared = [partition for partition in partitions if self._subscribers[partition.topic] > 1]
        for finished_rounds in range(MOST_ROUNDS):
            if not self._one_round(shared):
                return finished_rounds > 0
        return True

    def _one_round(self, partitions: Sequence[TopicPartition]) -> bool:
        moved = False
        smallest: dict[str, str] = {}  # by topic; until something moves
        sizes = self._sizes
        for partition in partitions:
            topic, old = partition.topic, self._owner[partition]
            new = self._settled.earlier.get(partition)
            # Whoever had it in an older generation gets it back, if it still wants it.
            if new is None or topic not in self._topics_of[new] or sizes[old] <= sizes[new] + 1:
                new = smallest.get(topic)
                if new is None:
                    new = smallest[topic] = self._smallest(topic)
                if sizes[old] <= sizes[new] + 1:
                    continue
            moving = self._movements.instead_of(partition, old, new)
            self._movements.moved(moving, self._owner[moving], new)
            self._set_owner(moving, new)
            smallest.clear()
            moved = True
        return moved

    def _unevenness(self) -> int:
        """The sum of the differences in size between any two members that share a topic with another."""
        sizes = sorted(
            self._sizes[member_id]
            for member_id, topics in self._topics_of.items()
            if any(self._subscribers[topic] > 1 for topic in topics)
        )
        return sum(size * (2 * place - len(sizes) + 1) for place, size in enumerate(sizes))
