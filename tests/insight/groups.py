"""Groups of real consumers for the tests of insight."""

from __future__ import annotations

import time
from collections.abc import Callable

from kohort import Consumer

PATIENCE_S = 60.0


def member(bootstrap_servers: str, group_id: str, topic: str, **settings: object) -> Consumer:
    """A consumer that has joined and owns partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 50,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    return consumer


def poll_all(*consumers: Consumer, until: Callable[[], bool]) -> None:
    """Polls all of them in turn until something is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline_s, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            consumer.poll(0.02)


def settle(*consumers: Consumer, partitions: int) -> None:
    """Polls until they own all partitions together, each some."""
    poll_all(
        *consumers,
        until=lambda: (
            all(consumer.assignment() for consumer in consumers)
            and sum(len(consumer.assignment()) for consumer in consumers) == partitions
        ),
    )
