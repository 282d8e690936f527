"""What a task does: one range of offsets -> Arrow batches, straight from the bytes that the partition's leader sends.

Connections are kept per worker process. The next request leaves before the answer at hand is decoded; two answers at
most are in memory, and what a compressed one holds is unpacked piece by piece.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from kohort.client.consume.fetch_buffer import end_of
from kohort.client.consume.fetch_errors import STALE_LEADER, STALE_TOPIC
from kohort.client.consume.fetch_session import FIRST_VERSION, FIRST_VERSION_WITH_TOPIC_IDS
from kohort.client.core.backoff import Backoff
from kohort.client.core.cluster import Node
from kohort.client.core.effects import Answer, Failure, Send
from kohort.client.core.operation import Operation
from kohort.client.errors import CorruptRecord, TimedOut, error_for, error_for_failure
from kohort.spark.driver.cluster import Cluster, settings_without_group
from kohort.spark.driver.planning import DataLoss, Leader, OffsetRange, unread
from kohort.spark.options import SourceOptions
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.wire.records.columns import Columns, decode_columns, prefer
from kohort.wire.struct import ZERO_UUID

log = logging.getLogger("kohort.spark.fetch")

# For bulk reading of what is known to be there; a user's own settings go before these.
DEFAULTS = {
    "max.partition.fetch.bytes": str(4 << 20),
    "fetch.max.bytes": str(64 << 20),
    "fetch.max.wait.ms": "100",
}
LARGEST_PIECE = 4 << 20
"""So many bytes, unpacked, are made into one Arrow batch; one record batch more at most. An answer without compression
is one piece. With pieces of 8 MB, larger than the rooms they are gathered in, most of that memory was new each time
(lz4: up to 13,000 page faults a query). With smaller ones, each turn between Python and the JVM costs 0.2 ms more."""
FIRST_BYTES_PER_OFFSET = 1024
SMALLEST_FETCH = 64 << 10
LONGEST_PAUSE_MS = 1_000
MOST_CLUSTERS = 8
"""So many sets of connections are kept in a process."""


class Reply(NamedTuple):
    """What came back. Not the `Answer`, which leads by its `Send` back to who waits: a circle would keep the memory of
    every answer until the garbage collector comes, and each answer would need fresh memory."""

    response: FetchResponse | None = None
    failure: Failure | None = None


def _answered(operation: Operation[Reply], answer: Answer, now_ms: int) -> None:
    operation.finish(Reply(answer.response, answer.failure))


class Worker:
    """Connections of this process to one cluster, with one set of settings."""

    def __init__(self, settings: Mapping[str, str], options: SourceOptions) -> None:
        prefer(os.environ.get("KOHORT_KERNEL", ""))
        self.cluster = Cluster({**DEFAULTS, **settings}, options)
        self.config = self.cluster.config
        self.engine = self.cluster.engine

    def send(self, node: Node, send: Send) -> None:
        with self.engine.shielded():
            self.engine.metadata.learn(node)
            self.engine.out.append(send)
            self.engine.pump()

    def wait(self, operation: Operation[Reply]) -> Reply:
        self.engine.run(lambda: operation.done, self.engine.now_ms() + 2 * self.config.request_timeout_ms)
        if not operation.done:
            raise TimedOut("a fetch got neither an answer nor an error")
        return operation.value()


_workers: dict[tuple[Any, ...], Worker] = {}


def worker_for(options: SourceOptions) -> Worker:
    """The connections of this process; made once, and anew in a forked child."""
    settings = settings_without_group(options.kafka)
    key = (os.getpid(), *sorted(settings.items()))
    worker = _workers.get(key)
    if worker is None:
        if len(_workers) >= MOST_CLUSTERS or any(old[0] != key[0] for old in _workers):
            close_workers()
        worker = _workers[key] = Worker(settings, options)
    return worker


def close_workers() -> None:
    """Closes the connections of this process; the next task makes new ones."""
    while _workers:
        _, worker = _workers.popitem()
        worker.cluster.close()


def read_range(
    wanted: OffsetRange, leader: Leader, options: SourceOptions, names: Sequence[str]
) -> Iterator[Any]:
    """The records of a range as pyarrow.RecordBatch, only the named columns."""
    from kohort.spark.executor.rows import Rows

    rows, worker = Rows(wanted.partition, names), worker_for(options)
    if wanted.open_end:
        latest = worker.cluster.latest([wanted.partition])[wanted.partition]
        wanted = replace(wanted, end=max(wanted.end, latest))
    yield from map(rows.batch, RangeReader(worker, wanted, leader, options).columns())


class RangeReader:
    def __init__(self, worker: Worker, wanted: OffsetRange, leader: Leader, options: SourceOptions) -> None:
        self._worker, self._options = worker, options
        self._partition, self._end = wanted.partition, wanted.end
        self._leader = leader
        self._position = wanted.start
        self._open_start = wanted.open_start
        self._bytes_per_offset = float(FIRST_BYTES_PER_OFFSET)
        self._failures = 0
        self._backoff = Backoff(worker.config.retry_backoff_ms, LONGEST_PAUSE_MS, lambda: 0.5)
        self._give_up = 0.0  # when there has been no progress for too long; 0: nothing is wrong
        self._damaged_at = -1
        self._aborted = worker.config.isolation_level == "read_committed"

    def columns(self) -> Iterator[Columns]:
        """The records in pieces of bounded size. DataLoss if some are not there and that is to be an error."""
        ahead = self._send(self._position)
        while self._position < self._end:
            data = self._take(ahead)
            records = memoryview(data.records or b"") if data is not None else memoryview(b"")  # type: ignore[arg-type]
            if data is None or not len(records):
                if data is not None:
                    self._nothing_there(data)
                if self._position < self._end:
                    ahead = self._send(self._position)
                continue
            self._open_start = False
            found = end_of(records)
            after = self._end if found is None else max(found[0], self._position)
            self._learn_size(len(records), after)
            if after < self._end:
                ahead = self._send(after)
            aborted = None
            if self._aborted:
                aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
            yield from self._decode(records, aborted, complete=found is not None)
            del data, records  # the next answer is received where this one was
            if self._position != after and self._position < self._end:
                ahead = self._send(self._position)  # what was sent ahead is of no use

    # --- asking -----------------------------------------------------------------------------------

    def _send(self, offset: int) -> Operation[Reply]:
        """A request for what follows an offset, on its way when this returns."""
        operation: Operation[Reply] = Operation()
        node = self._leader.node
        if node is None:
            operation.finish(Reply())
            return operation
        config, leader, partition = self._worker.config, self._leader, self._partition
        size = int(min(config.max_partition_fetch_bytes, self._fetch_size(offset)))

        def make(version: int) -> FetchRequest:
            if version < FIRST_VERSION:
                raise ValueError(
                    f"Fetch v{version} has no record batches; v{FIRST_VERSION} or later is needed"
                )
            asked = FetchPartition(
                partition.partition,
                current_leader_epoch=leader.leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=size,
            )
            # Without a rack the leader answers itself; a replica nearby would have to be looked for.
            return FetchRequest(
                max_wait_ms=config.fetch_max_wait_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=config.fetch_max_bytes,
                isolation_level=1 if config.isolation_level == "read_committed" else 0,
                topics=[FetchTopic(partition.topic, leader.topic_id, [asked])],
            )

        by_name = FIRST_VERSION_WITH_TOPIC_IDS - 1 if leader.topic_id == ZERO_UUID else None
        self._worker.send(
            node,
            Send(
                node.node_id,
                FetchRequest.API_KEY,
                make,
                "fetch.range",
                config.request_timeout_ms,
                max_version=by_name,
                on_answer=partial(_answered, operation),
            ),
        )
        return operation

    def _fetch_size(self, offset: int) -> float:
        """No more than the rest of the range seems to need: a short range should not bring megabytes."""
        return max(SMALLEST_FETCH, 1.1 * (self._end - offset) * self._bytes_per_offset)

    def _learn_size(self, size: int, after: int) -> None:
        self._bytes_per_offset = size / max(1, after - self._position)
        self._failures, self._give_up = 0, 0.0

    def _take(self, asked: Operation[Reply]) -> PartitionData | None:
        """The answer for the partition; None if it is to be asked again, from the position that holds now."""
        answer = asked.value() if asked.done else self._worker.wait(asked)
        if answer.failure is not None:
            if not answer.failure.is_retriable:
                raise error_for_failure(answer.failure, f"reading {self._partition}")
            self._try_again(f"{answer.failure.kind.value} {answer.failure.message}")
            return None
        if answer.response is None:
            self._try_again("the partition has no leader")
            return None
        response = answer.response
        code = response.error_code
        data: PartitionData | None = None
        for topic in response.responses:
            for each in topic.partitions:
                data, code = each, each.error_code or code
        if code == ErrorCode.NONE and data is not None:
            return data
        self._failed(ErrorCode(code))
        return None

    # --- what goes wrong --------------------------------------------------------------------------

    def _failed(self, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
        elif code in STALE_LEADER or code in STALE_TOPIC:
            self._try_again(code.name)
        else:
            raise error_for(code, f"reading {self._partition} from offset {self._position}")

    def _out_of_range(self) -> None:
        first = self._worker.cluster.earliest([self._partition])[self._partition]
        if not self._open_start:
            reason = unread(self._partition, self._position, self._end, self._options.group_id)
            self._lose(f"{reason}; the log begins at offset {first}")
        self._position = first if first > self._position else self._end

    def _nothing_there(self, data: PartitionData) -> None:
        """The log ends before the range does: that may be for a moment, while its leader changes."""
        now = time.monotonic()
        self._give_up = self._give_up or now + self._options.poll_timeout_ms / 1000
        if now < self._give_up:
            return
        end = data.last_stable_offset if self._aborted else data.high_watermark
        reason = unread(self._partition, self._position, self._end, self._options.group_id)
        self._lose(f"{reason}; the log ends at offset {end}")
        self._position = self._end

    def _try_again(self, obstacle: str) -> None:
        """After a pause, with the leader that the cluster names now."""
        now = time.monotonic()
        self._give_up = self._give_up or now + self._worker.config.default_api_timeout_ms / 1000
        if now >= self._give_up:
            what = f"{self._partition} from offset {self._position} to {self._end}"
            raise TimedOut(
                f"{what} could not be read for {self._worker.config.default_api_timeout_ms} ms: {obstacle}"
            )
        self._failures += 1
        log.info("%s: %s, trying again", self._partition, obstacle)
        time.sleep(self._backoff.after(self._failures) / 1000)
        snapshot = self._worker.cluster.look_up(frozenset((self._partition.topic,)))
        topic = snapshot.topics.get(self._partition.topic)
        known = self._leader.topic_id
        if topic is None or (ZERO_UUID not in (known, topic.topic_id) and topic.topic_id != known):
            what = "does not exist any more" if topic is None else "was deleted and made anew"
            reason = unread(self._partition, self._position, self._end, self._options.group_id)
            self._lose(f"{reason}; the topic {what}")
            self._position = self._end
            return
        info = topic.partitions.get(self._partition.partition)
        node = snapshot.nodes.get(info.leader_id) if info is not None else None
        self._leader = Leader(topic.topic_id, node, info.leader_epoch if info is not None else -1)

    def _lose(self, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(reason)
        log.warning("%s; failOnDataLoss=false: reading goes on", reason)

    # --- decoding ---------------------------------------------------------------------------------

    def _decode(
        self, records: memoryview, aborted: list[tuple[int, int]] | None, *, complete: bool
    ) -> Iterator[Columns]:
        """The records of one answer from the position on, which moves past them."""
        while len(records) and self._position < self._end:
            decoded = decode_columns(
                records,
                self._position,
                check_crcs=self._worker.config.check_crcs,
                aborted=aborted,
                max_bytes=LARGEST_PIECE,
            )
            columns = decoded.columns
            if len(columns) and int(columns.offsets[-1]) >= self._end:
                columns = columns.slice(0, bisect_left(columns.offsets, self._end))
            self._position = decoded.next_offset
            if len(columns):
                yield columns
            if decoded.error is not None:
                self._damaged(decoded.next_offset, decoded.error.message)
                return
            if not decoded.bytes_used:
                if not complete:
                    self._damaged(self._position, "the answer holds no whole batch")
                return
            records, aborted = records[decoded.bytes_used :], decoded.aborted

    def _damaged(self, offset: int, why: str) -> None:
        """Bytes may be hurt on their way: they are fetched once more before that is an error."""
        if self._position >= self._end:
            return
        if self._damaged_at == offset:
            raise CorruptRecord(
                f"{self._partition}: the batch at offset {offset} is damaged: {why}", self._partition, offset
            )
        self._damaged_at = offset
        log.warning(
            "%s: the batch at offset %d is damaged (%s), fetching it again", self._partition, offset, why
        )
