"""What a consumer reads: topics, a pattern or partitions of its own choice; and where it stands in each partition.

All other parts share this one object. A position is changed by the fetcher as records are handed out; whoever else
changes it (a seek, a reset) counts up `PartitionState.seeks`, so that answers to older questions are known as late.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from kohort.client.core.offset_reset import LATEST, AutoOffsetResetStrategy
from kohort.client.errors import IllegalState
from kohort.client.types import OffsetAndMetadata, TopicPartition


class Mode(Enum):
    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read; the epoch of the record before it; who led when this was found out."""

    offset: int
    offset_epoch: int = -1
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class PartitionState:
    position: Position | None = None
    reset: AutoOffsetResetStrategy | None = None
    """A reset that is due; None together with no position: the committed offset is to be looked up first."""
    validating: bool = False
    """The position is being compared with the leader's log after a change of leader (KIP-320)."""
    paused: bool = False
    revoking: bool = False
    """Handed back, but the callback has not run yet: nothing more is fetched or returned."""
    assigning: bool = False
    """Newly assigned, and the callback has not run yet: it may still seek."""
    asked_for: bool = False
    """Somebody waits for the position: in that callback, or before it."""
    seeks: int = 0
    retry_at_ms: int = 0
    """No reset or validation before this."""
    preferred_replica: int = -1
    preferred_until_ms: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1
    end_offset_known_ms: int = -1
    error: Exception | None = None
    """Raised by every poll until a seek: a corrupt batch."""

    @property
    def has_position(self) -> bool:
        return self.position is not None and self.reset is None and not self.validating

    @property
    def is_fetchable(self) -> bool:
        return (
            self.position is not None
            and self.reset is None
            and not (self.validating or self.paused or self.revoking or self.assigning)
            and self.error is None
        )

    def seek(self, position: Position) -> None:
        """To a place that somebody chose; whatever was under way for the old one is late from now on."""
        self.position, self.reset, self.validating = position, None, False
        self._moved()

    def reset_to(self, reset: AutoOffsetResetStrategy) -> None:
        self.position, self.reset, self.validating = None, reset, False
        self._moved()

    def _moved(self) -> None:
        self.seeks += 1
        self.retry_at_ms = 0
        self.error = None
        self.preferred_replica = -1


@dataclass(slots=True)
class SubscriptionState:
    default_reset: AutoOffsetResetStrategy = LATEST
    mode: Mode = Mode.NONE
    topics: frozenset[str] = frozenset()
    """What this consumer wants: as given, or what the pattern matched last."""
    pattern: re.Pattern[str] | None = None
    group_topics: frozenset[str] = frozenset()
    """Of all members, as the leader knows them: it watches their partition counts."""
    partitions: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    """What is assigned now."""
    held: Callable[[TopicPartition], Position | None] = lambda partition: None
    """Where an iteration stands in a partition, if it has polled more records than it has given to the user."""

    # --- what to read -----------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Whether this changed anything."""
        wanted = frozenset(map(_named, topics))
        self._become(Mode.TOPICS)
        changed, self.topics = wanted != self.topics, wanted
        self.group_topics = wanted | self.group_topics
        return changed

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._become(Mode.PATTERN)
        self.pattern = pattern

    def match(self, topics: Iterable[str]) -> bool:
        """The pattern against the topics there are; whether the result is another one than before.

        As in Kafka it must match the whole name: `orders-.*`, not `orders-`.
        """
        assert self.pattern is not None
        matched = frozenset(topic for topic in topics if self.pattern.fullmatch(topic))
        changed, self.topics = matched != self.topics, matched
        self.group_topics = matched | self.group_topics
        return changed

    def assign(self, partitions: Iterable[TopicPartition]) -> bool:
        """By hand. Partitions that stay keep their positions. Whether this changed anything."""
        wanted = [TopicPartition(_named(topic), partition) for topic, partition in partitions]
        for partition in wanted:
            if partition.partition < 0:
                raise ValueError(f"the number of a partition cannot be negative: {partition}")
        self._become(Mode.ASSIGNED)
        return self._replace(wanted)

    def unsubscribe(self) -> None:
        self.mode, self.pattern = Mode.NONE, None
        self.topics = self.group_topics = frozenset()
        self.partitions = {}

    @property
    def is_group(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    def _become(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise IllegalState(
                "subscribe(topics), subscribe(pattern) and assign(partitions) exclude each other: "
                f"this consumer uses {self.mode.value}; call unsubscribe() first"
            )
        self.mode = mode

    # --- what the group gives -----------------------------------------------------------------------

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> bool:
        """What the group gave. Partitions that stay keep their positions; new ones wait for the callback."""
        assert self.is_group
        before = set(self.partitions)
        changed = self._replace(partitions)
        for partition, state in self.partitions.items():
            if partition not in before:
                state.assigning = True
        return changed

    def assigned_callback_ran(self) -> None:
        for state in self.partitions.values():
            state.assigning = False

    def _replace(self, partitions: Iterable[TopicPartition]) -> bool:
        before = self.partitions
        self.partitions = {
            p: before[p] if p in before else PartitionState() for p in map(TopicPartition._make, partitions)
        }
        return self.partitions.keys() != before.keys()

    # --- one partition --------------------------------------------------------------------------------

    def state(self, partition: TopicPartition) -> PartitionState:
        """Raises IllegalState if it is not assigned."""
        try:
            return self.partitions[partition]
        except KeyError:
            raise IllegalState(
                f"{TopicPartition._make(partition)} is not assigned to this consumer now; "
                "assignment() says what is, and it changes with every rebalance"
            ) from None

    def fetchable(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """What to read from now."""
        only = self.topics if self.is_group else None
        return (
            (p, state)
            for p, state in self.partitions.items()
            if state.is_fetchable and (only is None or p.topic in only)
        )

    def is_fetchable(self, partition: TopicPartition) -> bool:
        """Whether it may be read now. Not what was unsubscribed from and is still ours until the next rebalance."""
        return self.partitions[partition].is_fetchable and (
            not self.is_group or partition.topic in self.topics
        )

    @property
    def has_all_positions(self) -> bool:
        return all(state.has_position for state in self.partitions.values())

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed: for each partition with a position that is known to be good, the next offset."""
        return {
            p: OffsetAndMetadata(
                at.offset,
                "",
                at.offset_epoch if at.offset_epoch >= 0 else None,
            )
            for p, state in self.partitions.items()
            if state.has_position and (at := self.held(p) or state.position) is not None
        }


def _named(topic: str) -> str:
    if not isinstance(topic, str) or not topic.strip():
        raise ValueError(f"a topic must have a name, not {topic!r}")
    return topic
