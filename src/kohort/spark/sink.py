"""The sink `format("kohort")`, for `df.write` and `df.writeStream`: writes rows as records, by the idempotent producer.

    df.selectExpr("id AS key", "to_json(struct(*)) AS value").write.format("kohort").mode("append") \\
        .option("kafka.bootstrap.servers", "127.0.0.1:9092").option("topic", "orders").save()

Columns, as in Spark's Kafka connector: `value` (string or binary), and if they are there `key` (string or binary),
`headers` (array<struct<key:string,value:binary>>), `partition` (int) and `topic` (string); others are left alone. The
option `topic` wins over the column. A null partition is chosen by the key, as every Kafka client does.
With `valueFormat` or `keyFormat` (json, avro, protobuf, string) these columns are encoded, and have any type; without a
column `value` the columns that have no meaning of their own make it, as a struct.

A task tells Spark that it is done when every one of its rows is acknowledged by all in-sync replicas. Within one
attempt no row is written twice; an attempt that failed may have written some rows, and the next one writes all of them
again: at least once, as with every Kafka sink that is not a transaction.

With `exactlyOnce` a stream writes each row once: a task writes its rows and an entry of a ledger in one transaction;
see `exactly_once`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from kohort.client.config import ADMIN, PRODUCER, read_config
from kohort.client.errors import FatalProducerError, TransactionFailed
from kohort.client.producer import ArrowDelivery, Producer
from kohort.settings import SettingError, nearest
from kohort.spark.exactly_once import (
    BATCH_ID,
    DEFAULT_LEDGER,
    DEFAULT_PREFIX,
    QUERY_ID,
    ExactlyOnce,
    LedgerEntry,
    RowsHash,
    StreamTask,
    ensure_ledger,
    ledger_partition,
    read_entry,
)
from kohort.spark.formats.encoding import ColumnEncoding, RowMisfit, encoded
from kohort.spark.formats.format_options import BINARY, WRITE_OPTIONS, RecordFormats, is_format_option
from kohort.spark.formats.write_planning import plan_encoding
from kohort.spark.options import KafkaSettings, OptionError, kafka_settings, record_formats
from kohort.spark.pyspark_api import DataSourceStreamArrowWriter
from kohort.wire.errors import ErrorCode, KafkaError, KohortError
from kohort.wire.records.batch import HEADER_SIZE

log = logging.getLogger("kohort.spark.sink")

COLUMNS = ("topic", "key", "value", "headers", "partition")
# What Spark itself adds to the options of a writer.
_OF_SPARK = ("topic", "path", "checkpointlocation", "queryname", "outputmode", "includeheaders")
_ONCE = ("exactlyOnce", "transactionalIdPrefix", "ledgerTopic")
_TRANSACTION_TIMEOUT_MS = "600000"  # a task may take longer than Kafka's default of a minute
_NOT_SUPPORTED = {
    "key.serializer": " as keys are serialized with ByteArraySerializer.",
    "value.serializer": " as value are serialized with ByteArraySerializer.",
    "transactional.id": ": with the option exactlyOnce a stream has transactions, and transactionalIdPrefix names them",
    "interceptor.classes": "",
}
_CLOSE_S = 10.0
_RECORD_OVERHEAD = 36  # what a record takes besides key, value and headers, at most


# --- options and columns ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of the sink, checked. It is pickled for executors."""

    topic: str | None
    kafka: dict[str, str] = field(default_factory=KafkaSettings)
    """The settings of the producer, which were given with the prefix `kafka.`, without it."""
    largest: int = 0
    """No record is larger than so many bytes."""
    formats: RecordFormats = BINARY
    once: ExactlyOnce | None = None
    """How a stream writes each row once; None: at least once."""
    encodings: tuple[ColumnEncoding, ...] = ()
    """How keys and values are encoded; planned when the type of the rows is known."""


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Checks everything that can be checked without a broker; OptionError says what is wrong."""
    options = {name.lower(): value for name, value in given.items()}
    kafka = kafka_settings(options, _NOT_SUPPORTED)
    for name in options:
        if (
            name.startswith("kafka.")
            or name in (*_OF_SPARK, *map(str.lower, _ONCE))
            or is_format_option(name, WRITE_OPTIONS)
        ):
            continue
        if name in PRODUCER.settings:
            raise OptionError(f"unknown option {name}: settings of Kafka are written as kafka.{name}")
        known = {each.lower(): each for each in (*_OF_SPARK, *_ONCE, *WRITE_OPTIONS)}
        close = nearest(name, known)
        for lower, spelled in known.items():
            close = close.replace(f" {lower}?", f" {spelled}?")
        raise OptionError(f"unknown option {name} for the kohort sink{close}")
    if not kafka.get("bootstrap.servers", "").strip():
        raise OptionError(
            "Kafka option bootstrap.servers is not set. Please make sure it is set and retry. "
            "(option 'kafka.bootstrap.servers')"
        )
    once = _exactly_once(options)
    transactional = {} if once is None else {"transactional.id": once.prefix}
    try:
        config, _ = read_config(PRODUCER, {**kafka, **transactional}, {})
    except SettingError as error:
        raise OptionError(f"options with kafka. are settings of the producer: {error}") from None
    largest = min(config.max_request_size, config.buffer_memory)
    return SinkOptions(options.get("topic"), kafka, largest, record_formats(options), once)


def _exactly_once(options: Mapping[str, str]) -> ExactlyOnce | None:
    said = options.get("exactlyonce", "false").strip().lower()
    if said not in ("true", "false"):
        raise OptionError(f"exactlyOnce is true or false, not {said!r}")
    given = {name: options[name.lower()].strip() for name in _ONCE[1:] if name.lower() in options}
    if said == "false":
        for name in given:
            raise OptionError(f"{name} has no meaning without exactlyOnce=true")
        return None
    for name, value in given.items():
        if not value:
            raise OptionError(f"{name} must not be empty")
    ledger = given.get("ledgerTopic", DEFAULT_LEDGER)
    if ledger == options.get("topic"):
        raise OptionError(
            f"ledgerTopic must be another topic than the one that rows are written to ({ledger})"
        )
    return ExactlyOnce(given.get("transactionalIdPrefix", DEFAULT_PREFIX), ledger)


_TEXT_OR_BYTES = "string or binary"
_TYPES = {
    "topic": "string",
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": "array<struct<key:string,value:binary>>",
    "partition": "int",
}


def planned(options: SinkOptions, schema: StructType) -> tuple[SinkOptions, tuple[str, ...]]:
    """The options with how rows of this type are encoded, and the columns that are written."""
    columns = check_columns(schema, options.topic, options.formats)
    if not options.formats.typed:
        return options, columns
    try:
        return replace(options, encodings=plan_encoding(options.formats, schema, options.topic)), columns
    except SettingError as error:
        raise OptionError(str(error)) from None


def check_columns(schema: StructType, topic: str | None, formats: RecordFormats = BINARY) -> tuple[str, ...]:
    """The columns that are written, in this order; OptionError, in the connector's words, if they cannot be.

    Columns with a format may have any type, which is looked at when their encoding is planned.
    """
    types = {each.name: each.dataType for each in schema.fields}
    typed = {each.column for each in formats.typed}
    if "value" in typed and formats.value.format != "string":
        types.setdefault("value", BinaryType())  # it is made of the other columns
    if topic is None and "topic" not in types:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in types:
        raise OptionError("Required attribute 'value' not found")
    for name in COLUMNS:
        kind = types.get(name)
        if kind is not None and name not in typed and not _fits(name, kind):
            raise OptionError(
                f"{name} attribute unsupported type {kind.simpleString()}. {name} must be a(n) {_TYPES[name]}"
            )
    return tuple(name for name in COLUMNS if name in types and not (name == "topic" and topic is not None))


def _fits(name: str, kind: DataType) -> bool:
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "headers":
        return (
            isinstance(kind, ArrayType)
            and isinstance(kind.elementType, StructType)
            and kind.elementType.names == ["key", "value"]
            and isinstance(kind.elementType["key"].dataType, StringType)
            and isinstance(kind.elementType["value"].dataType, BinaryType)
        )
    return isinstance(kind, StringType) or (name != "topic" and isinstance(kind, BinaryType))


# --- writers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task wrote, all of it acknowledged."""

    task: int
    rows: int


class RowsNotWritten(KohortError):
    """Rows of a task were not written, or perhaps not; the text says which and why."""

    what_to_do = (
        "Spark tries the task again by itself, and may write some rows twice. If it stays, the text names"
        " the broker's reason."
    )


class _RowWriter:
    """What the batch and the stream writer have in common. It is pickled for executors."""

    def __init__(self, options: SinkOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task, attempt = _task()
        who = f"task {task}, attempt {attempt}"
        if self.options.once is not None:
            return Written(task, write_rows_once(self.options, self.columns, iterator, who, _stream_task()))
        return Written(task, write_rows(self.options, self.columns, iterator, who))


class BatchWriter(_RowWriter, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log.info("%d rows written by %d tasks", _rows(messages), len(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log.warning(
            "the write failed; %d rows of its other tasks were written before and stay", _rows(messages)
        )


class StreamWriter(_RowWriter, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.info("batch %d: %d rows written by %d tasks", batchId, _rows(messages), len(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.warning(
            "batch %d failed; %d rows of its other tasks were written before and will be again when it is repeated",
            batchId, _rows(messages),
        )  # fmt: skip


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write`; refuses what cannot be written before any row is looked at."""
    if overwrite:
        raise OptionError(
            "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and ErrorIfExists (default). "
            'Here Spark takes only Append: write .mode("append")'
        )
    read = read_sink_options(options)
    if read.once is not None:
        raise OptionError(
            "exactlyOnce is for writeStream: a batch has no number by which Spark's second attempt could be known. "
            "Leave it out, or write by a stream with trigger(availableNow=True)"
        )
    return BatchWriter(*planned(read, schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `df.writeStream`, in every output mode: a topic is only ever appended to."""
    return StreamWriter(*planned(read_sink_options(options), schema))


def _rows(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Written))


def _task() -> tuple[int, int]:
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.partitionId(), context.attemptNumber()) if context is not None else (0, 0)


def _stream_task() -> StreamTask:
    """The partition, batch and query of this task; they are the same for every attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch = context.getLocalProperty(BATCH_ID) if context is not None else None
    if context is None or query is None or batch is None:
        raise OptionError(
            "exactlyOnce needs the number of the batch and the id of the query, which Spark gives the tasks of a "
            "stream with a checkpointLocation; this task has none"
        )
    return StreamTask(query, int(batch), context.partitionId())


# --- in a task ----------------------------------------------------------------------------------------

# Kept for the next task of this worker process, which runs one at a time. A producer that failed is thrown away.
_producers: dict[tuple[tuple[str, str], ...], Producer] = {}


def write_rows(
    options: SinkOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch], who: str
) -> int:
    """Writes all rows and waits until each is acknowledged; returns how many. RowsNotWritten says which were not."""
    settings = tuple(sorted(options.kafka.items()))
    producer = _producers.pop(settings, None)
    if producer is None:
        producer = Producer({"client.id": "kohort-spark-sink", **options.kafka})
    try:
        rows = _Task(producer, options, columns, who).run(batches)
    except BaseException:
        # Records that still wait must not be sent after the task has reported its failure.
        producer.close(0)
        raise
    _producers[settings] = producer
    return rows


def write_rows_once(
    options: SinkOptions,
    columns: tuple[str, ...],
    batches: Iterator[pa.RecordBatch],
    who: str,
    task: StreamTask,
) -> int:
    """Writes all rows and the task's entry of the ledger in one transaction, unless an attempt before has done so."""
    once = options.once
    assert once is not None, "the option was given"
    name = task.transactional_id(once)
    shared = {key: value for key, value in options.kafka.items() if key in ADMIN.settings}
    seen, who = RowsHash(), f"{who} of batch {task.batch}"
    count = ensure_ledger(shared, once.ledger)
    partition = ledger_partition(name, count)
    producer = Producer(
        {
            "client.id": "kohort-spark-sink",
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            **options.kafka,
            "transactional.id": name,
        }
    )
    try:
        producer.init_transactions()  # from here on no earlier attempt can commit
        timeout_s = int(options.kafka.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)) / 1000
        entry = read_entry(shared, once.ledger, partition, name, timeout_s)
        if entry is not None and entry.batch >= task.batch:
            _check_repeated(entry, task, columns, batches, seen, who)
            log.info("%s has written its %d rows before", who, entry.rows)
            return entry.rows
        with producer.transaction():
            rows = _Task(producer, options, columns, who, seen).run(batches)
            made = LedgerEntry(task.batch, rows, seen.hexdigest())
            producer.send(once.ledger, made.encode(), key=name, partition=partition)
        return rows
    except (FatalProducerError, TransactionFailed) as error:
        raise RowsNotWritten(
            f"the transaction of {who} was not committed: {error}. None of its rows are seen; a retry writes them."
        ) from error
    finally:
        producer.close(_CLOSE_S)


def _check_repeated(
    entry: LedgerEntry,
    task: StreamTask,
    columns: tuple[str, ...],
    batches: Iterator[pa.RecordBatch],
    seen: RowsHash,
    who: str,
) -> None:
    """Fails if the rows are not those that an attempt before has committed: then some would be lost or doubled."""
    if entry.batch > task.batch:
        raise RowsNotWritten(
            f"{who} comes after batch {entry.batch} of the same query was committed: its checkpoint is older than what "
            "was written. Restore the newer checkpoint, or begin the query with a new checkpointLocation."
        )
    for batch in batches:
        if batch.num_rows:
            seen.add(_chosen(batch, columns))
    if (seen.rows, seen.hexdigest()) != (entry.rows, entry.hash):
        raise RowsNotWritten(
            f"{who} has {seen.rows} rows, but an attempt before has committed {entry.rows} other ones: with "
            "exactlyOnce a batch must have the same rows in the same order and partitions each time. Leave out "
            "rand(), current_timestamp() and what else changes, sort within partitions after a shuffle, and keep "
            "spark.sql.shuffle.partitions."
        )


def _chosen(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """The columns that decide what is written, as they come from Spark."""
    return batch.select([name for name in batch.schema.names if name in columns] or batch.schema.names)


class _Task:
    """One attempt to write the rows of one partition; with `seen` in a transaction, which notes them."""

    def __init__(
        self,
        producer: Producer,
        options: SinkOptions,
        columns: tuple[str, ...],
        who: str,
        seen: RowsHash | None = None,
    ) -> None:
        self._producer = producer
        self._options = options
        self._columns = columns
        self._who = who
        self._seen = seen
        self._sent = 0  # rows handed to the producer
        self._acknowledged = 0
        self._under_way: deque[tuple[ArrowDelivery, int, int]] = deque()

    def run(self, batches: Iterator[pa.RecordBatch]) -> int:
        for batch in batches:
            if batch.num_rows:
                if self._seen is not None:
                    self._seen.add(_chosen(batch, self._columns))
                self._send(self._records(batch))
            while self._under_way and self._under_way[0][0].done():
                self._settle()
        while self._under_way:
            self._settle()
        assert self._acknowledged == self._sent, "every row is accounted for"
        return self._sent

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are written, encoded as the options say."""
        if not self._options.encodings:
            return batch.select(list(self._columns))
        try:
            return encoded(batch, self._options.encodings, self._columns)
        except RowMisfit as misfit:
            raise RowsNotWritten(
                f"row {self._sent + misfit.row} of {self._who} was not written: {misfit}. "
                f"{self._aftermath('it')}"
            ) from misfit

    def _send(self, rows: pa.RecordBatch) -> None:
        """Checks all rows before the first is sent, so that most wrong rows leave no half of a batch behind."""
        self._check_topics(rows)
        self._check_sizes(rows)
        self._check_partitions(rows)
        first, last = self._sent, self._sent + rows.num_rows - 1
        try:
            delivery = self._producer.send_arrow(self._options.topic, rows)
        except (KohortError, ValueError, TypeError) as error:
            self._fail(f"rows {first} to {last}", error)
        self._under_way.append((delivery, first, last))
        self._sent += rows.num_rows

    def _aftermath(self, what: str) -> str:
        if self._seen is not None:
            return f"The transaction is aborted, with the {self._acknowledged} rows before {what}."
        return f"{self._acknowledged} rows before {what} are written; a retry writes these again."

    def _settle(self) -> None:
        delivery, first, last = self._under_way.popleft()
        try:
            written = delivery.result()
        except KohortError as error:
            self._fail(f"some or all of the rows {first} to {last}", error)
        self._acknowledged += sum(each.record_count for each in written)

    def _fail(self, rows: str, error: Exception) -> NoReturn:
        code = error.code.name if isinstance(error, KafkaError) else type(error).__name__
        topic = f" to topic {self._options.topic}" if self._options.topic is not None else ""
        raise RowsNotWritten(
            f"{rows} of {self._who} were not written{topic}: {code}: {error}. {self._aftermath('them')}"
        ) from error

    # --- what can be wrong with rows --------------------------------------------------------------

    def _check_topics(self, rows: pa.RecordBatch) -> None:
        if self._options.topic is None and rows.column("topic").null_count:
            raise RowsNotWritten(
                "The Kafka message data sent to the producer contains a null topic. Use the ``topic`` option for "
                f"setting a default topic. It is in {self._named(pc.is_null(rows.column('topic')))}."
            )

    def _check_sizes(self, rows: pa.RecordBatch) -> None:
        room = self._options.largest - HEADER_SIZE - _RECORD_OVERHEAD
        if rows.nbytes <= room:
            return
        sizes = _lengths(rows, "value")
        if "key" in self._columns:
            sizes = pc.add(sizes, _lengths(rows, "key"))
        too_large = pc.greater(sizes, room)
        if pc.any(too_large).as_py():
            raise RowsNotWritten(
                f"{ErrorCode.MESSAGE_TOO_LARGE.name}: {self._named(too_large)} would be a record of "
                f"{pc.max(sizes).as_py()} bytes, more than max.request.size or buffer.memory allows "
                f"({self._options.largest}). Set the option kafka.max.request.size (and max.message.bytes of the "
                "topic), or write smaller records."
            )

    def _check_partitions(self, rows: pa.RecordBatch) -> None:
        if "partition" not in self._columns or rows.column("partition").null_count == rows.num_rows:
            return
        partitions = rows.column("partition")
        named = {self._options.topic: None} if self._options.topic is not None else {}
        topics = named or dict.fromkeys(pc.unique(rows.column("topic")).to_pylist())
        for topic in topics:
            try:
                count = len(self._producer.partitions_for(topic))
            except KohortError as error:
                self._fail(f"rows {self._sent} to {self._sent + rows.num_rows - 1}", error)
            wrong = pc.or_(pc.less(partitions, 0), pc.greater_equal(partitions, count)).fill_null(False)
            if self._options.topic is None:
                wrong = pc.and_(wrong, pc.equal(rows.column("topic"), topic))
            if pc.any(wrong).as_py():
                partition = partitions.filter(wrong)[0].as_py()
                raise RowsNotWritten(
                    f"Partition {partition} of topic {topic} with partition count {count} is not present in metadata. "
                    f"It is in {self._named(wrong)}."
                )

    def _named(self, mask: pa.BooleanArray) -> str:
        """The rows where the mask is true, counted from the first row of the task: `row 7 (and 3 more) of task 0`."""
        found = pc.indices_nonzero(mask)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return f"row {self._sent + found[0].as_py()}{more} of {self._who}"


def _lengths(rows: pa.RecordBatch, name: str) -> Any:
    """The size of each value in bytes; null has none."""
    column = rows.column(name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return pc.binary_length(column).cast(pa.int64()).fill_null(0)
