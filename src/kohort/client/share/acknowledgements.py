"""What a consumer says about records that a share group has given it: accepted, to be given to others, useless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kohort.client.types import TopicPartition

GAP = 0
"""The type of an acquired offset at which there is no record for users."""

LONG_RUN = 10
"""So many offsets of one type in a row are said as a range; shorter runs next to each other as one type per offset."""


class AcknowledgeType(IntEnum):
    """What became of a record: done, to be delivered again, never again, or still being worked on."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class TopicIdPartition(NamedTuple):
    """A partition with the id of its topic: a topic that is made again under its name is another one."""

    topic_id: bytes
    topic: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class AcknowledgedRun(NamedTuple):
    """A range of offsets as requests say it: one type for all of it, or one for each offset."""

    first_offset: int
    last_offset: int
    types: list[int]


@dataclass(slots=True)
class Acknowledgements:
    """What is said of one partition: a type for each record's offset, and ranges in which there is no record."""

    types: dict[int, int] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.types or self.gaps)

    def __len__(self) -> int:
        return len(self.types) + sum(last - first + 1 for first, last in self.gaps)

    @property
    def has_renewals(self) -> bool:
        return AcknowledgeType.RENEW in self.types.values()

    def merge(self, other: Acknowledgements) -> None:
        """Adds others; where both say something of an offset, the others hold."""
        self.types.update(other.types)
        self.gaps += other.gaps

    def ranges(self) -> list[AcknowledgedRun]:
        """Returns them as requests say them, in the order of their offsets."""
        if self.types and not self.gaps and len(kinds := set(self.types.values())) == 1:
            first, last = min(self.types), max(self.types)
            if last - first + 1 == len(self.types):  # the usual case: all records of a poll were accepted
                return [AcknowledgedRun(first, last, [int(*kinds)])]
        found: list[AcknowledgedRun] = []
        for first, last, kind in _runs(self._spans()):
            size = last - first + 1
            if (
                found
                and size < LONG_RUN
                and found[-1].last_offset == first - 1
                and len(found[-1].types) == found[-1].last_offset - found[-1].first_offset + 1
            ):
                before = found.pop()
                found.append(AcknowledgedRun(before.first_offset, last, [*before.types, *[int(kind)] * size]))
            else:
                found.append(AcknowledgedRun(first, last, [int(kind)] * (size if size < LONG_RUN else 1)))
        return [_shortest(each) for each in found]

    def _spans(self) -> list[tuple[int, int, int]]:
        of_records = [(offset, offset, kind) for offset, kind in self.types.items()]
        return sorted([*of_records, *((first, last, GAP) for first, last in self.gaps)])


def _runs(spans: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Joins neighbours of one type."""
    current: tuple[int, int, int] | None = None
    for first, last, kind in spans:
        if current is not None and current[2] == kind and current[1] == first - 1:
            current = current[0], last, kind
            continue
        if current is not None:
            yield current
        current = first, last, kind
    if current is not None:
        yield current


def _shortest(said: AcknowledgedRun) -> AcknowledgedRun:
    return said._replace(types=said.types[:1]) if len(set(said.types)) == 1 else said
