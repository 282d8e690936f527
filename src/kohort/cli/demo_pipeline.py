"""What the demo runs on Spark: orders as JSON -> number and revenue of each item -> Parquet. A pipeline as any other.

kohort pipeline run demo_pipeline.py --bootstrap 127.0.0.1:9092 --set out=./revenue
"""

from __future__ import annotations

from typing import Any

topics = ["orders"]
group = "revenue"
options = {"startingOffsets": "earliest"}
parameters = {"out": "./revenue"}


def pipeline(stream: Any) -> Any:
    from pyspark.sql.functions import col, count, from_json, sum

    order = from_json(col("value").cast("string"), "order long, customer int, item string, cents long")
    orders = stream.select(order.alias("order")).select("order.*")
    out = parameters["out"]

    def write(frame: Any, batch_id: int) -> None:
        # A batch that is repeated replaces what it wrote before: so every order counts once.
        totals = frame.groupBy("item").agg(count("*").alias("orders"), sum("cents").alias("cents"))
        totals.coalesce(1).write.mode("overwrite").parquet(f"{out}/batch={batch_id}")

    return orders.writeStream.foreachBatch(write).trigger(processingTime="1 second")
