"""The client's half of fetch sessions (KIP-227): a broker remembers what is read, so that a fetch names only changes.

There is one `FetchSessionHandler` per node. `plan` says what to send for what is wanted now. `accept` checks whether
the answer fits what was asked, and says how the session goes on. If it does not fit, a full fetch begins a new session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.client.config import ConsumerConfig
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kohort.wire.struct import ZERO_UUID

log = logging.getLogger("kohort.client.fetcher")

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1
FIRST_VERSION = 4
FIRST_VERSION_WITH_TOPIC_IDS = 13


class AskedPartition(NamedTuple):
    """What is asked of one partition; if it equals what the session holds, it need not be said again."""

    topic_id: bytes
    fetch_offset: int
    leader_epoch: int
    max_bytes: int


Forgotten = tuple[TopicPartition, bytes]
"""A partition that leaves a session, with the topic id it had there."""

# A full fetch, sent at once, sets these right.
LOST_SESSION = frozenset({
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class FetchRequestData:
    """One fetch: what is said, and what the session holds once the broker has read it."""

    session_id: int
    session_epoch: int
    to_send: Mapping[TopicPartition, AskedPartition]
    partitions: Mapping[TopicPartition, AskedPartition]
    forgotten: tuple[Forgotten, ...] = ()
    replaced: tuple[Forgotten, ...] = ()
    """Partitions of topics that were deleted and made again: with topic ids, the old ones are to be forgotten."""
    uses_topic_ids: bool = True
    """False: a topic without a known id is among them, so no version with topic ids can be used."""

    @property
    def is_full(self) -> bool:
        return self.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    @property
    def max_version(self) -> int | None:
        return None if self.uses_topic_ids else FIRST_VERSION_WITH_TOPIC_IDS - 1

    def __str__(self) -> str:
        if self.is_full:
            return f"full fetch of {len(self.to_send)} partitions"
        return (
            f"fetch {self.session_epoch} of session {self.session_id}: {len(self.to_send)} of "
            f"{len(self.partitions)} partitions named, {len(self.forgotten)} forgotten"
        )


@dataclass(slots=True)
class FetchSessionHandler:
    """The session with one node: what it holds, and the epoch of the next fetch."""

    node_id: int
    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    partitions: dict[TopicPartition, AskedPartition] = field(default_factory=dict)
    uses_topic_ids: bool = True

    # --- asking -----------------------------------------------------------------------------------------

    def plan(self, wanted: Mapping[TopicPartition, AskedPartition]) -> FetchRequestData:
        """Returns what to send to read `wanted`, and nothing else, from now on; the broker keeps its order."""
        uses_topic_ids = all(asked.topic_id != ZERO_UUID for asked in wanted.values())
        if uses_topic_ids != self.uses_topic_ids and self.epoch != INITIAL_EPOCH:
            log.debug("node %d: names and topic ids cannot be mixed, a new session begins", self.node_id)
            self.begin_again()
        self.uses_topic_ids = uses_topic_ids
        if self.epoch == INITIAL_EPOCH:
            self.partitions = dict(wanted)
            return FetchRequestData(
                self.session_id, self.epoch, self.partitions, self.partitions, uses_topic_ids=uses_topic_ids
            )
        return self._incremental(wanted)

    def _incremental(self, wanted: Mapping[TopicPartition, AskedPartition]) -> FetchRequestData:
        before = self.partitions
        replaced = tuple(
            (partition, before[partition].topic_id)
            for partition, asked in wanted.items()
            if partition in before and before[partition].topic_id != asked.topic_id
        )
        forgotten = tuple(
            (partition, asked.topic_id) for partition, asked in before.items() if partition not in wanted
        )
        to_send = {p: asked for p, asked in wanted.items() if before.get(p) != asked}
        self.partitions = dict(wanted)
        return FetchRequestData(
            self.session_id, self.epoch, to_send, self.partitions, forgotten, replaced, self.uses_topic_ids
        )

    def close(self) -> FetchRequestData | None:
        """Returns the last fetch of the session, which frees it on the broker; None if there is no session."""
        if self.session_id == NO_SESSION:
            return None
        plan = FetchRequestData(self.session_id, FINAL_EPOCH, {}, {})
        self.session_id, self.epoch, self.partitions = NO_SESSION, INITIAL_EPOCH, {}
        return plan

    def begin_again(self) -> None:
        """Makes the next fetch a full one; the broker is told which session it replaces."""
        self.epoch = INITIAL_EPOCH

    # --- answered -----------------------------------------------------------------------------------------

    def accept(
        self, plan: FetchRequestData, response: FetchResponse, version: int
    ) -> dict[TopicPartition, PartitionData] | None:
        """Returns what the answer says of each partition it names; None if it cannot be used."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            self.begin_again()
            return None
        if plan.is_full and not response.responses and response.throttle_time_ms > 0:
            self.session_id = NO_SESSION  # KIP-219: nothing was read, come back later
            return None
        found, strange = _by_partition(plan, response, version)
        missing = plan.partitions.keys() - found.keys() if plan.is_full else ()
        if strange or missing:
            log.info(
                "node %d answered a %s with %d partitions that were not asked for and without %d that were; "
                "a new session begins", self.node_id, plan, strange, len(missing),
            )  # fmt: skip
            if plan.is_full:
                self.session_id = NO_SESSION
            self.begin_again()
            return None
        self._go_on(plan, response.session_id)
        return found

    def _go_on(self, plan: FetchRequestData, session_id: int) -> None:
        if session_id == NO_SESSION:
            self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
        elif plan.is_full:
            log.debug(
                "node %d: session %d with %d partitions", self.node_id, session_id, len(plan.partitions)
            )
            self.session_id, self.epoch = session_id, 1
        else:
            self.epoch = plan.session_epoch + 1 if plan.session_epoch < MAX_EPOCH else 1


def _by_partition(
    plan: FetchRequestData, response: FetchResponse, version: int
) -> tuple[dict[TopicPartition, PartitionData], int]:
    """Returns the answer by partition, and the number of partitions in it that were never asked for."""
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    names = {asked.topic_id: partition.topic for partition, asked in plan.partitions.items()} if by_id else {}
    found: dict[TopicPartition, PartitionData] = {}
    strange = 0
    for topic in response.responses:
        name = names.get(topic.topic_id) if by_id else topic.topic
        for data in topic.partitions:
            partition = TopicPartition(name or "", data.partition_index)
            if name is None or partition not in plan.partitions:
                strange += 1
            else:
                found[partition] = data
    return found, strange


# --- the message --------------------------------------------------------------------------------------------


def fetch_request(plan: FetchRequestData, config: ConsumerConfig, version: int) -> FetchRequest:
    """Builds the request of a plan in the version that the node speaks."""
    if version < FIRST_VERSION:
        raise ValueError(f"Fetch v{version} has no record batches; v{FIRST_VERSION} or later is needed")
    replaced = plan.replaced if version >= FIRST_VERSION_WITH_TOPIC_IDS else ()
    return FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        isolation_level=1 if config.isolation_level == "read_committed" else 0,
        session_id=plan.session_id,
        session_epoch=plan.session_epoch,
        topics=_topics(plan.to_send),
        forgotten_topics_data=_forgotten((*plan.forgotten, *replaced)),
        rack_id=config.client_rack,
    )


def _topics(to_send: Mapping[TopicPartition, AskedPartition]) -> list[FetchTopic]:
    """Keeps the given order, which decides what comes first if there is more than fits: a topic may come twice."""
    topics: list[FetchTopic] = []
    for partition, asked in to_send.items():
        if not topics or topics[-1].topic != partition.topic:
            topics.append(FetchTopic(partition.topic, asked.topic_id))
        # No last_fetched_epoch, as in Kafka's consumer: divergence is found by OffsetForLeaderEpoch.
        topics[-1].partitions.append(
            FetchPartition(
                partition.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.fetch_offset,
                partition_max_bytes=asked.max_bytes,
            )
        )
    return topics


def _forgotten(partitions: Iterable[Forgotten]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for partition, topic_id in partitions:
        topic = topics.setdefault((partition.topic, topic_id), ForgottenTopic(partition.topic, topic_id))
        topic.partitions.append(partition.partition)
    return list(topics.values())
