"""A job for a Spark cluster: `python -m tests.spark.cluster_job MASTER BOOTSTRAP TOPIC GROUP FOLDER`.

Counts a topic as a batch, streams it into Parquet, and prints what it found and on how many executors.
"""

from __future__ import annotations

import os
import sys

from kohort.spark.java import use_java
from tests.spark.conftest import LOOPBACK


def main(master: str, bootstrap: str, topic: str, group: str, folder: str) -> None:
    use_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("kohort on a cluster")
    settings = {
        **LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()

    def options(reader):  # type: ignore[no-untyped-def]
        return reader.format("kohort").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)

    batch = options(spark.read).option("minPartitions", 8).load()
    print("batch", batch.count(), batch.rdd.getNumPartitions())
    stream = (
        options(spark.readStream).option("kafka.group.id", group).option("startingOffsets", "earliest").load()
    )
    rows = stream.selectExpr("partition", "offset", "string(value) value")
    query = rows.writeStream.format("parquet").option("path", f"{folder}/out")
    query.option("checkpointLocation", f"{folder}/checkpoint").trigger(
        availableNow=True
    ).start().awaitTermination()
    print("stream", spark.read.parquet(f"{folder}/out").distinct().count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
