"""The past of a group before the first sample: how old its first unread records are, and its lag of the last hour.

Both use that the end of a log at a time T is the offset of the first record at or after T, which ListOffsets tells.
That is exact as far as the records carry the time of their writing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.errors import PartlyFailed
from kohort.client.types import OffsetAndTimestamp, TopicPartition
from kohort.coordinator.settings import partition_for
from kohort.errors import KohortError
from kohort.insight.health import OffsetPoint
from kohort.insight.offsets_log import OFFSETS_TOPIC
from kohort.insight.trends import Trends
from kohort.wire.errors import BadRecord
from kohort.wire.group_records import OFFSET_COMMIT, decode_key, decode_offset_commit
from kohort.wire.messages.offset_commit_key import OffsetCommitKey

ROUNDS = 8
CLOSE_ENOUGH_MS = 1_000
HOUR_MS = 3_600_000
MOST_BYTES = 64 << 20
LONGEST_S = 10.0


# --- since when -----------------------------------------------------------------------------------------


def unread_since(
    admin: Admin, offsets: Mapping[TopicPartition, int], now_ms: int, *, timeout: float = 5.0
) -> dict[TopicPartition, list[OffsetPoint]]:
    """Finds when the logs ended at these (committed) offsets, for `Trends.add_past`: one point for each partition.

    It searches by time, all partitions at once: at most nine requests to each node, and no record is read. The result
    is exact to a second, or to 1/256 of the age of the log. A partition that does not answer is left out.
    """
    low = _at_times(admin, dict.fromkeys(offsets, 0), timeout)
    bounds = {
        partition: _Bounds(first.offset, first.timestamp, now_ms)
        for partition, first in low.items()
        if first is not None and first.offset <= offsets[partition]
    }
    for _ in range(ROUNDS):
        open_ones = {p: b.middle() for p, b in bounds.items() if not b.is_found(offsets[p])}
        if not open_ones:
            break
        for partition, found in _at_times(admin, open_ones, timeout).items():
            bounds[partition].learn(open_ones[partition], found, offsets[partition])
    return {
        partition: [OffsetPoint(found.low_ms, None, offsets[partition])]
        for partition, found in bounds.items()
    }


class UnreadAges:
    """Fills in the lag in seconds where the unread records are older than the first sample, once for each group."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._asked: set[str] = set()

    def fill(self, trends: Trends, *, groups: Iterable[str] | None = None, most: int = 20) -> None:
        """Asks for some groups that need it, of these or of all; the next call asks for others."""
        if (latest := trends.latest) is None:
            return
        self._asked &= latest.groups.keys()
        left = most
        for group_id in latest.groups if groups is None else groups:
            if left == 0:
                return
            if group_id in self._asked or group_id not in latest.groups or not latest.groups[group_id].lag:
                continue
            trend = trends.group(group_id)
            assert trend is not None
            self._asked.add(group_id)
            offsets = {
                TopicPartition(each.topic, each.partition): each.committed
                for each in latest.groups[group_id].partitions
                if each.lag and each.committed is not None
            }
            unknown = {p: at for p, at in offsets.items() if trend.partitions[p].lag_seconds is None}
            if unknown:
                left -= 1
                trends.add_past(group_id, unread_since(self._admin, unknown, latest.at_ms))


class _Bounds:
    """The record that is looked for is at or after `low_ms` and before `high_ms`."""

    def __init__(self, offset: int, low_ms: int, high_ms: int) -> None:
        self.offset, self.low_ms, self.high_ms = offset, low_ms, max(low_ms, high_ms)

    def middle(self) -> int:
        return (self.low_ms + self.high_ms + 1) // 2

    def is_found(self, offset: int) -> bool:
        return self.offset == offset or self.high_ms - self.low_ms <= CLOSE_ENOUGH_MS

    def learn(self, asked_ms: int, found: OffsetAndTimestamp | None, offset: int) -> None:
        if found is None or found.offset > offset:
            self.high_ms = max(self.low_ms, asked_ms)
        else:
            self.offset, self.low_ms = found.offset, max(asked_ms, min(found.timestamp, self.high_ms))


def _at_times(
    admin: Admin, times: Mapping[TopicPartition, int], timeout: float
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    if not times:
        return {}
    try:
        return admin.offsets_for_times(times, timeout=timeout)
    except PartlyFailed as partly:
        return partly.results
    except KohortError:
        return {}


# --- the lag of the last hour ---------------------------------------------------------------------------


def past_lag(
    admin: Admin,
    settings: Mapping[str, str],
    group_id: str,
    now_ms: int,
    *,
    span_ms: int = HOUR_MS,
    points: int = 60,
    timeout: float = 5.0,
) -> dict[TopicPartition, list[OffsetPoint]]:
    """Rebuilds the lag of a group from its commits in `__consumer_offsets` and from offsets by time.

    For `Trends.add_past`. Bounded: it reads 64 MB or ten seconds of commits, and asks each node `points` times for
    offsets. KohortError if the topic cannot be read.
    """
    commits = _commits_of(admin, settings, group_id, now_ms - span_ms, timeout)
    step_ms = max(1, span_ms // points)
    past: dict[TopicPartition, list[OffsetPoint]] = {partition: [] for partition in commits}
    ends = admin.end_offsets(list(commits), timeout=timeout) if commits else {}
    for at_ms in range(now_ms - span_ms, now_ms, step_ms):
        known = {p: offset for p, own in commits.items() if (offset := _committed_at(own, at_ms)) is not None}
        found = _at_times(admin, dict.fromkeys(known, at_ms), timeout)
        for partition, committed in known.items():
            if partition in found:
                first = found[partition]
                end = ends.get(partition) if first is None else first.offset
                past[partition].append(OffsetPoint(at_ms, committed, end))
    return past


def _committed_at(commits: Sequence[tuple[int, int]], at_ms: int) -> int | None:
    return next((offset for when_ms, offset in reversed(commits) if when_ms <= at_ms), None)


def _commits_of(
    admin: Admin, settings: Mapping[str, str], group_id: str, since_ms: int, timeout: float
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """The commits of a group since a time, as (time, offset) by partition, oldest first."""
    topic = admin.describe_topics(OFFSETS_TOPIC, timeout=timeout)[OFFSETS_TOPIC]
    home = TopicPartition(OFFSETS_TOPIC, partition_for(group_id, len(topic.partitions)))
    end = admin.end_offsets(home, timeout=timeout)[home]
    first = admin.offsets_for_times({home: since_ms}, timeout=timeout)[home]
    commits: dict[TopicPartition, list[tuple[int, int]]] = {}
    if first is None:
        return commits
    own = {"enable.auto.commit": False, "allow.auto.create.topics": False, "auto.offset.reset": "earliest"}
    with Consumer({**settings, **own}) as consumer:
        consumer.assign([home])
        consumer.seek(home, first.offset)
        for key, value, at_ms in _records(consumer, home, end):
            for partition, offset in _commit_in(group_id, key, value):
                commits.setdefault(partition, []).append((at_ms, offset))
    return commits


def _records(consumer: Consumer, home: TopicPartition, end: int) -> Iterator[tuple[bytes, bytes, int]]:
    read, deadline_s = 0, time.monotonic() + LONGEST_S
    while consumer.position(home) < end and read < MOST_BYTES and time.monotonic() < deadline_s:
        for records in consumer.poll(1.0).values():
            for record in records:
                if record.key is not None and record.value is not None:
                    read += len(record.key) + len(record.value)
                    yield record.key, record.value, record.timestamp


def _commit_in(group_id: str, key: bytes, value: bytes) -> Iterable[tuple[TopicPartition, int]]:
    name = group_id.encode()
    if key[:2] != OFFSET_COMMIT.to_bytes(2, "big") or key[4 : 4 + len(name)] != name:
        return
    try:
        found = decode_key(key)
        if isinstance(found, OffsetCommitKey) and found.group == group_id:
            yield TopicPartition(found.topic, found.partition), decode_offset_commit(value).offset
    except BadRecord:
        return
