"""A Python data source that reads nothing: it yields Arrow batches that are made already.

What it reaches is the most that any source in Python can: Spark's own costs, and the way from Python to the JVM.
"""

from __future__ import annotations

from typing import Any


def ready_made_source() -> Any:
    """The class, made here so that Spark's workers get it by value: they do not find this package."""
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

    class Rows:
        def __init__(self, rows: int, size: int, tasks: int) -> None:
            self.rows, self.size, self.tasks = rows, size, tasks

        def initialOffset(self) -> dict[str, int]:
            return {"rows": 0}

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
            return {"rows": self.rows}

        def partitions(self, start: Any = None, end: Any = None) -> list[InputPartition]:
            return (
                [] if start is not None and start == end else [InputPartition(n) for n in range(self.tasks)]
            )

        def read(self, partition: InputPartition) -> Iterator[Any]:
            left, per_batch = self.rows // self.tasks, max(1, (4 << 20) // (self.size + 60))
            made = pa.__dict__.setdefault("kohort_ready_made", {})  # once for a worker
            wanted = self.size, min(left, per_batch)
            batch = made.get(wanted) or made.setdefault(wanted, self._batch(wanted[1]))
            while left > 0:
                yield batch.slice(0, min(left, per_batch))
                left -= per_batch

        def _batch(self, rows: int) -> Any:
            columns = {
                "key": pa.array([b"%06d" % n for n in range(rows)], pa.binary()),
                "value": pa.array([bytes(self.size)] * rows, pa.binary()),
                "topic": pa.array(["ready-made"] * rows, pa.string()),
                "partition": pa.array([0] * rows, pa.int32()),
                "offset": pa.array(range(rows), pa.int64()),
                "timestamp": pa.array([0] * rows, pa.timestamp("us", "UTC")),
                "timestampType": pa.array([0] * rows, pa.int32()),
            }
            return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    class Batch(Rows, DataSourceReader):
        pass

    class Stream(Rows, DataSourceStreamReader):
        pass

    class ReadyMade(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready-made"

        def schema(self) -> str:
            return (
                "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
                "timestampType int"
            )

        def reader(self, schema: Any) -> Any:
            return Batch(*self._numbers())

        def streamReader(self, schema: Any) -> Any:
            return Stream(*self._numbers())

        def _numbers(self) -> list[int]:
            return [int(self.options[name]) for name in ("rows", "size", "tasks")]

    return ReadyMade
