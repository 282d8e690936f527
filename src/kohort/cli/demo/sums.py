"""Reads what the demo's pipeline has written, and checks its sums against those of the topic itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohort.cli.demo.processes import PARTITIONS, TOPIC
from kohort.client.consumer import Consumer
from kohort.client.types import TopicPartition

OrdersByOffset = Mapping[tuple[int, int], tuple[str, int]]
"""From partition and offset to item and cents."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of one batch for one partition."""

    batch: int
    partition: int
    first: int
    after: int
    orders: Mapping[str, int]
    cents: Mapping[str, int]


def read_sums(folder: Path) -> list[Sums]:
    """Reads the sums from the Parquet files of all batches."""
    from pyarrow import parquet

    found = []
    for directory in sorted(folder.glob("batch=*")):
        batch = int(directory.name.removeprefix("batch="))
        rows: list[dict[str, Any]] = []
        for file in directory.glob("*.parquet"):
            rows += parquet.ParquetFile(file).read().to_pylist()
        for partition in sorted({row["partition"] for row in rows}):
            own = [row for row in rows if row["partition"] == partition]
            found.append(
                Sums(
                    batch,
                    partition,
                    min(row["first"] for row in own),
                    max(row["last"] for row in own) + 1,
                    {row["item"]: row["orders"] for row in own},
                    {row["item"]: row["cents"] for row in own},
                )
            )
    return found


def read_orders(bootstrap: str) -> dict[tuple[int, int], tuple[str, int]]:
    """Reads all orders of the topic with a consumer that has no group."""
    orders: dict[tuple[int, int], tuple[str, int]] = {}
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        missing = sum(consumer.end_offsets(*partitions).values())
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while missing:
            for partition, records in consumer.poll(10.0).items():
                for record in records:
                    order = json.loads(record.value or b"{}")
                    orders[partition.partition, record.offset] = order["item"], order["cents"]
                missing -= len(records)
    return orders


def wrong(sums: Sequence[Sums], orders: OrdersByOffset) -> list[Sums]:
    """Those sums that are not the sums of the orders from their first to their last offset, each counted once."""
    found = []
    for each in sums:
        counted: Counter[str] = Counter()
        cents: Counter[str] = Counter()
        for offset in range(each.first, each.after):
            item, price = orders[each.partition, offset]
            counted[item] += 1
            cents[item] += price
        if counted != each.orders or cents != each.cents:
            found.append(each)
    return found
