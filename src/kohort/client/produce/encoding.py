"""A batch as bytes: encoded once, numbered again where sequences start again, split where it is too large."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from kohort.client.produce.batch import HEADER_OVERHEAD, RECORD_OVERHEAD, Batch
from kohort.wire.records.batch import (
    CRC_AT,
    CRC_START,
    HEADER_SIZE,
    KEEP_LOCK,
    PRODUCER_ID_AT,
    header_fields,
    iter_records,
)
from kohort.wire.records.columns import encode_batch_columns
from kohort.wire.records.compression import Buffer

_producer = header_fields("producer_id", "producer_epoch", "base_sequence")
_crc = header_fields("crc")


def encode(batch: Batch, compression: int, level: int | None) -> Buffer:
    """The bytes of a closed batch, with the producer's numbers that it has now."""
    headers = None
    if batch.headers is not None:
        headers = [batch.headers.get(index) for index in range(batch.count)]
    columns = batch.columns
    if columns is not None:
        encoded: Buffer = columns.encode(
            compression, level, batch.producer_id, batch.producer_epoch, batch.sequence
        )
        return encoded
    return encode_batch_columns(
        batch.keys,
        batch.values,
        batch.timestamps,
        headers,
        compression=compression,
        level=level,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.sequence,
    )


def renumbered(batch: Batch) -> Buffer:
    """The same records with the numbers that the batch has now."""
    assert batch.encoded is not None, "the batch was encoded before"
    changed: Any = memoryview(batch.encoded)
    in_place = not changed.readonly and not batch.attempts  # what was sent may still be on its way
    if not in_place:
        changed = bytearray(changed)
    _producer.pack_into(changed, PRODUCER_ID_AT, batch.producer_id, batch.producer_epoch, batch.sequence)
    _crc.pack_into(changed, CRC_AT, crc32c(memoryview(changed)[CRC_START:], 0, KEEP_LOCK))
    return changed if in_place else bytes(changed)


def split(batch: Batch, most_bytes: int) -> list[Batch]:
    """Smaller batches with the same records in the same order; two at least. They continue the batch's numbers."""
    assert batch.encoded is not None, "only a batch that was sent is split"
    assert batch.count > 1, "a single record cannot be split"
    records = list(iter_records(batch.encoded))
    parts: list[Batch] = []
    part: Batch | None = None
    for index, record in enumerate(records):
        size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        size += sum(HEADER_OVERHEAD + len(name) * 4 + len(content or b"") for name, content in record.headers)
        full = part is not None and part.size + size > most_bytes
        if part is None or full or (len(parts) == 1 and index == len(records) - 1):
            part = Batch(batch.queue, batch.created_ms)
            part.size, part.limit, part.is_split = HEADER_SIZE, -1, True
            parts.append(part)
        part.size += size
        part.values.append(record.value)
        part.timestamps.append(record.timestamp)
        if record.key is not None and part.keys is None:
            part.keys = [None] * (len(part.values) - 1)
        if part.keys is not None:
            part.keys.append(record.key)
        if record.headers:
            part.headers = part.headers or {}
            part.headers[len(part.values) - 1] = record.headers
    _hand_over(batch, parts)
    return parts


def _hand_over(batch: Batch, parts: list[Batch]) -> None:
    """Each part gets its numbers, and the callbacks of its records."""
    first, sequence, placed_parts = 0, batch.sequence, []
    for part in parts:
        part.count = len(part.values)
        part.order = (*batch.order, first)
        if sequence >= 0:
            part.producer_id, part.producer_epoch, part.sequence = (
                batch.producer_id,
                batch.producer_epoch,
                sequence,
            )
            sequence = (sequence + part.count) & 0x7FFF_FFFF
        placed_parts.append((first, part))
        first += part.count
    for placed, callback in batch.callbacks or ():
        part = next(p for start, p in reversed(placed_parts) if start <= placed._index)
        part.callbacks = part.callbacks or []
        part.callbacks.append((placed, callback))
    batch.callbacks = None
    batch.parts = placed_parts
