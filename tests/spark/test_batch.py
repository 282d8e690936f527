from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_the_records_of_a_topic(
    read: Callable[..., Any], new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, range(10), partition=0, key=b"k", timestamp_ms=1_700_000_000_123)
    produce(topic, range(10, 15), partition=1)
    rows = read(subscribe=topic).collect()
    assert sorted(int(row.value) for row in rows) == list(range(15))
    first = min(rows, key=lambda row: (row.partition, row.offset))
    print(first)
