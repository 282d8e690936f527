"""Tells how far a streaming query is behind its topics, from the progress that the query reports."""

from __future__ import annotations

import json
from typing import Any

from kohort.client.types import TopicPartition
from kohort.spark.offsets import Offsets, from_spark


def lag(query: Any) -> dict[TopicPartition, int]:
    """For each partition, how many offsets were not yet read at the query's last progress; empty before the first.

    query = df.writeStream...start()
    print(sum(lag(query).values()), "records to go")
    """
    progress = query.lastProgress
    if progress is None:
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
