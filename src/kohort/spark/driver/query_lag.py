"""Tells how far a streaming query is behind its topics, from the progress that the query reports."""

from __future__ import annotations

import json
from typing import Any

from kohort.client.types import TopicPartition
from kohort.spark.offsets import Offsets, from_spark
from kohort.spark.pyspark_api import HAS_ADMISSION_CONTROL
from kohort.wire.errors import KohortError


class LagUnknown(KohortError):
    """The installed PySpark does not report the ends of the topics; the text says whom to ask instead."""

    what_to_do = "Use PySpark 4.2 or later, or ask the group: `kohort groups describe GROUP`."


def lag(query: Any) -> dict[TopicPartition, int]:
    """For each partition, how many offsets were not yet read at the query's last progress; empty before the first.

    query = df.writeStream...start()
    print(sum(lag(query).values()), "records to go")

    LagUnknown before PySpark 4.2: what it reports as the latest offset is where the batch ends.
    """
    if not HAS_ADMISSION_CONTROL:
        import pyspark

        raise LagUnknown(
            f"PySpark {pyspark.__version__} does not report where the topics of a query end, which 4.2 does: look at "
            "the lag of the query's group, with `kohort groups describe NAME` or any other tool for Kafka"
        )
    progress = query.lastProgress
    return {} if progress is None else lag_in(progress)


def lag_in(progress: Any) -> dict[TopicPartition, int]:
    """The lag that a report of a query's progress shows; none before PySpark 4.2, whose reports do not have it."""
    if not HAS_ADMISSION_CONTROL:
        return {}
    behind: dict[TopicPartition, int] = {}
    for source in _field(progress, "sources") or ():
        end, latest = (_offsets(_field(source, name)) for name in ("endOffset", "latestOffset"))
        for partition, at in latest.items():
            behind[partition] = behind.get(partition, 0) + max(0, at - end.get(partition, 0))
    return behind


def _field(holder: Any, name: str) -> Any:
    """Progress is a dict in some versions of Spark and an object in others."""
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _offsets(value: Any) -> Offsets:
    """The offsets of a source; none if it is not one that reads topics."""
    try:
        return from_spark(json.loads(value) if isinstance(value, str) else value)
    except ValueError:
        return {}
