"""The last rebalances of a group: from Kohort's history, or what `__consumer_offsets` of any other Kafka tells.

Kohort's coordinator keeps a history in a topic of its own, with reasons and times. Apache Kafka keeps none, but each
generation that got an assignment is a record in `__consumer_offsets` until compaction removes it: `offsets_log.py` says
what follows from those records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.errors import AuthorizationFailed, TimedOut
from kohort.client.records import Record
from kohort.client.types import TopicPartition
from kohort.coordinator.history import HISTORY_TOPIC, Rebalance, group_of
from kohort.coordinator.settings import partition_for
from kohort.insight.offsets_log import OFFSETS_TOPIC, LogReading, TailReader
from kohort.insight.samples import DEAD
from kohort.wire.errors import ErrorCode, KafkaError

KOHORT = "kohort"
POLL_S = 1.0
PATIENCE_S = 10.0
"""How long a read may make no progress."""


@dataclass(frozen=True, slots=True)
class GroupRebalances:
    """The rebalances of a group that are on record, oldest first, and what the record does not hold."""

    group_id: str
    source: str
    """"kohort" or "__consumer_offsets"."""
    rebalances: list[Rebalance]
    """From `__consumer_offsets`, `began_ms` is when the assignment was written, `reason` says what can be concluded,
    and `join_ms` and `sync_ms` are None."""
    unknown: tuple[str, ...] = ()
    """What cannot be known from this source, one sentence each; empty for Kohort's."""


def rebalances_of(admin: Admin, settings: Mapping[str, str], group_id: str) -> GroupRebalances:
    """Reads the rebalances of a group; `settings` are those of `admin`, for the consumer that reads.

    KohortError if there is neither such a group nor a record of it, or if this client may not read the topic.
    """
    state = admin.describe_groups(group_id)[group_id].state
    partition = _partition_of(admin, HISTORY_TOPIC, group_id)
    if partition is not None:
        found = GroupRebalances(group_id, KOHORT, _from_history(admin, settings, group_id, partition))
    else:
        found = _from_offsets_log(admin, settings, group_id)
    if state == DEAD and not found.rebalances:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}: `kohort groups list` names all"
        )
    return found


def _partition_of(admin: Admin, topic: str, group_id: str) -> TopicPartition | None:
    """The partition that holds a group; None if the topic does not exist."""
    try:
        described = admin.describe_topics(topic)[topic]
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic == HISTORY_TOPIC and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return None  # Apache Kafka says so of topics that do not exist, to those who may not know
        raise
    return TopicPartition(topic, partition_for(group_id, len(described.partitions)))


def _consumer(settings: Mapping[str, str]) -> Consumer:
    own = {"enable.auto.commit": False, "allow.auto.create.topics": False, "auto.offset.reset": "earliest"}
    return Consumer({**settings, **own})


# --- Kohort ---------------------------------------------------------------------------------------------


def _from_history(
    admin: Admin, settings: Mapping[str, str], group_id: str, partition: TopicPartition
) -> list[Rebalance]:
    end = admin.end_offsets(partition)[partition]
    start = admin.beginning_offsets(partition)[partition]
    told: dict[int, Rebalance] = {}
    with _consumer(settings) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, start)
        deadline_s = time.monotonic() + PATIENCE_S
        while consumer.position(partition) < end:
            for records in consumer.poll(POLL_S).values():
                told |= {each.number: each for name, each in _entries(records) if name == group_id}
                deadline_s = time.monotonic() + PATIENCE_S
            if time.monotonic() >= deadline_s:
                raise TimedOut(f"{partition} was not read to its end in time")
    return [told[number] for number in sorted(told)]


def _entries(records: Iterable[Record]) -> Iterator[tuple[str, Rebalance]]:
    """Yields groups and rebalances; records that another version wrote are skipped."""
    for record in records:
        if record.key is None or record.value is None:
            continue
        try:
            yield group_of(record.key), Rebalance.from_json(json.loads(record.value))
        except (ValueError, TypeError, AttributeError):
            continue


# --- Apache Kafka ---------------------------------------------------------------------------------------


def _from_offsets_log(admin: Admin, settings: Mapping[str, str], group_id: str) -> GroupRebalances:
    try:
        partition = _partition_of(admin, OFFSETS_TOPIC, group_id)
        if partition is None:
            return GroupRebalances(group_id, OFFSETS_TOPIC, [], ("There are no groups on this cluster yet.",))
        begin = admin.beginning_offsets(partition)[partition]
        end = admin.end_offsets(partition)[partition]
        # A reader that goes back would wait for the fetch at the end, which waits for new records.
        with _consumer({**settings, "fetch.max.wait.ms": "50"}) as consumer:
            reading = TailReader(consumer, partition, group_id, begin, end).read()
    except (AuthorizationFailed, KafkaError) as error:
        if isinstance(error, AuthorizationFailed) or error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise not_allowed(error) from None
        raise
    return GroupRebalances(group_id, OFFSETS_TOPIC, reading.rebalances, reading.unknown)


def not_allowed(error: Exception) -> KafkaError:
    """Says which permission is missing."""
    return KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"this client may not read {OFFSETS_TOPIC}, where this cluster keeps what is known of rebalances: "
        f"it needs the permissions DESCRIBE and READ for that topic ({error})",
    )


# --- as they happen -------------------------------------------------------------------------------------


class RebalanceFeed:
    """Tells of rebalances as they happen, from now on: of one group, or on Kohort of all groups.

    A rebalance is told several times while it goes on: the last telling has an `outcome` other than "running".
    KohortError if all groups are asked for and the cluster keeps no history.
    """

    def __init__(self, admin: Admin, settings: Mapping[str, str], group_id: str | None = None) -> None:
        self._group_id = group_id
        self._reading: LogReading | None = None
        partitions = self._partitions(admin)
        self._consumer = _consumer(settings)
        try:
            self._consumer.assign(partitions)
            for partition, end in admin.end_offsets(partitions).items():
                self._consumer.seek(partition, end)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._consumer.close()

    @property
    def source(self) -> str:
        """ "kohort" or "__consumer_offsets"."""
        return KOHORT if self._reading is None else OFFSETS_TOPIC

    def poll(self, timeout: float) -> list[tuple[str, Rebalance]]:
        """Returns groups and their rebalances that are new or have changed; waits so many seconds for the first."""
        told: list[tuple[str, Rebalance]] = []
        for records in self._consumer.poll(timeout).values():
            if self._reading is None:
                told += [(name, each) for name, each in _entries(records) if self._group_id in (None, name)]
                continue
            known = len(self._reading.rebalances)
            for record in records:
                self._reading.take(record.key, record.value, record.timestamp)
            assert self._group_id is not None
            told += [(self._group_id, each) for each in self._reading.rebalances[known:]]
        return told

    def _partitions(self, admin: Admin) -> list[TopicPartition]:
        if self._group_id is not None:
            own = _partition_of(admin, HISTORY_TOPIC, self._group_id)
            if own is None:
                own = _partition_of(admin, OFFSETS_TOPIC, self._group_id)
                self._reading = LogReading(self._group_id)
            if own is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "there are no groups on this cluster yet: watch again when a member has joined",
                )
            return [own]
        if _partition_of(admin, HISTORY_TOPIC, "") is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "this cluster keeps no history of groups (only Kohort's coordinator does): watch one group at a time",
            )
        topic = admin.describe_topics(HISTORY_TOPIC)[HISTORY_TOPIC]
        return [TopicPartition(HISTORY_TOPIC, each.partition) for each in topic.partitions]
