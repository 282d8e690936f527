"""The groups of an Apache Kafka move to us: its __consumer_offsets, byte for byte, in a data directory of ours."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks.targets import Target
from confluent_kafka import Consumer as ConfluentConsumer

from kohort import Admin, Consumer, GroupDescription, OffsetAndMetadata, TopicPartition
from tests.clients.client import Partition, Sent
from tests.clients.confluent import Confluent
from tests.clients.ours import Kohort
from tests.clients.process import eventually
from tests.clients.team import Team

from .apache_kafka import ApacheKafka
from .conftest import StartBroker

pytestmark = pytest.mark.interop
TOPIC, PARTITIONS = "moved", 4
OFFSETS = "__consumer_offsets"
GROUPS = ("moved-working", "moved-static", "moved-left", "moved-by-hand", "moved-partly", "moved-deleted")
Told = tuple[dict[str, GroupDescription], dict[str, dict[TopicPartition, OffsetAndMetadata]]]


@dataclass(frozen=True, slots=True)
class Moved:
    """What Kafka told of its groups, and where they are now."""

    by_kafka: Told
    broker: Target


def told_of(admin: Admin) -> Told:
    described = admin.describe_groups(*GROUPS)
    return described, {group: admin.group_offsets(group) for group in (*GROUPS, "moved-new-protocol")}


def fill(servers: str, teams: contextlib.ExitStack) -> None:
    """Groups with members (which stay until `teams` ends), and groups in every other state that leaves records."""
    confluent, ours = Confluent(servers), Kohort(servers)
    teams.callback(ours.close)
    partitions = [(TOPIC, index) for index in range(PARTITIONS)]
    for group, static in (("moved-working", False), ("moved-static", True), ("moved-left", False)):
        team = Team(ours, group, partitions)
        within = contextlib.ExitStack() if group == "moved-left" else teams
        within.enter_context(team)
        for name, client in (("one", confluent), ("two", ours)):
            options: dict[str, Any] = {"group_instance_id": name} if static else {}
            team.join(client, client_id=f"{group}-{name}", session_timeout_ms=30_000, **options)
        team.settle()
        team.produced = dict.fromkeys(team.partitions, 20)
        team.all_received()
        if within is not teams:
            within.close()
    with Admin(bootstrap_servers=servers) as admin:
        words: dict[Partition, int | OffsetAndMetadata] = {
            (TOPIC, 0): OffsetAndMetadata(7, "wörds of mine", 0),
            (TOPIC, 1): 2**40,
        }
        admin.alter_group_offsets("moved-by-hand", words)
        admin.alter_group_offsets("moved-by-hand", {(TOPIC, 1): 11})  # the later commit counts
        for group in ("moved-partly", "moved-deleted"):
            admin.alter_group_offsets(group, {(TOPIC, 0): 1, (TOPIC, 1): 2})
        admin.delete_group_offsets("moved-partly", (TOPIC, 1))
        admin.delete_groups("moved-deleted")
    new_protocol(servers)


def new_protocol(servers: str) -> None:
    """A group of group.protocol=consumer leaves records of kinds that we do not serve, and commits, which we do."""
    settings = {
        "group.id": "moved-new-protocol",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    consumer = ConfluentConsumer({"bootstrap.servers": servers, "enable.auto.commit": False} | settings)
    consumer.subscribe([TOPIC])
    got = 0
    while got < 20 * PARTITIONS:
        messages = consumer.consume(20 * PARTITIONS - got, 10)
        assert messages, f"{got} records came, then none for 10 s"
        got += len(messages)
    consumer.commit(asynchronous=False)
    consumer.close()


def prepared(start_broker: StartBroker, directory: Path) -> None:
    """A data directory of ours with the topics, whose broker is down."""
    broker = start_broker(directory=directory)
    with Admin(bootstrap_servers=broker.address) as admin:
        admin.create_topic(TOPIC, PARTITIONS, 1)
        admin.alter_group_offsets("first", {(TOPIC, 0): 0})  # makes the offsets topic
    broker.stop()
    (directory / "clean-stop").unlink()  # so that the next start looks at what is there


def copy(kafka: Path, ours: Path) -> int:
    """All partitions of the offsets topic; returns how many bytes. A directory of ours says which topic it is of."""
    size = 0
    metadata = next(ours.glob(f"{OFFSETS}-*/partition.metadata")).read_bytes()
    for theirs in sorted(kafka.glob(f"{OFFSETS}-*")):
        mine = ours / theirs.name
        shutil.rmtree(mine, ignore_errors=True)
        mine.mkdir()
        (mine / "partition.metadata").write_bytes(metadata)
        for file in theirs.glob("*.log"):
            shutil.copyfile(file, mine / file.name)
            size += file.stat().st_size
    return size


@pytest.fixture(scope="module")
def moved(
    apache_kafka: ApacheKafka, start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> Moved:
    servers, directory = apache_kafka.bootstrap_servers, tmp_path_factory.mktemp("moved") / "data"
    with Admin(bootstrap_servers=servers) as admin, contextlib.ExitStack() as teams:
        admin.create_topic(TOPIC, PARTITIONS, 1)
        confluent = Confluent(servers)
        confluent.send([((TOPIC, index), Sent(b"x")) for index in range(PARTITIONS) for _ in range(20)])
        fill(servers, teams)
        prepared(start_broker, directory)
        by_kafka = told_of(admin)
        assert copy(apache_kafka.target.data, directory) > 1000
        assert told_of(admin) == by_kafka, "nothing happened meanwhile"
    return Moved(by_kafka, start_broker(directory=directory))


@pytest.fixture(scope="module")
def by_us(moved: Moved) -> Told:
    with Admin(bootstrap_servers=moved.broker.address) as admin:
        return told_of(admin)


def test_kafka_told_what_this_is_about(moved: Moved) -> None:
    groups, offsets = moved.by_kafka
    states = {group: (description.state, len(description.members)) for group, description in groups.items()}
    assert states == {
        "moved-working": ("Stable", 2),
        "moved-static": ("Stable", 2),
        "moved-left": ("Empty", 0),
        "moved-by-hand": ("Empty", 0),
        "moved-partly": ("Empty", 0),
        "moved-deleted": ("Dead", 0),
    }
    assert offsets["moved-by-hand"][TopicPartition(TOPIC, 0)] == OffsetAndMetadata(7, "wörds of mine", 0)
    assert len(offsets["moved-new-protocol"]) == PARTITIONS


@pytest.mark.parametrize("group", [*GROUPS, "moved-new-protocol"])
def test_the_offsets_are_the_same(moved: Moved, by_us: Told, group: str) -> None:
    assert by_us[1][group] == moved.by_kafka[1][group]


@pytest.mark.parametrize("group", GROUPS)
def test_the_group_is_the_same(moved: Moved, by_us: Told, group: str) -> None:
    ours, kafkas = by_us[0][group], moved.by_kafka[0][group]
    assert (ours.state, ours.protocol_type, ours.protocol) == (
        kafkas.state,
        kafkas.protocol_type,
        kafkas.protocol,
    )
    assert set(ours.members) == set(kafkas.members), "ids, hosts and assignments"


def test_the_group_goes_on_from_there(moved: Moved) -> None:
    servers = moved.broker.address
    Confluent(servers).send([((TOPIC, index), Sent(b"x")) for index in range(PARTITIONS) for _ in range(25)])
    first: dict[TopicPartition, int] = {}

    with Consumer(bootstrap_servers=servers, group_id="moved-left", auto_offset_reset="none") as consumer:
        consumer.subscribe([TOPIC])

        def read() -> bool:
            for partition, records in consumer.poll(1.0).items():
                first.setdefault(partition, records[0].offset)
            return len(first) == PARTITIONS

        eventually(read, "records of all partitions")
    assert set(first.values()) == {20}
