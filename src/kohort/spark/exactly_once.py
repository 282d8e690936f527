"""The ledger of the sink with `exactlyOnce`: which batch each task of a query has committed, with a hash of its rows.

A task writes its rows and its entry of the ledger in one transaction. Whoever does the task again, after a failure of
the task, the executor or the driver, takes over its transactional id, which settles what the attempt before left, and
finds the entry if that attempt had committed: then there is nothing to write.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kohort.client.admin import Admin
from kohort.client.consumer import Consumer
from kohort.client.errors import TimedOut
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError

DEFAULT_PREFIX = "kohort-spark"
DEFAULT_LEDGER = "kohort-spark-ledger"
LEDGER_PARTITIONS = 16
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.1"}
BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""Properties of a task of a stream: the number of its batch, and the id of the query, which its checkpoint keeps."""


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """The options of `exactlyOnce`, checked. It is pickled for executors."""

    prefix: str = DEFAULT_PREFIX
    ledger: str = DEFAULT_LEDGER


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One partition of one batch of a query, whoever tries to write it and how often."""

    query: str
    batch: int
    partition: int

    def transactional_id(self, once: ExactlyOnce) -> str:
        return f"{once.prefix}-{self.query}-{self.partition}"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What a task has committed last."""

    batch: int
    rows: int
    hash: str

    def encode(self) -> bytes:
        return json.dumps({"batch": self.batch, "rows": self.rows, "hash": self.hash}).encode()

    @classmethod
    def decode(cls, value: bytes) -> LedgerEntry:
        said = json.loads(value)
        return cls(int(said["batch"]), int(said["rows"]), str(said["hash"]))


def ledger_partition(transactional_id: str, count: int) -> int:
    """Returns the partition of the ledger where the entries of a task are."""
    return zlib.crc32(transactional_id.encode()) % count


def ensure_ledger(settings: dict[str, str], topic: str) -> int:
    """Creates the ledger if there is none; returns how many partitions it has."""
    with Admin(settings) as admin:
        try:
            admin.create_topic(topic, partitions=LEDGER_PARTITIONS, replication_factor=-1, configs=_CONFIGS)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return len(admin.describe_topics(topic)[topic].partitions)


def read_entry(
    settings: dict[str, str], topic: str, partition: int, transactional_id: str, timeout_s: float
) -> LedgerEntry | None:
    """Returns what a task has committed last, once all transactions that are in the ledger by now have ended.

    A reader of committed records stops at the first open transaction, of whatever task. What a task has committed may
    be behind it: so it is read up to where the log ends when the reading begins.
    """
    place, deadline = TopicPartition(topic, partition), time.monotonic() + timeout_s
    with Consumer({**settings, "isolation.level": "read_uncommitted"}) as consumer:
        end = consumer.end_offsets(place)[place]
    found: LedgerEntry | None = None
    key = transactional_id.encode()
    with Consumer({**settings, "isolation.level": "read_committed"}) as consumer:
        consumer.assign(place)
        consumer.seek_to_beginning(place)
        while consumer.position(place) < end:
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"the ledger {topic} has had an open transaction for {timeout_s:g} s, so that it is unknown what "
                    f"{transactional_id} has committed (`kohort transactions` and transaction.timeout.ms)"
                )
            for records in consumer.poll(1.0).values():
                for record in records:
                    if record.key == key:
                        found = None if record.value is None else LedgerEntry.decode(record.value)
    return found


class RowsHash:
    """A hash of rows in their order, which does not depend on how they are cut into batches."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, tuple[Any, Any]] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        for name in rows.schema.names:
            sizes, contents = self._columns.setdefault(name, (hashlib.blake2b(), hashlib.blake2b()))
            column = rows.column(name)
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                column = column.cast(pa.large_binary())
            if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
                lengths = pc.binary_length(column).cast(pa.int64()).fill_null(-1)
                sizes.update(lengths.to_numpy(zero_copy_only=False).tobytes())
                contents.update(b"".join(column.fill_null(b"").to_pylist()))
            else:
                contents.update("".join(f"{value!r};" for value in column.to_pylist()).encode())

    def hexdigest(self) -> str:
        whole = hashlib.blake2b(digest_size=16)
        for name in sorted(self._columns):
            sizes, contents = self._columns[name]
            whole.update(name.encode() + sizes.digest() + contents.digest())
        return whole.hexdigest()
