"""A watermark and a window: revenue per item and minute, for orders that come up to two minutes late.

kohort pipeline run examples/pipelines/revenue_per_minute.py --set out=./revenue
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, from_json, window
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming import DataStreamWriter

topics = ["orders"]
group = "revenue"
options = {"startingOffsets": "earliest"}
parameters = {"out": "./revenue", "late": "2 minutes"}


def pipeline(stream: DataFrame) -> DataStreamWriter:
    orders = stream.select(
        from_json(col("value").cast("string"), "item string, amount double").alias("order"), "timestamp"
    )
    revenue = (
        orders.withWatermark("timestamp", parameters["late"])
        .groupBy(window("timestamp", "1 minute"), "order.item")
        .agg(count("*").alias("orders"), total("order.amount").alias("revenue"))
        .select("window.start", "window.end", "item", "orders", "revenue")
    )
    # A window is written once, when the watermark has passed it: that is what append means here.
    return revenue.writeStream.outputMode("append").format("parquet").option("path", parameters["out"])
