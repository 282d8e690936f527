"""The demo's pipeline on Spark: sums up orders in JSON, number and revenue of each item, and writes Parquet.

It shares the group with plain consumers (groupMode=shared), so it sums up the orders of the partitions that it is
assigned, and writes the first and last offset beside each sum.

kohort pipeline run revenue.py --bootstrap 127.0.0.1:9092 --set out=./revenue
"""

from __future__ import annotations

from typing import Any

topics = ["orders"]
group = "shop"
options = {
    "startingOffsets": "earliest",
    "groupMode": "shared",
    "kafka.client.id": "spark",
    # The other members go on while Spark finishes a batch whose partition goes to one of them.
    "kafka.partition.assignment.strategy": "cooperative-sticky",
}
parameters = {"out": "./revenue"}


def pipeline(stream: Any) -> Any:
    from pyspark.sql.functions import col, count, from_json, max, min, sum

    order = from_json(col("value").cast("string"), "order long, customer int, item string, cents long")
    orders = stream.select("partition", "offset", order.alias("order")).select(
        "partition", "offset", "order.*"
    )
    out = parameters["out"]

    def write(frame: Any, batch_id: int) -> None:
        # A batch that is repeated replaces what it wrote before.
        totals = frame.groupBy("partition", "item").agg(
            count("*").alias("orders"),
            sum("cents").alias("cents"),
            min("offset").alias("first"),
            max("offset").alias("last"),
        )
        totals.coalesce(1).write.mode("overwrite").parquet(f"{out}/batch={batch_id}")

    return orders.writeStream.foreachBatch(write).trigger(processingTime="1 second")
