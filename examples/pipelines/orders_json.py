"""Orders as JSON -> rows -> Parquet.

kohort pipeline run examples/pipelines/orders_json.py --set out=./orders
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming import DataStreamWriter

topics = ["orders"]
group = "orders-etl"
options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 1_000_000}
parameters = {"out": "./orders"}

ORDER = "id long, customer string, item string, amount double, at timestamp"


def pipeline(stream: DataFrame) -> DataStreamWriter:
    orders = stream.select(
        from_json(col("value").cast("string"), ORDER).alias("order"), "topic", "partition", "offset"
    )
    # What is no JSON becomes a row of nulls: where it lies in the topic is kept, so that it can be looked at.
    rows = orders.select("order.*", "topic", "partition", "offset")
    return rows.writeStream.format("parquet").option("path", parameters["out"])
