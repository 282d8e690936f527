"""A job for Spark Connect: `python -m tests.interop.connect_job REMOTE BOOTSTRAP TOPIC COPY GROUP FOLDER`.

Reads a topic as a batch, copies it to another one as a batch and as a stream, streams it into Parquet, asks a running
query for its lag, and prints what it found. The client needs Kohort only for the lag, and to register the source.
"""

from __future__ import annotations

import sys
import time
from typing import Any

PATIENCE_S = 180


def main(remote: str, bootstrap: str, topic: str, copy: str, group: str, folder: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col, expr

    spark = SparkSession.builder.remote(remote).getOrCreate()

    def options(reader: Any, of: str = topic) -> Any:
        return reader.format("kohort").option("kafka.bootstrap.servers", bootstrap).option("subscribe", of)

    batch = options(spark.read).load()
    print("batch", batch.count(), batch.where(col("partition") == 1).count())
    writer = batch.select("value").where("partition = 0").write.format("kohort").mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", copy).save()

    stream = options(spark.readStream).option("startingOffsets", "earliest").option("kafka.group.id", group)
    rows = stream.option("kafka.session.timeout.ms", 300_000).load().select("partition", "offset", "value")
    query = (
        rows.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    print("stream", spark.read.parquet(f"{folder}/out").distinct().count())

    again = options(spark.readStream).option("startingOffsets", "earliest").load().where("partition = 1")
    query = (
        again.select(expr("string(value)").alias("value"))
        .writeStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", copy)
        .option("checkpointLocation", f"{folder}/copy")
        .start()
    )
    until_s = time.monotonic() + PATIENCE_S
    while (query.lastProgress or {"sources": []})["sources"] == [] and time.monotonic() < until_s:
        query.awaitTermination(1)
    query.processAllAvailable()
    assert not [name for name in sys.modules if name.split(".")[0] == "kohort"], "the client needs no Kohort"
    from kohort.spark import lag
    from kohort.wire.errors import KohortError

    try:
        print("lag", sorted(lag(query).values()))
    except KohortError as error:
        print("lag", error)
    query.stop()
    print("copy", options(spark.read, copy).load().count())
    try:
        options(spark.read).option("startingOffset", "earliest").load().count()
    except Exception as error:
        print("refused", "unknown option startingoffset" in str(error))
    from kohort.spark import KohortDataSource

    try:
        spark.dataSource.register(
            KohortDataSource
        )  # where a cluster does not look for packages named pyspark_*
        said = "registered"
    except Exception as error:  # this cluster has looked, and PySpark 4.0 lets nobody replace what it found
        said = "found before" if "DATA_SOURCE_ALREADY_EXISTS" in str(error) else str(error)
    print(said, options(spark.read).load().count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
