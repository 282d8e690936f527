"""A Spark job in a process of its own, for a test to kill: `python -m tests.spark.driver BOOTSTRAP TOPIC GROUP FOLDER`.

Reads a topic into Parquet files until it is ended, or into another topic, exactly once, if a fifth word names it; says
"ready" when its first batch is done.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kohort.spark.java import use_java
from kohort.spark.worker_python import use_python
from tests.spark.conftest import LOOPBACK


def main(bootstrap: str, topic: str, group: str, folder: str, target: str | None = None) -> None:
    use_java()
    use_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]").appName("a driver to kill")
    # Four attempts for each task: without the second number there is one.
    for name, value in LOOPBACK.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.warehouse.dir", str(Path(folder) / "warehouse")).getOrCreate()
    records = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("kafka.group.id", group)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1200)
        .load()
    )
    if target is None:
        rows = records.selectExpr("partition", "offset", "string(value) value")
        writer = rows.writeStream.format("parquet").option("path", f"{folder}/out")
    else:
        rows = records.selectExpr("concat(partition, '-', string(value)) value")
        writer = rows.writeStream.format("kohort").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", target).option("exactlyOnce", "true")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    while query.lastProgress is None and query.isActive:
        query.awaitTermination(0.05)  # type: ignore[arg-type]  # PySpark takes seconds with a fraction
    print("ready", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
