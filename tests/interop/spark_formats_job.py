"""A Spark job that reads a topic with `valueFormat` and with Spark's own from_avro, and prints both as JSON.

`python -m tests.interop.spark_formats_job ADDRESS TOPIC SCHEMA JARS`
"""

from __future__ import annotations

import json
import sys

from tests.spark.conftest import LOOPBACK


def main() -> None:
    address, topic, schema, jars = sys.argv[1:]
    from kohort.spark.java import use_java

    use_java()
    from pyspark.sql import SparkSession
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import col

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    for name, value in LOOPBACK.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source = spark.read.format("kohort").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    plain = source.load().orderBy("offset")
    theirs = plain.select(from_avro(col("value"), schema, {"mode": "PERMISSIVE"}).alias("value"))
    ours = (
        source.option("valueFormat", "avro")
        .option("valueSchema", schema)
        .load()
        .orderBy("offset")
        .select("value")
    )
    for frame in (ours, theirs):
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        print(json.dumps([frame.schema["value"].dataType.simpleString(), str(rows)]))
    spark.stop()


if __name__ == "__main__":
    main()
