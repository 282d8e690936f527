"""Batches that had to wait travel together: several closed batches of a partition are sent as one.

A request takes one batch of a partition, and small batches that queue up behind five requests under way would each
need one of their own. So those that were never sent are put into a carrier. A carrier is a batch like any other to the
broker and to sequence numbers; the batches in it, its riders, end when it does.
"""

from __future__ import annotations

from kohort.client.batch import Batch
from kohort.wire.records import HEADER_SIZE

MOST_BYTES = 256 * 1024
"""Of a carrier: large enough that what a request costs does not matter, well below what topics take."""


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
