"""Share groups on an Apache Kafka: our consumer alone, beside Kafka's own, and through SIGKILL."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks import targets

from kohort import AcknowledgeType, Admin, KafkaError, Producer, Record, ShareConsumer, TopicPartition
from kohort.cli.main import main
from tests.chaos.sharing import share_through_kills

from .conftest import Run
from .test_java_tools import TOOLS

pytestmark = pytest.mark.interop
LOCK_MS = 2_000
SHORT_LOCKS = "group.share.min.record.lock.duration.ms=1000"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An Apache Kafka whose groups may have short locks."""
    kafka = targets.apache_kafka(tmp_path_factory.mktemp("share") / "data", SHORT_LOCKS)
    yield kafka.address
    kafka.kill()


@pytest.fixture(scope="module")
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as client:
        yield client


@pytest.fixture
def topic(admin: Admin, servers: str, request: pytest.FixtureRequest) -> str:
    """A topic of 40 records, each in a batch of its own, and a share group of the same name that begins with them."""
    name = re.sub(r"\W", "-", request.node.name)
    admin.create_topic(name, partitions=1)
    admin.alter_group_configs(
        {name: {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": LOCK_MS}}
    )
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        for number in range(40):
            producer.send(name, b"%d" % number).result(30)
    return name


def polled(consumer: ShareConsumer, until: Callable[[list[Record]], bool]) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + 60
    while not until(found):
        assert time.monotonic() < deadline, f"only {len(found)} came"
        found += [record for records in consumer.poll(0.5).values() for record in records]
    return found


def test_a_lock_that_runs_out_fails_the_acknowledgement_and_delivers_again(servers: str, topic: str) -> None:
    settings = {"bootstrap_servers": servers, "group_id": topic, "share_acknowledgement_mode": "explicit"}
    with ShareConsumer(**settings, max_poll_records=5, share_acquire_mode="record_limit") as slow:  # type: ignore[arg-type]
        slow.subscribe([topic])
        held = polled(slow, lambda found: len(found) >= 5)
        assert slow.acquisition_lock_timeout_ms() == LOCK_MS
        with ShareConsumer(**settings) as quick:  # type: ignore[arg-type]
            quick.subscribe([topic])
            again = polled(quick, lambda found: len(found) > 0)
            while not any(record.offset == held[0].offset for record in again):
                for record in again:
                    quick.acknowledge(record)
                again = polled(quick, lambda found: len(found) > 0)
            for record in held:
                slow.acknowledge(record)
            (error,) = slow.commit_sync().values()
            assert isinstance(error, KafkaError)
            assert "their locks ran out" in str(error)
            for record in again:
                quick.acknowledge(record)
            assert set(quick.commit_sync().values()) == {None}
            assert {r.delivery_count for r in again if r.offset == held[0].offset} == {2}


def test_renewing_keeps_the_lock(servers: str, topic: str) -> None:
    with ShareConsumer(
        bootstrap_servers=servers,
        group_id=topic,
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        max_poll_records=1,
    ) as consumer:
        consumer.subscribe([topic])
        (record,) = polled(consumer, lambda found: len(found) > 0)
        until = time.monotonic() + 2 * LOCK_MS / 1000
        while time.monotonic() < until:
            consumer.acknowledge(record, AcknowledgeType.RENEW)
            (record,) = polled(consumer, lambda found: len(found) > 0)
            assert (record.offset, record.delivery_count) == (0, 1)
            time.sleep(LOCK_MS / 4000)  # the work, which takes longer than the lock
        consumer.acknowledge(record)
        assert consumer.commit_sync() == {TopicPartition(topic, 0): None}


def test_kafkas_consumer_and_ours_share_a_partition(servers: str, topic: str, java: Run) -> None:
    said: list[str] = []

    def theirs() -> None:
        arguments = f"--bootstrap-server {servers} --topic {topic} --group {topic} --timeout-ms 8000"
        said.extend(java(f"{TOOLS}consumer.ConsoleShareConsumer", *arguments.split(), timeout_s=90).split())

    thread = threading.Thread(target=theirs)
    thread.start()
    mine: list[int] = []
    with ShareConsumer(
        bootstrap_servers=servers, group_id=topic, max_poll_records=2, share_acquire_mode="record_limit"
    ) as consumer:
        consumer.subscribe([topic])
        while thread.is_alive():
            for records in consumer.poll(0.2).values():
                mine += [int(record.value or b"") for record in records]
            time.sleep(0.3)  # so that there is something left when the other has started
        consumer.commit_sync()
    thread.join()
    assert sorted([*mine, *map(int, said)]) == list(range(40)), "each record went to one of them"
    assert mine


def test_our_command_says_what_kafkas_tool_says(
    servers: str, topic: str, java: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with ShareConsumer(
        bootstrap_servers=servers, group_id=topic, max_poll_records=7, share_acquire_mode="record_limit"
    ) as consumer:
        consumer.subscribe([topic])
        polled(consumer, lambda found: len(found) >= 7)
        assert set(consumer.commit_sync().values()) == {None}
    tool = f"{TOOLS}consumer.group.ShareGroupCommand"
    shown = java(tool, *f"--bootstrap-server {servers} --describe --group {topic}".split())
    columns = [line.split() for line in shown.splitlines() if line.startswith(topic)]
    assert main(["groups", "describe", topic, "--bootstrap", servers]) == 0
    ours = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(f"{topic} ")]
    # Theirs: GROUP TOPIC PARTITION START-OFFSET LAG; ours has LOG-END-OFFSET before the lag.
    assert [(row[2], row[3], row[4]) for row in columns] == [(row[2], row[3], row[5]) for row in ours]
    assert ours[0][4:6] == ["40", "33"]


@pytest.mark.timeout(400)
def test_no_record_is_lost_when_consumers_are_killed(servers: str, tmp_path: Path) -> None:
    share_through_kills(servers, tmp_path, cycles=4, seed=20261118, lock_ms=LOCK_MS)
