"""Remembers what moved during a division, so that two members do not exchange partitions of the same topic."""

from __future__ import annotations

from kohort.client.group.assignors.hash_order import HashedPartitions
from kohort.client.types import TopicPartition

Pair = tuple[str, str]  # the old and the new member


class Movements:
    """Moves by topic and pair of members. A partition that moved twice counts as moved once, from its first member."""

    __slots__ = ("_moved", "_pair_of")

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, Pair] = {}
        self._moved: dict[tuple[str, Pair], HashedPartitions] = {}

    def moved(self, partition: TopicPartition, old: str, new: str) -> None:
        pair = self._pair_of.pop(partition, None)
        if pair is not None:
            old = pair[0]
            earlier = self._moved[partition.topic, pair]
            earlier.remove(partition)
            if not earlier:
                del self._moved[partition.topic, pair]
            if old == new:
                return  # back where it came from
        self._pair_of[partition] = old, new
        self._moved.setdefault((partition.topic, (old, new)), HashedPartitions()).add(partition)

    def instead_of(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """What should move instead of `partition` from `old` to `new`: one of its topic that moved the other way."""
        pair = self._pair_of.get(partition)
        source = old if pair is None else pair[0]
        went_the_other_way = self._moved.get((partition.topic, (new, source)))
        return partition if went_the_other_way is None else went_the_other_way.first()
