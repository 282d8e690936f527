"""The cluster that the client's own tests talk to: a broker in this process, or the one whose address is given.

`KOHORT_TEST_BOOTSTRAP=host:port pytest tests/client` runs the same tests against that cluster; `make interop` does so
with an Apache Kafka. Tests that need to look inside a broker, or to break it, use the fixture `kafka` of the testing
kit and stay with ours.
"""

from __future__ import annotations

import itertools
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Admin, TopicPartition
from kohort.broker.running import running
from kohort.client.errors import TimedOut
from kohort.wire.errors import KafkaError
from tests.clients.process import eventually

PARTITIONS = 3  # num.partitions, which a given cluster must have too
CONSUMER_GROUPS: dict[str, Any] = {
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_min_heartbeat_interval_ms": 200,
    "group_consumer_session_timeout_ms": 6_000,
    "group_consumer_min_session_timeout_ms": 3_000,
    "group_consumer_assignment_interval_ms": 0,
}
"""Groups of the consumer protocol settle with heartbeats: tests should not wait 5 s for each."""
GIVEN = os.environ.get("KOHORT_TEST_BOOTSTRAP", "")


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    if GIVEN:
        yield GIVEN
        return
    with running(num_partitions=PARTITIONS, **CONSUMER_GROUPS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as client:
        yield client


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Names that no other test has used, also on a cluster that keeps them."""
    stem, counter = uuid.uuid4().hex[:8], itertools.count()
    return lambda what: f"{what}-{stem}-{next(counter)}"


@pytest.fixture
def group(new_name: Callable[[str], str]) -> str:
    return new_name("group")


@pytest.fixture
def new_topic(admin: Admin, new_name: Callable[[str], str]) -> Callable[..., str]:
    """Makes a topic and waits until it can be used: `new_topic(partitions=3)`."""

    def make(partitions: int = 1, name: str | None = None, **configs: Any) -> str:
        topic = name or new_name("topic")
        given = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topic(topic, partitions=partitions, replication_factor=1, configs=given)

        def usable() -> bool:
            try:
                found = admin.describe_topics(topic)[topic].partitions
                ready = len(found) == partitions and all(p.leader >= 0 for p in found)
                return (
                    ready
                    and admin.delete_records({TopicPartition(topic, p.partition): 0 for p in found})
                    is not None
                )
            except (KafkaError, TimedOut):
                return False

        eventually(usable, f"{topic} can be used")
        return topic

    return make


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that nobody listens on: it is bound, but not open."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
