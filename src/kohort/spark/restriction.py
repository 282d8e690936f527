"""Says which records are wanted, by topic, partition, offset and time; it travels to executors. Pure values.

Offsets, partitions and times are sets of integers (`NumberSet`), so that conditions can be joined and negated without
loss: what a set admits is exactly what the condition says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class NumberSet:
    """A set of 64-bit integers, as intervals with both ends included, in order, with gaps between them."""

    intervals: tuple[tuple[int, int], ...] = ((LOWEST, HIGHEST),)

    @staticmethod
    def of(numbers: Iterable[int]) -> NumberSet:
        """These numbers; what does not fit 64 bits is left out."""
        return _joined((number, number) for number in numbers if LOWEST <= number <= HIGHEST)

    @staticmethod
    def between(first: int, last: int) -> NumberSet:
        """The numbers from `first` to `last`, both included."""
        return _joined([(max(first, LOWEST), min(last, HIGHEST))])

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.intervals, (number, HIGHEST)) - 1
        return at >= 0 and number <= self.intervals[at][1]

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __and__(self, other: NumberSet) -> NumberSet:
        found: list[tuple[int, int]] = []
        mine, others = list(self.intervals[::-1]), list(other.intervals[::-1])
        while mine and others:
            first, last = max(mine[-1][0], others[-1][0]), min(mine[-1][1], others[-1][1])
            if first <= last:
                found.append((first, last))
            (mine if mine[-1][1] <= others[-1][1] else others).pop()
        return NumberSet(tuple(found))

    def complement(self) -> NumberSet:
        """All other numbers."""
        edges = [LOWEST - 1, *(edge for interval in self.intervals for edge in interval), HIGHEST + 1]
        return _joined((edges[n] + 1, edges[n + 1] - 1) for n in range(0, len(edges), 2))

    @property
    def is_everything(self) -> bool:
        return self.intervals == ((LOWEST, HIGHEST),)

    @property
    def first(self) -> int:
        return self.intervals[0][0]

    @property
    def last(self) -> int:
        return self.intervals[-1][1]

    def scaled_down(self, by: int) -> NumberSet:
        """The numbers n for which n * `by` is in this set."""
        return _joined((-(-first // by), last // by) for first, last in self._finite(by))

    def _finite(self, by: int) -> Iterable[tuple[int, int]]:
        """An interval without an end stays without one."""
        for first, last in self.intervals:
            yield first * (by if first == LOWEST else 1), last * by + by - 1 if last == HIGHEST else last


def _joined(intervals: Iterable[tuple[int, int]]) -> NumberSet:
    """Intervals in any order, of which some may be empty, touch or overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(each for each in intervals if each[0] <= each[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return NumberSet(tuple(found))


ALL, NONE = NumberSet(), NumberSet(())


@dataclass(frozen=True, slots=True)
class TopicCondition:
    """A condition on the name of a topic. Names are compared by code points, which is the order of their UTF-8."""

    relation: str
    """One of: in, <, <=, >, >=, starts, ends, contains."""
    values: tuple[str, ...]
    negated: bool = False

    def admits(self, topic: str) -> bool:
        return self._holds(topic) is not self.negated

    def _holds(self, topic: str) -> bool:
        if self.relation == "in":
            return topic in self.values
        return _RELATIONS[self.relation](topic, self.values[0])


_RELATIONS = {
    "<": str.__lt__,
    "<=": str.__le__,
    ">": str.__gt__,
    ">=": str.__ge__,
    "starts": str.startswith,
    "ends": str.endswith,
    "contains": str.__contains__,
}


@dataclass(frozen=True, slots=True)
class Restriction:
    """The records that are wanted; all conditions hold at once."""

    topics: tuple[TopicCondition, ...] = ()
    partitions: NumberSet = ALL
    offsets: NumberSet = ALL
    times: NumberSet = ALL
    """In milliseconds since 1970, as Kafka has them."""

    def __and__(self, other: Restriction) -> Restriction:
        return Restriction(
            self.topics + other.topics,
            self.partitions & other.partitions,
            self.offsets & other.offsets,
            self.times & other.times,
        )

    @property
    def is_everything(self) -> bool:
        return self == EVERYTHING

    @property
    def is_nothing(self) -> bool:
        """Whether no record can be wanted, whatever the topics are."""
        return not (self.partitions and self.offsets and self.times) or self.topic_names() == frozenset()

    def admits_topic(self, topic: str) -> bool:
        return all(condition.admits(topic) for condition in self.topics)

    def admits(self, topic: str, partition: int) -> bool:
        return partition in self.partitions and self.admits_topic(topic)

    def topic_names(self) -> frozenset[str] | None:
        """The topics that may be wanted, if the conditions name them; None if only the cluster can tell."""
        named = [each.values for each in self.topics if each.relation == "in" and not each.negated]
        if not named:
            return None
        return frozenset(name for name in named[0] if self.admits_topic(name))

    def rows_only(self) -> Restriction:
        """What is left of it once topics and partitions are chosen."""
        return replace(self, topics=(), partitions=ALL)


EVERYTHING = Restriction()
NOTHING = Restriction(partitions=NONE)


def pieces_within(wanted: NumberSet, start: int, end: int, near: int, most: int) -> list[tuple[int, int]]:
    """The parts of the range from `start` to before `end` that hold what is wanted, as starts and ends.

    Parts with at most `near` numbers between them are one part, and if there are more than `most`, all of them are one:
    a part costs a task.
    """
    if end <= start:
        return []
    parts: list[tuple[int, int]] = []
    for first, last in (wanted & NumberSet.between(start, end - 1)).intervals:
        if parts and first - parts[-1][1] <= near:
            parts[-1] = (parts[-1][0], last + 1)
        else:
            parts.append((first, last + 1))
    return [(parts[0][0], parts[-1][1])] if len(parts) > most else parts
