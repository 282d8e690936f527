"""The options of the source and the sink with their defaults and meanings; docs/settings.md is written from it."""

from __future__ import annotations

from typing import Final

from kohort.spark.formats.format_options import READ_TABLE, WRITE_TABLE, SparkOption

SOURCE_TABLE: Final[tuple[SparkOption, ...]] = (
    SparkOption(
        "subscribe",
        "",
        "The topics to read, with commas in between. One of subscribe, subscribePattern and assign is "
        "needed.",
    ),
    SparkOption(
        "subscribePattern",
        "",
        "A regular expression that is searched in the names of topics; `^…$` makes it fit the whole name.",
    ),
    SparkOption("assign", "", 'The partitions to read: `{"orders":[0,1]}`.'),
    SparkOption(
        "startingOffsets",
        "batch earliest, stream latest",
        "Where a query without a checkpoint begins: `earliest`, `latest`, or an offset for each "
        'partition, `{"orders":{"0":23,"1":-2}}` (-2 earliest, -1 latest).',
    ),
    SparkOption(
        "endingOffsets",
        "latest",
        "Where a batch ends, written as startingOffsets is. Batches only.",
    ),
    SparkOption(
        "startingTimestamp",
        "",
        "Begins with the first record at or after this time, in ms since 1970; goes before "
        "startingOffsetsByTimestamp and startingOffsets.",
    ),
    SparkOption("endingTimestamp", "", "Ends before the first record at or after this time. Batches only."),
    SparkOption(
        "startingOffsetsByTimestamp",
        "",
        'The same as startingTimestamp, with a time for each partition: `{"orders":{"0":1700000000000}}`.',
    ),
    SparkOption(
        "endingOffsetsByTimestamp",
        "",
        "The same as endingTimestamp, with a time for each partition. Batches only.",
    ),
    SparkOption(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What a partition does that has no record at or after the starting time: `error`, or `latest` to "
        "begin at its end.",
    ),
    SparkOption(
        "maxOffsetsPerTrigger",
        "",
        "The most offsets of one micro-batch, shared by what each partition has left. Without it a "
        "micro-batch takes all there is.",
    ),
    SparkOption(
        "minOffsetsPerTrigger",
        "",
        "A micro-batch waits until it has this many offsets, or until maxTriggerDelay is over.",
    ),
    SparkOption("maxTriggerDelay", "15m", "How long minOffsetsPerTrigger may hold a micro-batch back."),
    SparkOption(
        "minPartitions",
        "",
        "Divides large ranges of offsets into this many tasks. Without it there is one task for each "
        "partition.",
    ),
    SparkOption(
        "maxRecordsPerPartition",
        "",
        "Divides ranges of offsets so that a task reads no more than this many.",
    ),
    SparkOption(
        "failOnDataLoss",
        "true",
        "Whether a query ends when records that it should read are gone. `false` reads what is left.",
    ),
    SparkOption(
        "failOnCommitError",
        "false",
        "Whether a commit of the group that fails ends the query. `false` logs it and tries again.",
    ),
    SparkOption(
        "includeHeaders",
        "false",
        "Adds the column `headers`, which is null where a record has none.",
    ),
    SparkOption("groupIdPrefix", "spark-kafka-source", "The client id, if kafka.client.id is not given."),
    SparkOption(
        "groupMode",
        "member",
        "How a query takes part in the group of kafka.group.id: `member` joins it and has all partitions,"
        " `assign` only commits under its name, `shared` shares the partitions with other members.",
    ),
    SparkOption(
        "kafkaConsumer.pollTimeoutMs",
        "3000",
        "How long a task waits for records that should be there.",
    ),
    SparkOption(
        "fetchOffset.numRetries",
        "3",
        "How often topics and times that are not there (yet) are asked for again.",
    ),
    SparkOption("fetchOffset.retryIntervalMs", "1000", "How long to wait before such a retry."),
    SparkOption(
        "where",
        "",
        "A condition in SQL that chooses topics, partitions, offsets and times before anything is fetched.",
    ),
    SparkOption(
        "timestampsInOrder",
        "false",
        "Says that timestamps never go back within a partition, so that an upper bound in time ends the "
        "reading. Batches only.",
    ),
    SparkOption(
        "filterPushdown",
        "false",
        "Lets Spark hand the filters of the frame to the source. Batches only; from PySpark 4.1 on.",
    ),
    SparkOption(
        "count",
        "",
        "`headers` or `offsets`: the rows are numbers of records instead of records. Batches only.",
    ),
)

SINK_TABLE: Final[tuple[SparkOption, ...]] = (
    SparkOption("topic", "", "Where all rows go; without it each row says so in its column `topic`."),
    SparkOption(
        "includeHeaders",
        "false",
        "Accepted, as by Spark's connector: a column `headers` is written in any case.",
    ),
    SparkOption(
        "exactlyOnce",
        "false",
        "Whether a stream writes each row once: each task in a transaction, with an entry in a ledger. Streams only.",
    ),
    SparkOption(
        "transactionalIdPrefix",
        "kohort-spark",
        "How the transactional ids of exactlyOnce begin; the id of the query and the number of the task follow.",
    ),
    SparkOption(
        "ledgerTopic",
        "kohort-spark-ledger",
        "The compacted topic where exactlyOnce notes what each task has committed; created if it is not there.",
    ),
)

SOURCE_OPTIONS: Final = tuple(each.name for each in (*SOURCE_TABLE, *READ_TABLE))
SINK_OPTIONS: Final = tuple(each.name for each in (*SINK_TABLE, *WRITE_TABLE))
