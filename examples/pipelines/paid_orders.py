"""Two streams joined: orders with the payment that came within an hour, to another topic.

Each stream is a group of its own, paid-orders-orders and paid-orders-payments: each has its own offsets.

kohort pipeline run examples/pipelines/paid_orders.py
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr, from_json, struct, to_json
from pyspark.sql.streaming import DataStreamWriter

topics = {"orders": ["orders"], "payments": ["payments"]}
group = "paid-orders"
options = {"startingOffsets": "earliest"}
parameters = {"bootstrap": "127.0.0.1:9092", "topic": "paid-orders"}


def pipeline(orders: DataFrame, payments: DataFrame) -> DataStreamWriter:
    ordered = orders.select(
        from_json(col("value").cast("string"), "id long, amount double").alias("order"),
        col("timestamp").alias("ordered_at"),
    ).withWatermark("ordered_at", "1 hour")
    paid = payments.select(
        from_json(col("value").cast("string"), "order_id long, paid double").alias("payment"),
        col("timestamp").alias("paid_at"),
    ).withWatermark("paid_at", "1 hour")
    both = ordered.join(
        paid,
        expr("order.id = payment.order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"),
    )
    rows = both.select(
        col("order.id").cast("string").alias("key"),
        to_json(struct("order.*", "payment.paid", "ordered_at")).alias("value"),
    )
    return (
        rows.writeStream.format("kohort")
        .option("kafka.bootstrap.servers", parameters["bootstrap"])
        .option("topic", parameters["topic"])
    )
