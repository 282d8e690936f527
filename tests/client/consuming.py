"""Consumers for tests that break things: quick settings, and polling until something is so."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort import Consumer, Record, TimedOut, TopicPartition

QUICK: dict[str, object] = {
    "auto.offset.reset": "earliest",
    "heartbeat.interval.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "fetch.max.wait.ms": 50,
}
PATIENCE_S = 60.0
STANDSTILL_S = 15.0
"""So long may a loaded machine not let us run; less than the 30 s of request.timeout.ms and of close."""


def quick(bootstrap_servers: str, group_id: str | None = None, **settings: object) -> Consumer:
    """A consumer that begins at the beginning and tries again soon."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer({**QUICK, "bootstrap.servers": bootstrap_servers, "group.id": group_id, **given})


def poll_until(consumer: Consumer, condition: Callable[[], object], what: str) -> list[Record]:
    """Polls until it is so, and returns what came meanwhile."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: it did not happen in {PATIENCE_S} s"
        for some in consumer.poll(0.05).values():
            records += some
    return records


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """The values of the next records."""
    values: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records came: {values}"
        for some in consumer.poll(0.2).values():
            values += [record.value for record in some]
    return values


def joined(consumer: Consumer) -> Consumer:
    """Polls until it has partitions; what came with them is read again."""
    came = poll_until(consumer, consumer.assignment, "it is given partitions")
    for record in reversed(came):
        consumer.seek((record.topic, record.partition), record.offset)
    return consumer


class Told:
    """Callbacks for `subscribe(…, **told.callbacks)`: what they were called with, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    @property
    def callbacks(self) -> dict[str, Any]:
        def note(kind: str) -> Callable[[list[TopicPartition]], None]:
            return lambda partitions: self.calls.append((kind, partitions))

        return {"on_assigned": note("assigned"), "on_revoked": note("revoked"), "on_lost": note("lost")}

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.calls]


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Checks that the block ends within the caller's timeout, which is `seconds`."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds + STANDSTILL_S, f"it took {took:.1f} s instead of {seconds}"


def times_out(call: Callable[[float], object], words: str, seconds: float = 0.3) -> None:
    """Checks that `call(timeout)` raises TimedOut in time, and that the text has these words.

    If the machine stood still, nothing happened in that time that the text could name; then the call gets more time.
    """
    said = []
    for timeout in (seconds, 5.0, PATIENCE_S):
        with within(timeout), pytest.raises(TimedOut) as raised:
            call(timeout)
        said.append(str(raised.value))
        if re.search(words, said[-1]):
            return
    pytest.fail(f"nothing like {words!r} in {said}")


def open_descriptors() -> set[str]:
    """What this process has open: descriptor and what it is. The loop of a broker keeps one of /dev/null in reserve."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            what = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # the one that lists the directory
        if what != os.devnull:
            found.add(f"{number} {what}")
    return found
