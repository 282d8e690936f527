"""Avro without a registry: the schema is here, the records hold nothing but the data.

`from_avro` is not in PySpark's package; Spark fetches it when the pipeline starts:

kohort pipeline run examples/pipelines/orders_avro.py --set spark.jars.packages=org.apache.spark:spark-avro_2.13:4.1.1
"""

from pyspark.sql import DataFrame
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming import DataStreamWriter

topics = ["orders-avro"]
group = "orders-avro"
options = {"startingOffsets": "earliest"}
parameters = {"out": "./orders-avro"}

ORDER = """
{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"},
  {"name": "customer", "type": "string"},
  {"name": "amount", "type": "double"}
]}
"""


def pipeline(stream: DataFrame) -> DataStreamWriter:
    # PERMISSIVE: a record that is no Order becomes a row of nulls instead of the end of the query.
    order = from_avro("value", ORDER, {"mode": "PERMISSIVE"}).alias("order")
    rows = stream.select(order, "partition", "offset").select("order.*", "partition", "offset")
    return rows.writeStream.format("parquet").option("path", parameters["out"])
