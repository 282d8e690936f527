"""Partitions that moved while a division is being made, so that none moves there while a like one moves back."""

from __future__ import annotations

from kohort.client.group.assignors.hash_order import HashedPartitions
from kohort.client.types import TopicPartition

Pair = tuple[str, str]  # from whom, to whom


class Movements:
    """By topic and pair of members. A partition that moved twice counts as moved once, from its first member."""

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
        """What should move rather than `partition` from `old` to `new`: one of the topic that went the other way."""
        pair = self._pair_of.get(partition)
        source = old if pair is None else pair[0]
        went_the_other_way = self._moved.get((partition.topic, (new, source)))
        return partition if went_the_other_way is None else went_the_other_way.first()
