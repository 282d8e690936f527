"""What a consumer reads (topics, a pattern, or partitions of its own choice) and its position in each partition.

All parts of a consumer share one `SubscriptionState` and read it freely; only the methods of this module write it.
The fetcher advances a position as records are handed out. Whoever else changes it (a seek, a reset) counts up
`PartitionState.seeks`, so that an answer to an older question is recognized as late.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from kohort.client.core.cluster import NO_NODE
from kohort.client.core.offset_reset import LATEST, AutoOffsetResetStrategy
from kohort.client.errors import IllegalState
from kohort.client.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition


class Mode(Enum):
    """How the partitions of a consumer are chosen."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "a SubscriptionPattern"
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read, the epoch of the record before it, and the leader at the time this was found out."""

    offset: int
    offset_epoch: int = -1
    leader_id: int = NO_NODE
    leader_epoch: int = -1


@dataclass(slots=True)
class PartitionState:
    """What is known of one assigned partition."""

    position: Position | None = None
    reset: AutoOffsetResetStrategy | None = None
    """A reset that is due. If there is neither this nor a position, the committed offset is looked up first."""
    validating: bool = False
    """Whether the position is being compared with the leader's log after a change of leader (KIP-320)."""
    paused: bool = False
    revoking: bool = False
    """Whether it is handed back and the callback has not run yet: nothing more is fetched or returned."""
    assigning: bool = False
    """Whether it is newly assigned and the callback, which may still seek, has not run yet."""
    asked_for: bool = False
    """Whether somebody waits for the position: in that callback, or before it."""
    seeks: int = 0
    retry_at_ms: int = 0
    """No reset or validation is sent before this time."""
    preferred_replica: int = NO_NODE
    preferred_until_ms: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1
    end_offset_known_ms: int = -1
    error: Exception | None = None
    """A corrupt batch; every poll raises it until a seek."""

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

    # --- the position ---------------------------------------------------------------------------------

    def seek(self, position: Position, *, validate: bool = False) -> None:
        """Moves to a place that somebody chose; whatever was under way for the old one is late from now on.

        With `validate` the position is compared with the leader's log before anything is read.
        """
        self.position, self.reset, self.validating = position, None, validate
        self._moved()

    def reset_to(self, reset: AutoOffsetResetStrategy) -> None:
        """Gives up the position: the strategy decides where to go on."""
        self.position, self.reset, self.validating = None, reset, False
        self._moved()

    def _moved(self) -> None:
        self.seeks += 1
        self.retry_at_ms = 0
        self.error = None
        self.preferred_replica = NO_NODE

    def advance(self, position: Position) -> None:
        """Moves past records that were handed out. Unlike a seek it makes nothing late."""
        self.position = position

    def ask_for_position(self) -> None:
        """Has the position looked up even while the partition is being assigned or revoked."""
        self.asked_for = True

    # --- resets and validation ------------------------------------------------------------------------

    def wait_until(self, retry_at_ms: int) -> None:
        """No reset or validation is sent before this time."""
        self.retry_at_ms = retry_at_ms

    def end_wait(self) -> None:
        """A reset or validation may be sent at once."""
        self.retry_at_ms = 0

    def leader_changed(self, leader_id: int, leader_epoch: int) -> None:
        """Another leader serves the position now; it is validated if both epochs are known."""
        self.update_leader(leader_id, leader_epoch)
        assert self.position is not None
        self.validating = self.position.offset_epoch >= 0 and leader_epoch >= 0
        self.preferred_replica = NO_NODE
        self.retry_at_ms = 0

    def update_leader(self, leader_id: int, leader_epoch: int) -> None:
        assert self.position is not None
        self.position = replace(self.position, leader_id=leader_id, leader_epoch=leader_epoch)

    def end_validation(self) -> None:
        """The position is good, or nobody can tell."""
        self.validating, self.retry_at_ms = False, 0

    # --- fetching -------------------------------------------------------------------------------------

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def stop(self, error: Exception) -> None:
        """Nothing more is fetched or returned until a seek; every poll raises the error."""
        self.error = error

    def prefer_replica(self, node_id: int, until_ms: int) -> None:
        """Reads from a replica that is nearer than the leader (KIP-392), for a while."""
        self.preferred_replica, self.preferred_until_ms = node_id, until_ms

    def prefer_leader(self) -> None:
        self.preferred_replica = NO_NODE

    def learn_offsets(
        self,
        now_ms: int,
        *,
        high_watermark: int = -1,
        log_start_offset: int = -1,
        last_stable_offset: int = -1,
    ) -> None:
        """Keeps what a fetch said about the log; -1 where it said nothing."""
        if high_watermark >= 0:
            self.high_watermark, self.end_offset_known_ms = high_watermark, now_ms
        if log_start_offset >= 0:
            self.log_start_offset = log_start_offset
        if last_stable_offset >= 0:
            self.last_stable_offset = last_stable_offset

    def learn_end_offset(self, offset: int, now_ms: int, *, read_committed: bool) -> None:
        """Keeps the end of the log as ListOffsets found it for this isolation level."""
        if read_committed:
            self.last_stable_offset = offset
        else:
            self.high_watermark = offset
        self.end_offset_known_ms = now_ms


@dataclass(slots=True)
class SubscriptionState:
    """What a consumer has subscribed to or assigned, and the state of every partition that it has now."""

    default_reset: AutoOffsetResetStrategy = LATEST
    mode: Mode = Mode.NONE
    topics: frozenset[str] = frozenset()
    """What this consumer wants: as given, or what the pattern matched last."""
    pattern: re.Pattern[str] | None = None
    broker_pattern: SubscriptionPattern | None = None
    """Only the broker knows what it matches: `topics` are those that are assigned."""
    group_topics: frozenset[str] = frozenset()
    """The topics of all members, as the leader knows them: it watches their partition counts."""
    partitions: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    """What is assigned now."""
    _iterated_to: Callable[[TopicPartition], Position | None] = lambda partition: None

    # --- what to read -----------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribes to these topics instead of those before; returns whether this changed anything."""
        wanted = frozenset(map(_named, topics))
        self._become(Mode.TOPICS)
        changed, self.topics = wanted != self.topics, wanted
        self.group_topics = wanted | self.group_topics
        return changed

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._become(Mode.PATTERN)
        self.pattern = pattern

    def subscribe_broker_pattern(self, pattern: SubscriptionPattern) -> None:
        self._become(Mode.BROKER_PATTERN)
        self.broker_pattern = pattern

    def match(self, topics: Iterable[str]) -> bool:
        """Matches the pattern against the topics there are; returns whether the result has changed.

        As in Kafka it must match the whole name: `orders-.*`, not `orders-`.
        """
        assert self.pattern is not None
        matched = frozenset(topic for topic in topics if self.pattern.fullmatch(topic))
        changed, self.topics = matched != self.topics, matched
        self.group_topics = matched | self.group_topics
        return changed

    def assign(self, partitions: Iterable[TopicPartition]) -> bool:
        """Takes the partitions that the user chose; returns whether this changed anything.

        Partitions that stay keep their positions.
        """
        wanted = [TopicPartition(_named(topic), partition) for topic, partition in partitions]
        for partition in wanted:
            if partition.partition < 0:
                raise ValueError(f"the number of a partition cannot be negative: {partition}")
        self._become(Mode.ASSIGNED)
        return self._replace(wanted)

    def unsubscribe(self) -> None:
        self.mode, self.pattern, self.broker_pattern = Mode.NONE, None, None
        self.topics = self.group_topics = frozenset()
        self.partitions = {}

    @property
    def is_group(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.mode in (Mode.TOPICS, Mode.PATTERN, Mode.BROKER_PATTERN)

    def _become(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise IllegalState(
                "subscribe(topics), subscribe(pattern) and assign(partitions) exclude each other: "
                f"this consumer uses {self.mode.value}; call unsubscribe() first"
            )
        self.mode = mode

    # --- what the group gives -----------------------------------------------------------------------

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> bool:
        """Takes the partitions that the group assigned; returns whether this changed anything.

        Partitions that stay keep their positions; new ones wait for the callback.
        """
        assert self.is_group
        before = set(self.partitions)
        changed = self._replace(partitions)
        if self.mode is Mode.BROKER_PATTERN:
            self.topics = frozenset(partition.topic for partition in self.partitions)
        for partition, state in self.partitions.items():
            if partition not in before:
                state.assigning = True
        return changed

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Has nothing more of these fetched or returned: the group takes them away, after the callback."""
        for partition in partitions:
            self.partitions[partition].revoking = True

    def drop_unannounced(self) -> frozenset[TopicPartition]:
        """Drops what was assigned and whose callback has not run; returns the partitions that the user knows of."""
        self.partitions = {p: state for p, state in self.partitions.items() if not state.assigning}
        return frozenset(self.partitions)

    def watch(self, topics: frozenset[str]) -> None:
        """Takes the topics of all members (for a member that does not lead: its own) as those to be watched."""
        self.group_topics = topics

    def add_matched(self, topics: frozenset[str]) -> None:
        """Adds topics that the leader has assigned by the pattern and that this member has not seen yet."""
        self.topics |= topics

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
        """Returns the state of an assigned partition; raises IllegalState if it is not assigned."""
        try:
            return self.partitions[partition]
        except KeyError:
            raise IllegalState(
                f"{TopicPartition._make(partition)} is not assigned to this consumer now; "
                "assignment() says what is, and it changes with every rebalance"
            ) from None

    def fetchable(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Yields the partitions that may be read now."""
        only = self.topics if self.is_group else None
        return (
            (p, state)
            for p, state in self.partitions.items()
            if state.is_fetchable and (only is None or p.topic in only)
        )

    def is_fetchable(self, partition: TopicPartition) -> bool:
        """Whether the partition may be read now.

        A partition of a topic that was unsubscribed from is ours until the next rebalance, and is not read.
        """
        return self.partitions[partition].is_fetchable and (
            not self.is_group or partition.topic in self.topics
        )

    @property
    def has_all_positions(self) -> bool:
        return all(state.has_position for state in self.partitions.values())

    # --- what the user was given ----------------------------------------------------------------------

    def follow_iteration(self, iterated_to: Callable[[TopicPartition], Position | None]) -> None:
        """From now on an iteration says where it stands in the partitions whose records it has not all given out."""
        self._iterated_to = iterated_to

    def user_position(self, partition: TopicPartition) -> Position | None:
        """Returns the position after what the user was given; None while there is none that is known to be good."""
        state = self.state(partition)
        return self._iterated_to(partition) or (state.position if state.has_position else None)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what may be committed: the next offset of each partition whose position is known to be good."""
        return {
            p: OffsetAndMetadata(
                at.offset,
                "",
                at.offset_epoch if at.offset_epoch >= 0 else None,
            )
            for p, state in self.partitions.items()
            if state.has_position and (at := self._iterated_to(p) or state.position) is not None
        }


def _named(topic: str) -> str:
    if not isinstance(topic, str) or not topic.strip():
        raise ValueError(f"a topic must have a name, not {topic!r}")
    return topic
