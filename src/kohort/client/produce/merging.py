"""What has to wait travels together: a full batch goes on growing, and several closed ones are sent as one.

A batch of batch.size bytes is full: it does not linger any more. Until the sender comes to it, it takes more records:
who sends as fast as it can would else make hundreds of small batches before the producer's thread gets Python's lock.

A request takes one batch of a partition, and small batches that queue up behind five requests under way would each
need one of their own. So those that were never sent are put into a carrier. A carrier is a batch like any other to the
broker and to sequence numbers; the batches in it, its riders, end when it does.
"""

from __future__ import annotations

from kohort.client.config import ProducerConfig
from kohort.client.produce.batch import Batch
from kohort.wire.records.batch import HEADER_SIZE

MOST_BYTES = 1_000_000
"""Of a batch that had to wait: librdkafka's batch.size, just below what topics take (max.message.bytes 1048588)."""
REQUEST_OVERHEAD = 512
"""Bytes of a request besides its batches; only to stay clear of max.request.size."""


def most_together(config: ProducerConfig) -> int:
    """Bytes that a batch may have which had to wait. 0 if batch.size is 0: then nobody wants batches."""
    if not config.batch_size:
        return 0
    return min(MOST_BYTES, config.max_request_size - REQUEST_OVERHEAD, config.buffer_memory // 4)


def after_refusal(size: int, batch_size: int) -> int:
    """The same for a topic, once a broker found a batch of `size` bytes too large. 0: no more than batch.size."""
    return size // 2 if size // 2 > batch_size else 0


def may_ride(batch: Batch) -> bool:
    return not batch.order and batch.columns is None and batch.riders is None and not batch.is_split


def carrier_of(batches: list[Batch]) -> Batch:
    """One batch with the records of all of them, in order."""
    carrier = Batch(batches[0].queue, batches[0].created_ms)
    carrier.limit = -1
    carrier.size = HEADER_SIZE
    carrier.riders = []
    if any(batch.keys is not None for batch in batches):
        carrier.keys = []
    for batch in batches:
        first = carrier.count
        carrier.riders.append((first, batch))
        carrier.count += batch.count
        carrier.size += batch.size - HEADER_SIZE
        carrier.values += batch.values
        carrier.timestamps += batch.timestamps
        if carrier.keys is not None:
            carrier.keys += batch.keys if batch.keys is not None else [None] * batch.count
        if batch.headers is not None:
            carrier.headers = carrier.headers or {}
            carrier.headers.update((first + index, each) for index, each in batch.headers.items())
        batch.carrier = carrier
    return carrier


def get_off(carrier: Batch) -> list[Batch]:
    """The riders as batches of their own, which continue the carrier's sequence numbers."""
    assert carrier.riders is not None, "only a carrier has riders"
    batches = []
    for first, batch in carrier.riders:
        batch.carrier = None
        batch.order = (*carrier.order, first)
        batch.attempts = carrier.attempts
        batch.producer_id, batch.producer_epoch = carrier.producer_id, carrier.producer_epoch
        if carrier.sequence >= 0:
            batch.sequence = (carrier.sequence + first) & 0x7FFF_FFFF
        batches.append(batch)
    carrier.riders = None
    return batches
