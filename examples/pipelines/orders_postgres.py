"""Exactly once into PostgreSQL: rows, and how far they go, in one transaction.

Spark repeats a batch that it does not know to be done. So the batch's number is stored with its rows, in the same
transaction: a batch that is there already is not written again. The offsets are stored beside it, so that the table
alone says up to where it has read the topic. Needs `pip install psycopg`.

kohort pipeline run examples/pipelines/orders_postgres.py --set dsn=postgresql://user@127.0.0.1/shop
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming import DataStreamWriter

topics = ["orders"]
group = "orders-postgres"
options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100_000}
parameters = {"dsn": "postgresql://127.0.0.1/shop"}

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id bigint, customer text, amount double precision);
CREATE TABLE IF NOT EXISTS orders_batches (pipeline text, batch bigint, PRIMARY KEY (pipeline, batch));
CREATE TABLE IF NOT EXISTS orders_offsets (
    pipeline text, topic text, partition int, next_offset bigint, PRIMARY KEY (pipeline, topic, partition)
);
"""


def pipeline(stream: DataFrame) -> DataStreamWriter:
    orders = stream.select(
        from_json(col("value").cast("string"), "id long, customer string, amount double").alias("order"),
        "topic", "partition", "offset",
    )  # fmt: skip
    dsn, name = parameters["dsn"], group

    def write(frame: DataFrame, batch_id: int) -> None:
        write_batch(frame, batch_id, dsn, name)

    return orders.writeStream.foreachBatch(write)


def write_batch(frame: DataFrame, batch_id: int, dsn: str, name: str) -> None:
    """One transaction on the driver: for batches that fit there, which maxOffsetsPerTrigger sees to."""
    import psycopg

    frame.persist()
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(TABLES)
        cursor.execute("INSERT INTO orders_batches VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, batch_id))
        if cursor.rowcount:  # not there yet
            with cursor.copy("COPY orders FROM STDIN") as copy:
                for row in frame.select("order.*").toLocalIterator():
                    copy.write_row(tuple(row))
            ends = frame.groupBy("topic", "partition").agg({"offset": "max"}).collect()
            cursor.executemany(
                "INSERT INTO orders_offsets VALUES (%s, %s, %s, %s) "
                "ON CONFLICT (pipeline, topic, partition) DO UPDATE SET next_offset = excluded.next_offset",
                [(name, row[0], row[1], row[2] + 1) for row in ends],
            )
    frame.unpersist()
