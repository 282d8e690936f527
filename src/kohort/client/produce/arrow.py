"""Sends whole Arrow batches: they are partitioned and cut as columns, without an object per record. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kohort.client.core import arguments
from kohort.client.core.steps import Steps
from kohort.client.errors import IllegalState, WrongArgument, error_for
from kohort.client.produce.accumulator import NoRoom, TopicQueues, merge_limit
from kohort.client.produce.batch import Batch
from kohort.client.produce.calls import ProducerCalls
from kohort.client.produce.outgoing import Outgoing
from kohort.client.produce.partitioners import STICKY, murmur2
from kohort.wire.errors import ErrorCode


class WrittenRange(NamedTuple):
    """Records that were written one after the other; first_offset is -1 if the broker did not say it."""

    topic: str
    partition: int
    first_offset: int
    record_count: int


def send_arrow(
    calls: ProducerCalls[Any], topic: str | None, records: Any, wall_ms: int
) -> Steps[list[Batch]]:
    """Makes batches of the rows of a pyarrow RecordBatch or Table; waits for topics and for memory."""
    from kohort.wire.records.arrow_encode import outgoing_records

    outgoing = calls.outgoing
    if not outgoing.is_plain:
        raise IllegalState(
            "send_arrow takes columns of bytes or text: serializers and interceptors are for send()"
        )
    _check_table(records)
    calls.check_may_send()
    batches: list[Batch] = []
    deadline_ms = calls.now_ms() + calls.config.max_block_ms
    for name, rows in _by_topic(None if topic is None else arguments.topic_name(topic), records):
        if not len(rows):
            continue
        try:
            columns = outgoing_records(rows, timestamp=wall_ms)
        except (TypeError, ValueError) as error:
            raise WrongArgument(f"the records for topic {name} cannot be sent: {error}") from error
        queues = yield from calls.topic(name, deadline_ms)
        partitions = _partitions(outgoing, queues, rows, columns)
        groups = {STICKY: columns} if partitions is None else columns.by_partition(partitions)
        for partition, group in groups.items():
            for piece in group.cut(_batch_limit(calls, queues)):
                _check_size(calls, piece)
                batch = yield from _append(calls, queues, partition, piece, deadline_ms)
                batches.append(batch)
    return batches


def _check_table(records: Any) -> None:
    import pyarrow

    if not isinstance(records, (pyarrow.RecordBatch, pyarrow.Table)):
        raise WrongArgument(
            f"send_arrow takes a pyarrow RecordBatch or Table, not {arguments.shown(records)}"
        )


def _batch_limit(calls: ProducerCalls[Any], queues: TopicQueues) -> int:
    """Rows that come all at once make batches as large as merged ones."""
    return max(calls.outgoing.batch_limit, min(queues.merge_limit, merge_limit(calls.config)))


def _append(
    calls: ProducerCalls[Any], queues: TopicQueues, partition: int, piece: Any, deadline_ms: int
) -> Steps[Batch]:
    accumulator, encoded = calls.accumulator, None
    while True:
        if accumulator.unencoded and encoded is None:
            # The sender has enough to do: so two threads compress at once (with asyncio it makes no difference).
            encoded = calls.sender.encode_early(piece)
        # The sticky partition changes whenever it got a full batch.
        queue = queues.queues[queues.sticky if partition == STICKY else partition]
        batch = accumulator.append_columns(queue, piece, len(piece), piece.size, calls.now_ms(), encoded)
        if not isinstance(batch, NoRoom):
            return batch
        yield from calls.after(batch, piece.size, deadline_ms)
        queues = yield from calls.topic(queues.name, deadline_ms)


def _check_size(calls: ProducerCalls[Any], piece: Any) -> None:
    limit = min(calls.config.max_request_size, calls.config.buffer_memory)
    if len(piece) == 1 and piece.size > limit:
        raise error_for(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record takes {piece.size} bytes, which is more than max.request.size ({calls.config.max_request_size}) "
            f"or buffer.memory ({calls.config.buffer_memory}): raise these, or send smaller records",
        )


def _by_topic(topic: str | None, records: Any) -> Iterator[tuple[str, Any]]:
    """Yields each topic with its rows; a topic that the caller names is that of all rows."""
    if topic is not None:
        yield topic, records
        return
    if "topic" not in records.schema.names:
        raise WrongArgument("name the topic, or give the records a column 'topic'")
    import pyarrow.compute as pc

    column = records.column("topic").cast("string")
    names = pc.unique(column).to_pylist()
    if None in names:
        raise WrongArgument("the column 'topic' has nulls: every record needs a topic")
    for name in names:
        yield name, records.filter(pc.equal(column, name)) if len(names) > 1 else records


def _partitions(outgoing: Outgoing, queues: TopicQueues, rows: Any, columns: Any) -> Sequence[int] | None:
    """Returns the partition of each row; None if all of them may go to any partition."""
    count, names = len(queues.queues), rows.schema.names
    given: list[int | None] | None = None
    if "partition" in names and rows.column("partition").null_count < len(rows):
        given = rows.column("partition").to_pylist()
        for partition in set(given):
            if partition is not None:
                outgoing.partition_for(queues, partition, None)  # raises if it is not there
        if None not in given:
            return given  # type: ignore[return-value]
    chosen: Sequence[int] | None = None
    keyless = "key" not in names or outgoing.config.partitioner_ignore_keys
    if outgoing.uses_murmur2 and not keyless:
        chosen = _of_hashes(columns.key_hashes(murmur2), count)
    elif not (outgoing.null_keys_stick and keyless):
        chosen = [outgoing.partitioner(queues.name, key, count) for key in columns.key_list()]
    if given is None:
        return chosen
    chosen = [STICKY] * len(given) if chosen is None else chosen
    return [
        int(other) if partition is None else partition for partition, other in zip(given, chosen, strict=True)
    ]


def _of_hashes(hashes: Any, count: int) -> Any:
    if isinstance(hashes, list):
        return [STICKY if hashed < 0 else (hashed & 0x7FFF_FFFF) % count for hashed in hashes]
    partitions = (hashes & 0x7FFF_FFFF) % count
    partitions[hashes < 0] = STICKY
    return partitions


def leaves(batches: Sequence[Batch]) -> Iterator[Batch]:
    """Yields the batches, or the parts of those that were split."""
    for batch in batches:
        if batch.parts:
            yield from leaves([part for _, part in batch.parts])
        else:
            yield batch


def ranges(batches: Sequence[Batch]) -> list[WrittenRange]:
    """Returns where all batches were written, once they are done; raises the first error."""
    written = []
    for batch in leaves(batches):
        if batch.error is not None:
            raise batch.error
        written.append(WrittenRange(batch.queue.topic, batch.queue.index, batch.base_offset, batch.count))
    return written
