"""Keeps the history of groups in a compacted topic of Kohort's own, `__kohort_group_history`.

A record's key is the group and a slot (the rebalance's number modulo the length kept), its value the rebalance as
JSON. Compaction keeps the last record of each slot, so the history is bounded without any clean-up; the history of
groups that are no longer used expires by `retention.ms`. `kohort groups why` and any other client read it as a topic.
It is in no list of topics, so that clients that do not know it never see it. A group's entries are in the partition of
the same number as its offsets.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kohort.coordinator.effects import HistoryChanged
from kohort.coordinator.history import HISTORY_TOPIC, Rebalance, group_of, key_of
from kohort.coordinator.settings import partition_for
from kohort.log.partition import Partition
from kohort.wire.errors import KafkaError
from kohort.wire.records.batch import check_batch, encode_batch, iter_batches, iter_records, with_append_time
from kohort.wire.records.payload import BatchRecord

if TYPE_CHECKING:
    from kohort.log.store import Store
    from kohort.log.topic import Topic

log = logging.getLogger("kohort.groups")

SETTINGS = {"cleanup.policy": "compact,delete", "segment.bytes": str(16 << 20), "retention.ms": "604800000"}
_READ_BYTES = 1 << 20
_PAUSE_S = 0.05  # changes of one rebalance within this time become one record


class HistoryLog:
    """Writes what happens to groups to the topic. Nothing waits for it: the history is for people only."""

    def __init__(self, store: Store, length: int, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._length = length
        self._news: dict[bytes, tuple[str, Rebalance]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def on_history(self, changed: HistoryChanged) -> None:
        key = key_of(changed.group_id, changed.rebalance.slot(self._length))
        self._news[key] = (changed.group_id, changed.rebalance)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        news, self._news = self._news, {}
        topic = self._store.topics.get(HISTORY_TOPIC)
        if topic is None:
            return
        by_partition: dict[int, list[tuple[bytes, Rebalance]]] = {}
        for key, (group_id, rebalance) in news.items():
            index = partition_for(group_id, len(topic.partitions))
            by_partition.setdefault(index, []).append((key, rebalance))
        for index, entries in by_partition.items():
            try:
                _append(topic, index, entries, self._now_ms())
            except KafkaError as error:
                log.warning("the history of %d rebalances is not kept: %s", len(entries), error)


def _append(topic: Topic, index: int, entries: list[tuple[bytes, Rebalance]], now_ms: int) -> None:
    records = []
    for offset, (key, rebalance) in enumerate(entries):
        value = json.dumps(rebalance.to_json(), ensure_ascii=False).encode()
        records.append(BatchRecord(offset, rebalance.began_ms, key, value, []))
    batch = memoryview(encode_batch(records))
    header = check_batch(batch)
    if topic.config.append_time:
        header = with_append_time(batch, header, now_ms)
    topic.partitions[index].append(batch, header, now_ms)


def entries_in(data: memoryview) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yields (offset, group, rebalance as JSON) of the whole batches in fetched bytes; skips what is not history."""
    for position, header in iter_batches(data):
        for record in iter_records(data[position : position + header.size]):
            if record.key is None or record.value is None:
                continue
            try:
                fields = json.loads(record.value)
            except ValueError:
                continue
            if isinstance(fields, dict):
                yield record.offset, group_of(record.key), fields


def batches_of(partition: Partition) -> Iterator[memoryview]:
    """Yields all that a partition holds, some whole batches at a time."""
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        data = memoryview(b"".join(partition.read(offset, _READ_BYTES, at_least_one=True).chunks()))
        ends = [header.last_offset + 1 for _, header in iter_batches(data)]
        if not ends:
            return
        offset = ends[-1]
        yield data


def restored(partition: Partition) -> dict[str, list[Rebalance]]:
    """Returns the rebalances of a partition's groups, each as it was last written."""
    found: dict[str, dict[int, Rebalance]] = {}
    for data in batches_of(partition):
        for _, group_id, fields in entries_in(data):
            try:
                rebalance = Rebalance.from_json(fields)
            except (TypeError, AttributeError):
                continue  # written by another version
            found.setdefault(group_id, {})[rebalance.number] = rebalance
    return {group_id: list(numbered.values()) for group_id, numbered in found.items()}
