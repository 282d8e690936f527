"""Encodes a batch as the bytes of a Produce request, and gives encoded bytes other sequence numbers."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from kohort.client.produce.batch import Batch
from kohort.wire.records.batch import CRC_AT, CRC_START, KEEP_LOCK, PRODUCER_ID_AT, header_fields
from kohort.wire.records.columns import encode_batch_columns
from kohort.wire.records.compression import Buffer

_producer = header_fields("producer_id", "producer_epoch", "base_sequence")
_crc = header_fields("crc")


def encode(
    batch: Batch,
    compression: int,
    level: int | None,
    *,
    transactional: bool = False,
    with_numbers: bool = True,
) -> Buffer:
    """Encodes a closed batch with the producer's numbers that it has now; else without numbers and checksum.

    `renumbered` adds these when the batch is sent.
    """
    headers = None
    if batch.headers is not None:
        headers = [batch.headers.get(index) for index in range(batch.count)]
    columns = batch.columns
    if columns is not None:
        encoded: Buffer = columns.encode(
            compression, level, batch.producer_id, batch.producer_epoch, batch.sequence,
            transactional=transactional,
        )  # fmt: skip
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
        transactional=transactional,
        with_crc=with_numbers,
    )


def renumbered(batch: Batch) -> Buffer:
    """Returns the encoded batch with the numbers that it has now; changes it in place if it was never sent."""
    assert batch.encoded is not None, "the batch was encoded before"
    changed: Any = memoryview(batch.encoded)
    in_place = not changed.readonly and not batch.attempts  # what was sent may still be on its way
    if not in_place:
        changed = bytearray(changed)
    _producer.pack_into(changed, PRODUCER_ID_AT, batch.producer_id, batch.producer_epoch, batch.sequence)
    _crc.pack_into(changed, CRC_AT, crc32c(memoryview(changed)[CRC_START:], 0, KEEP_LOCK))
    return changed if in_place else bytes(changed)
