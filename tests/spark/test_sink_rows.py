"""What a task of the sink does with its rows when the broker goes away; without Spark, with a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kohort import Admin, Consumer
from kohort.spark import sink
from kohort.spark.sink import RowsNotWritten, SinkOptions, read_sink_options, write_rows
from tests.clients.process import BrokerProcess, fixed_port

ROWS, BATCHES = 500, 6


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "mortal", "durability=os", port=fixed_port()) as process:
        with Admin(bootstrap_servers=process.bootstrap_servers) as admin:
            admin.create_topic("t", 3)
        yield process
        while sink._producers:  # they would go on asking for this broker
            sink._producers.popitem()[1].close(0)


def options_for(broker: BrokerProcess, **kafka: str) -> SinkOptions:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    return read_sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", **given})


def batch(number: int) -> pa.RecordBatch:
    texts = [str(number * ROWS + row) for row in range(ROWS)]
    return pa.RecordBatch.from_pydict({"key": texts, "value": texts})


def values_in(broker: BrokerProcess) -> list[int]:
    partitions = [("t", partition) for partition in range(3)]
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        left = sum(consumer.end_offsets(*partitions).values())
        found: list[int] = []
        while len(found) < left:
            found += [int(record.value) for records in consumer.poll(10).values() for record in records]
    return sorted(found)


def test_a_broker_that_is_killed_and_comes_back_gets_every_row_once(mortal: BrokerProcess) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            if number in (2, 4):
                mortal.kill()
                mortal.restart()
            yield batch(number)

    assert write_rows(options_for(mortal), ("key", "value"), batches(), "task 0") == ROWS * BATCHES
    assert values_in(mortal) == list(range(ROWS * BATCHES))
    # The producer is kept for the next task of this process.
    assert write_rows(options_for(mortal), ("key", "value"), iter([batch(BATCHES)]), "task 1") == ROWS
    assert values_in(mortal) == list(range(ROWS * (BATCHES + 1)))


def test_a_broker_that_stays_away_fails_the_task_and_the_next_attempt_leaves_no_gap(
    mortal: BrokerProcess,
) -> None:
    quick = options_for(
        mortal, delivery_timeout_ms="1500", request_timeout_ms="500", linger_ms="0", max_block_ms="1500"
    )

    def batches(dying: bool) -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            if number == 3 and dying:
                mortal.kill()
            yield batch(number)

    with pytest.raises(RowsNotWritten, match=r"of task 7, attempt 0 were not written to topic t") as failed:
        write_rows(quick, ("key", "value"), batches(True), "task 7, attempt 0")
    assert "a retry writes these again" in str(failed.value)
    mortal.restart()
    # With patience: this attempt is to succeed, also if the machine stands still for a moment.
    again = options_for(mortal, linger_ms="0")
    assert write_rows(again, ("key", "value"), batches(False), "task 7, attempt 1") == ROWS * BATCHES
    found = values_in(mortal)
    assert set(found) == set(range(ROWS * BATCHES))  # no gap
    # What the first attempt wrote is there twice, nothing is more often than there were attempts.
    assert max(Counter(found).values()) <= 2
