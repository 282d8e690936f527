"""A member of a group in a process of its own, so that a test can kill it.

    python -m tests.console.member kohort|confluent BOOTSTRAP GROUP NAME RATE TOPIC…

It reads at most RATE records a second (0: as fast as it can), commits what it has read, and leaves on SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

SESSION_TIMEOUT_MS = 2000
_leaving = False


def _leave(_number: int, _frame: FrameType | None) -> None:
    global _leaving
    _leaving = True


def main() -> int:
    library, bootstrap, group, name, rate, *topics = sys.argv[1:]
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": 500,
        "auto.commit.interval.ms": 500,
    }
    signal.signal(signal.SIGTERM, _leave)
    run = {"kohort": _kohort, "confluent": _confluent}[library]
    run(settings, topics, _paced(float(rate)))
    return 0


def _paced(rate: float) -> Callable[[int], None]:
    """A function that takes the time that so many records need at this rate."""

    def work(records: int) -> None:
        if rate and records:
            time.sleep(records / rate)

    return work


def _kohort(
    settings: dict[str, str | int | float | bool], topics: list[str], work: Callable[[int], None]
) -> None:
    from kohort.client.consumer import Consumer

    with Consumer(settings) as consumer:
        consumer.subscribe(topics)
        while not _leaving:
            work(sum(len(records) for records in consumer.poll(0.2, max_records=25).values()))


def _confluent(
    settings: dict[str, str | int | float | bool], topics: list[str], work: Callable[[int], None]
) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(settings)
    consumer.subscribe(topics)
    try:
        while not _leaving:
            work(len(consumer.consume(25, 0.2)))
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(main())
