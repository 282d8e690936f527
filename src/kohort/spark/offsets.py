"""Converts offsets from and to the form of Spark's checkpoints: `{"orders":{"0":12,"1":7}}`.

Spark's Kafka connector writes the same form. Topics are in order, partitions in numeric order, so that equal offsets
are equal texts: Spark compares texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kohort.client.types import TopicPartition

Offsets = dict[TopicPartition, int]


def to_spark(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The dict that Spark turns into JSON."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def to_json(offsets: Mapping[TopicPartition, int]) -> str:
    """The text in a checkpoint, without blanks."""
    return json.dumps(to_spark(offsets), separators=(",", ":"))


def from_spark(value: Any) -> Offsets:
    """The offsets in a dict of Spark's; ValueError if it has another form."""
    if not isinstance(value, dict):
        raise ValueError(f"offsets are an object of topics, not {value!r}")
    offsets: Offsets = {}
    for topic, partitions in value.items():
        if not isinstance(topic, str) or not isinstance(partitions, dict):
            raise ValueError(
                f"the offsets of topic {topic!r} are an object of partitions, not {partitions!r}"
            )
        for partition, offset in partitions.items():
            number = _partition(partition)
            if number is None or isinstance(offset, bool) or not isinstance(offset, int):
                raise ValueError(f"{topic}: {partition!r}: {offset!r} is not a partition and its offset")
            offsets[TopicPartition(topic, number)] = offset
    return offsets


def from_json(text: str) -> Offsets:
    """The offsets in a text; ValueError if it is no JSON or has another form."""
    return from_spark(json.loads(text))


def _partition(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None
