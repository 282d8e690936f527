"""The data source `format("kohort")`, which Spark finds by its name, and its batch reader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.settings import SettingError
from kohort.spark.driver.planning import batch_ranges, restrict, split
from kohort.spark.executor.tasks import RangePartition, RangesReader
from kohort.spark.executor.worker_process import keep_what_is_loaded
from kohort.spark.formats.format_options import CORRUPT, ParseMode, RecordFormats
from kohort.spark.formats.planning import CORRUPT_TYPE, plan_decoding, typed_columns
from kohort.spark.offsets import Offsets
from kohort.spark.options import (
    FIXED_SETTINGS,
    AtOffsets,
    CountFrom,
    Edge,
    OptionError,
    SourceOptions,
    named_topics,
    read_source_options,
    read_strategy,
    record_formats,
    settings_without_group,
)
from kohort.spark.pyspark_api import HAS_ADMISSION_CONTROL
from kohort.spark.restriction import HIGHEST

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from kohort.spark.driver.offset_resolver import OffsetResolver
    from kohort.spark.driver.stream import StreamReader

log = logging.getLogger("kohort.spark")

T = TypeVar("T")

TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}

COUNTS = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("records", LongType()),
    ]
)
"""The columns of a frame with the option `count`: a row for each task."""


class KohortDataSource(DataSource):
    """Reads and writes topics of Kafka or Kohort, as a member of a consumer group; no jar is needed.

    orders = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders")
        .option("kafka.group.id", "orders-etl")
        .load()
    )

    Columns: key, value (binary), topic, partition, offset, timestamp, timestampType, and headers with `includeHeaders`;
    `.schema("value binary, offset bigint")` leaves columns out, and they are not decoded then.

    Which records: `subscribe` (topics, with commas), `subscribePattern` (searched in names) or `assign`
    (`{"orders":[0,1]}`); `startingOffsets`, `endingOffsets` (earliest, latest or `{"orders":{"0":23,"1":-2}}`),
    `startingTimestamp`, `endingTimestamp`, `startingOffsetsByTimestamp`, `endingOffsetsByTimestamp`,
    `startingOffsetsByTimestampStrategy` (error, latest).
    How much at once: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`; `minPartitions`,
    `maxRecordsPerPartition` divide it into tasks.
    The group: `kafka.group.id`, `groupMode` (member, assign, shared), `failOnCommitError`.
    `failOnDataLoss` (true), `includeHeaders` (false), and any setting of the consumer as `kafka.NAME`.
    Typed columns: `valueFormat`, `keyFormat` (json, avro, protobuf, string), `valueSchema`, `keySchema` or
    `schema.registry.url`, `mode` (FAILFAST, PERMISSIVE, DROPMALFORMED); docs/spark-formats.md has the rest.
    """

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options.items()))
        keep_what_is_loaded()

    def schema(self) -> StructType:
        if "count" in self.options:
            return COUNTS
        wanted = str(self.options.get("includeheaders", "false")).strip().lower() == "true"
        formats, types = record_formats(self.options), dict(TYPES)
        if formats.typed:
            types |= _typed(typed_columns, formats, named_topics(read_strategy(self.options)))
        return StructType([StructField(name, types[name]) for name in types if wanted or name != "headers"])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = with_decoding(read_source_options(self.options, streaming=False), schema)
        keep_what_is_loaded()
        if options.count_from is not None:
            return _counting_reader(options, schema)
        kind = FilteringReader if options.filter_pushdown else KohortReader
        return kind(options, columns_of(schema, options.formats))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = with_decoding(read_source_options(self.options, streaming=True), schema)
        keep_what_is_loaded()
        return _stream_reader()(options, columns_of(schema, options.formats))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from kohort.spark import sink

        made: DataSourceWriter = sink.writer(self.options, schema, overwrite)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from kohort.spark import sink

        made: DataSourceStreamWriter = sink.stream_writer(self.options, schema, overwrite)
        return made


def _stream_reader() -> type[StreamReader]:
    """The reader of a stream that this PySpark can call."""
    if HAS_ADMISSION_CONTROL:
        from kohort.spark.driver.admitting_stream import KohortStreamReader

        return KohortStreamReader
    from kohort.spark.driver.remembering_stream import RememberingStreamReader

    return RememberingStreamReader


def with_decoding(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options with what executors need to decode the columns that are wanted; OptionError if that cannot be."""
    if not options.formats.typed or options.count_from is not None:
        return options
    decoding = _typed(plan_decoding, options.formats, schema, named_topics(options.strategy))
    return replace(options, decoding=decoding)


def _typed(plan: Callable[..., T], *given: Any) -> T:
    try:
        return plan(*given)
    except SettingError as error:
        raise OptionError(str(error)) from None


def columns_of(schema: StructType, formats: RecordFormats | None = None) -> tuple[str, ...]:
    """The names of the columns that are wanted; OptionError if records have no such column.

    Typed columns are not looked at: `plan_decoding` has compared them with their schema.
    """
    decoded = () if formats is None else tuple(each.column for each in formats.typed)
    types = dict(TYPES)
    if formats is not None and decoded and formats.mode is ParseMode.PERMISSIVE:
        types[CORRUPT] = CORRUPT_TYPE
    for field in schema.fields:
        kind = types.get(field.name)
        if kind is None:
            raise OptionError(f"records have no column '{field.name}'; they have {', '.join(types)}")
        if field.name in decoded:
            continue
        if field.dataType.simpleString() != kind.simpleString():
            raise OptionError(
                f"the column '{field.name}' of records is {kind.simpleString()}, not {field.dataType.simpleString()}: "
                "read it as it is and cast it"
            )
    return tuple(schema.fieldNames())


class KohortReader(RangesReader, DataSourceReader):
    """Reads a batch, whose offsets are looked up when Spark plans it."""

    def partitions(self) -> Sequence[InputPartition]:
        from kohort.client.embedding import ClusterSession
        from kohort.spark.driver.offset_resolver import OffsetResolver

        options = self.options
        if options.wanted.is_nothing:
            return []
        with ClusterSession({**settings_without_group(options.kafka), **FIXED_SETTINGS}) as session:
            resolver = OffsetResolver(session, options)
            leaders = resolver.partitions()
            start, end = resolver.starting(leaders), resolver.ending(leaders)
            first, after = _at_wanted_times(resolver, options, end)
        _check_specified(options, start, end)
        if options.count_from is CountFrom.OFFSETS and leaders:
            _check_not_compacted(options, sorted({partition.topic for partition in leaders}))
        # Spark plans a frame once, and may evaluate it again when there are more records: so each task looks for
        # itself where the log begins and ends by then.
        ranges = [
            replace(
                each, open_start=options.starting is Edge.EARLIEST, open_end=options.ending is Edge.LATEST
            )
            for each in batch_ranges(start, end)
        ]
        if not options.wanted.is_everything:
            ranges = [
                part
                for each in ranges
                for part in restrict(
                    each, options.wanted.offsets, first.get(each.partition), after.get(each.partition)
                )
            ]
        if options.max_records_per_partition is not None or (options.min_partitions or 0) > len(ranges):
            ranges = split(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(each, leaders[each.partition]) for each in ranges]


class FilteringReader(KohortReader):
    """Reads a batch, and takes over what it can of the filters that Spark would apply to it.

    Spark asks for `pushFilters` before `partitions`. A reader that has this method is refused by a session whose
    `spark.sql.python.filterPushdown.enabled` is false, which is why `KohortReader` does not have it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        from kohort.spark.driver.filters import push

        pushed = push(filters, self.columns)
        self.options = replace(self.options, wanted=self.options.wanted & pushed.restriction)
        log.info(
            "filters that choose what is read: %s; filters that are left to Spark: %s",
            ", ".join(map(str, pushed.taken)) or "none",
            ", ".join(map(str, pushed.left)) or "none",
        )
        return pushed.left


def _counting_reader(options: SourceOptions, schema: StructType) -> KohortReader:
    if schema.simpleString() != COUNTS.simpleString():
        raise OptionError(
            f"with count the columns are {', '.join(COUNTS.fieldNames())}: leave out schema(...)"
        )
    if options.filter_pushdown:
        raise OptionError("count cannot go with filterPushdown: write the condition as the option where")
    return KohortReader(options, tuple(COUNTS.fieldNames()))


def _check_not_compacted(options: SourceOptions, topics: Collection[str]) -> None:
    """OptionError if offsets cannot be counted as records, as far as the configuration says."""
    from kohort.client.admin import Admin
    from kohort.client.config import ADMIN

    settings = {name: value for name, value in options.kafka.items() if name in ADMIN.settings}
    with Admin(settings) as admin:
        for topic, configs in admin.topic_configs(*topics).items():
            policy = configs["cleanup.policy"].value
            if "compact" in str(policy):
                raise OptionError(
                    f"count=offsets: topic '{topic}' is compacted ({policy}): use count=headers"
                )


def _at_wanted_times(
    resolver: OffsetResolver, options: SourceOptions, end: Offsets
) -> tuple[Offsets, Offsets]:
    """The offsets before which, and from which on, no record has a wanted time, as far as that is certain.

    `end` was asked for before: where no record is late enough, reading begins there, and later ones are not missed.
    Kafka finds the first record at or after a time, whatever the order of the times is. What comes after the first
    record that is too late may be early enough again, unless the user says that times are in order. Kafka takes
    negative times for names of offsets.
    """
    times, first, after = options.wanted.times, Offsets(), Offsets()
    if times.first > 0:
        first = {p: end[p] if at is None else at for p, at in resolver.at_times(times.first, end).items()}
    if options.timestamps_in_order and -1 <= times.last < HIGHEST:
        found = resolver.at_times(times.last + 1, end)
        after = {p: at for p, at in found.items() if at is not None}
    return first, after


def _check_specified(options: SourceOptions, start: Offsets, end: Offsets) -> None:
    """Compares the offsets that the user wrote with each other, before they are compared with the log."""
    if not isinstance(options.starting, AtOffsets) or not isinstance(options.ending, AtOffsets):
        return
    for partition, first in sorted(options.starting.offsets.items()):
        last = options.ending.offsets.get(partition, -1)
        if last >= 0 and first > last:
            raise ValueError(
                f"The specified start offset {first} is greater than the end offset {last} for topic "
                f"{partition.topic} partition {partition.partition}."
            )
