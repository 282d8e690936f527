"""Copies records that a share group gives up to a dead-letter topic, before they are archived.

A record is given up when it was rejected, or when it was delivered as often as `share.delivery.count.limit` allows. The
copy has its key, value, headers and timestamp, and headers that say where it comes from and why it is there. A record
is archived only when its copy is durable; if that fails it is tried again. After a crash in between it is copied twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kohort.log.datadir import new_uuid
from kohort.log.partition import Partition
from kohort.log.registry import TopicCreated
from kohort.share.partition import DeadLetters
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import check_batch, encode_batch, iter_batches, iter_records, with_append_time
from kohort.wire.records.payload import BatchRecord

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.log.topic import Topic

log = logging.getLogger("kohort.share")

PREFIX = "__kohort.errors."
"""The headers are this and: topic, partition, offset, timestamp, group, member, delivery.count, reason."""

_READ_BYTES = 1 << 20

OnCopied = Callable[[ErrorCode], None]


class DeadLetterCopier:
    """Copies records of share groups to the topics that their settings name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    def copy(
        self, group_id: str, source: Partition, letters: tuple[DeadLetters, ...], topic: str, done: OnCopied
    ) -> None:
        """Copies records; `done` is called when that is durable or has failed."""
        task = asyncio.get_running_loop().create_task(self._copy(group_id, source, letters, topic, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _copy(
        self, group_id: str, source: Partition, letters: tuple[DeadLetters, ...], name: str, done: OnCopied
    ) -> None:
        try:
            topic = await self._topic(name)
            partition = topic.partitions[source.index % len(topic.partitions)]
            end_offset = self._append(group_id, source, letters, topic, partition)
        except KafkaError as error:
            text = "records of %s-%d that share group %r gives up cannot be copied to %s, and wait for it: %s"
            log.error(text, source.topic, source.index, group_id, name, error)
            done(error.code)
            return
        partition.when_durable(end_offset, done)

    async def _topic(self, name: str) -> Topic:
        """Returns the dead-letter topic; it is made if it does not exist."""
        broker = self._broker
        if name not in broker.store.topics:
            async with broker.changes:
                if name not in broker.store.topics:
                    error = await broker.commit(
                        [TopicCreated(name, new_uuid(), broker.config.num_partitions)]
                    )
                    if error is not None:
                        raise error
        return broker.store.topics[name]

    def _append(
        self,
        group_id: str,
        source: Partition,
        letters: tuple[DeadLetters, ...],
        topic: Topic,
        partition: Partition,
    ) -> int:
        """Appends the copies, and returns the offset after the last one."""
        now_ms = self._broker.now_ms()
        batch: list[BatchRecord] = []
        size = 0
        for each in letters:
            for record in _records_between(source, each.first, each.last):
                copied = _copy_of(record, group_id, source, each, len(batch))
                length = len(copied.key or b"") + len(copied.value or b"")
                if batch and size + length > _READ_BYTES:
                    _append_batch(topic, partition, batch, now_ms)
                    batch, size = [], 0
                    copied = copied._replace(offset=0)
                batch.append(copied)
                size += length
        if batch:
            _append_batch(topic, partition, batch, now_ms)
        return partition.log_end_offset

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _append_batch(topic: Topic, partition: Partition, records: list[BatchRecord], now_ms: int) -> None:
    batch = memoryview(encode_batch(records))
    header = check_batch(batch)
    if topic.config.append_time:
        header = with_append_time(batch, header, now_ms)
    partition.append(batch, header, now_ms)


def _records_between(partition: Partition, first: int, last: int) -> Iterator[BatchRecord]:
    """Yields the records of these offsets that the log has; those below its start are gone."""
    offset = max(first, partition.log_start_offset)
    while offset <= min(last, partition.high_watermark - 1):
        data = memoryview(b"".join(partition.read(offset, _READ_BYTES, at_least_one=True).chunks()))
        end = offset
        for position, header in iter_batches(data):
            end = header.last_offset + 1
            if header.is_control or header.last_offset < first or header.base_offset > last:
                continue
            for record in iter_records(data[position : position + header.size]):
                if offset <= record.offset <= last:
                    yield record
        if end == offset:
            return
        offset = end


def _copy_of(
    record: BatchRecord, group_id: str, source: Partition, letters: DeadLetters, number: int
) -> BatchRecord:
    said = {
        "topic": source.topic,
        "partition": source.index,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "group": group_id,
        "member": letters.member_id,
        "delivery.count": letters.delivery_count,
        "reason": letters.reason,
    }
    headers = [*record.headers, *((PREFIX + name, str(value).encode()) for name, value in said.items())]
    return BatchRecord(number, record.timestamp, record.key, record.value, headers)
