"""A job for a Spark cluster: `python -m tests.spark.cluster_job MASTER BOOTSTRAP TOPIC COPY GROUP FOLDER`.

Counts a topic as a batch, copies it to another one with a worker that is killed on the way, streams it into Parquet,
and prints what it found.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from kohort.spark.java import use_java
from kohort.spark.worker_python import as_command
from tests.spark.conftest import LOOPBACK


def killed_once(folder: str) -> Any:
    """Gives back what it gets; in the first attempt of the first task its worker is killed at row 50."""
    seen = 0

    def hand_on(value: str) -> str:
        from pyspark import TaskContext

        nonlocal seen
        seen += 1
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 0 and task.attemptNumber() > 0:
            Path(folder, "tried-again").touch()
        elif task.partitionId() == 0 and seen == 50:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    return hand_on


def main(master: str, bootstrap: str, topic: str, copy: str, group: str, folder: str) -> None:
    use_java()
    # As on any cluster; the other tests have `worker_python.use_python`.
    python = as_command(sys.executable, os.environ)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import expr, udf

    builder = SparkSession.builder.master(master).appName("kohort on a cluster")
    settings = {
        **LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        # Before 4.2 the group's offsets are committed at the end of AvailableNow only with this.
        "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()

    def options(reader: Any, of: str = topic) -> Any:
        return reader.format("kohort").option("kafka.bootstrap.servers", bootstrap).option("subscribe", of)

    batch = options(spark.read).option("minPartitions", 8).load()
    print("batch", batch.count(), batch.rdd.getNumPartitions())
    key = udf(killed_once(folder), "string", useArrow=False)(expr("concat(partition, '-', offset)"))
    written = batch.select(key.alias("value")).write.format("kohort").mode("append")
    written.option("kafka.bootstrap.servers", bootstrap).option("topic", copy).save()
    print("copy", options(spark.read, copy).load().select("value").distinct().count())
    stream = (
        options(spark.readStream)
        .option("kafka.group.id", group)
        .option("kafka.session.timeout.ms", 300_000)  # a member that is gone before has left in order
        .option("startingOffsets", "earliest")
        .load()
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
