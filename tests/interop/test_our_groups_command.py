"""`kohort groups` against an Apache Kafka of two nodes, by SASL: classic groups, those of KIP-848, share groups."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from benchmarks import outside

from kohort import Admin, Consumer, NewTopic
from kohort.cli.frame.exit_codes import ExitCode
from kohort.cli.main import main

from .apache_kafka import PASSWORD, USER, KafkaCluster, start_cluster
from .conftest import Run
from .test_java_tools import TOOLS

pytestmark = pytest.mark.interop
PLAIN_GROUPS = 12  # so many that both nodes coordinate some


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    started = start_cluster(tmp_path_factory.mktemp("cluster"), nodes=2)
    yield started
    started.kill()


@pytest.fixture(scope="module")
def prepared(cluster: KafkaCluster) -> KafkaCluster:
    """A topic whose partitions both nodes lead, ten records in each, and groups that have offsets alone."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        eventually(lambda: len(admin.describe_cluster().nodes) == 2, "both nodes are there")
        admin.create_topics([NewTopic("orders", assignments={n: (1 + n % 2,) for n in range(4)})])
        eventually(lambda: admin.describe_topics("orders"), "the topic is there")
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for n in range(40):
            producer.produce("orders", b"%d" % n, partition=n % 4)
        assert producer.flush(30) == 0
        for n in range(PLAIN_GROUPS):
            admin.alter_group_offsets(f"plain-{n}", {("orders", 0): 1})
        described = admin.describe_groups(*(f"plain-{n}" for n in range(PLAIN_GROUPS)))
        assert {each.coordinator.node_id for each in described.values() if each.coordinator} == {1, 2}
    return cluster


Groups = Callable[..., Any]


@pytest.fixture
def groups(prepared: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Groups:
    """`kohort groups …` with the file of a Java client; what it prints with --json, or all that it said."""
    file = tmp_path / "client.properties"
    password = PASSWORD.replace("=", "\\=")
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'  username="{USER}" \\\n  password="{password}";\n'
    )

    def call(*words: str, code: int = 0) -> Any:
        address = f"127.0.0.1:1,{prepared.address('SASL', 2)}"
        assert main(["groups", *words, "--bootstrap", address, "--config", str(file)]) == code
        said = capsys.readouterr()
        return json.loads(said.out) if "--json" in words and not code else said.out + said.err

    return call


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 60) -> Any:
    deadline = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            if value := condition():
                return value
        except Exception as error:
            last = error
        time.sleep(0.1)
    pytest.fail(f"after {timeout_s:.0f} s still not: {what} ({last})")


def test_groups_of_both_nodes_are_listed(groups: Groups) -> None:
    listed = {row["group"]: row for row in groups("list", "--json")}
    assert {f"plain-{n}" for n in range(PLAIN_GROUPS)} <= set(listed)
    assert listed["plain-0"]["type"] == "classic"


def test_a_classic_group(prepared: KafkaCluster, groups: Groups) -> None:
    settings = {"bootstrap.servers": prepared.bootstrap_servers, "group.id": "classic", "client.id": "me"}
    with Consumer(settings, enable_auto_commit=False) as consumer:
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.2) or len(consumer.assignment()) == 4, "it has its partitions")
        consumer.commit({("orders", 1): 4, ("orders", 2): 10})
        found = groups("describe", "classic", "--json")
        assert (found["state"], found["type"], found["protocol"]) == ("Stable", "classic", "range")
        assert [(row["offset"], row["end"], row["lag"]) for row in found["offsets"]] == [
            (None, 10, None),
            (4, 10, 6),
            (10, 10, 0),
            (None, 10, None),
        ]
        assert {tuple(row["members"]) for row in found["offsets"]} == {(consumer.group_metadata().member_id,)}


def test_a_group_of_kip_848_as_kafkas_own_tool_shows_it(
    prepared: KafkaCluster, groups: Groups, java: Run
) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": prepared.bootstrap_servers,
            "group.id": "newer",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.2) and len(consumer.assignment()) == 4, "it has its partitions")
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 3, 7)], asynchronous=False)
        found = groups("describe", "newer", "--json")
        assert (found["type"], found["protocol"]) == ("consumer", "uniform")
        (member,) = found["members"]
        assert member["client_id"] == "rdkafka"
        assert [row["lag"] for row in found["offsets"]] == [None, None, None, 3]
        assert "newer: Stable, consumer, assignor uniform, coordinator " in groups("describe", "newer")
        words = f"--bootstrap-server {prepared.bootstrap_servers} --describe --group newer"
        theirs = java(f"{TOOLS}consumer.group.ConsumerGroupCommand", *words.split(), timeout_s=90)
        rows = [line.split() for line in theirs.splitlines() if line.startswith("newer ")]
        shown = {(row[1], int(row[2])): (row[3], row[4], row[5], row[6]) for row in rows}
        ours = {
            (row["topic"], row["partition"]): tuple(
                "-" if cell is None else str(cell)
                for cell in (row["offset"], row["end"], row["lag"], row["members"][0])
            )
            for row in found["offsets"]
        }
        assert ours == shown


def test_a_share_group(prepared: KafkaCluster, groups: Groups) -> None:
    words = f"--bootstrap-server {prepared.bootstrap_servers} --topic orders --group shared"
    command = outside.java(f"{TOOLS}consumer.ConsoleShareConsumer", *words.split())
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: groups("describe", "shared", "--json")["offsets"], "its member has its partitions")
        listed = {row["group"]: row["type"] for row in groups("list", "--json")}
        assert listed["shared"] == "share"
        found = groups("describe", "shared", "--json")
        assert (found["state"], found["type"], len(found["members"])) == ("Stable", "share", 1)
        assert {row["end"] for row in found["offsets"]} == {10}
    finally:
        process.kill()
        process.wait(20)


def test_what_is_not_there_is_told(groups: Groups) -> None:
    assert "there is no group nope" in groups("describe", "nope", code=ExitCode.NOT_FOUND)
    assert "there is no group nope" in groups("why", "nope", code=ExitCode.NOT_FOUND)


def test_why_tells_what_consumer_offsets_has_and_what_it_has_not(
    prepared: KafkaCluster, groups: Groups
) -> None:
    settings = {"bootstrap.servers": prepared.bootstrap_servers, "group.id": "rebalanced", "client.id": "me"}
    with Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.2) or len(consumer.assignment()) == 4, "it has its partitions")
    said = groups("why", "rebalanced")
    assert "generation 0 → 1" in said
    assert "came: me-" in said
    assert "kohort: " in said, "what cannot be known is told"


def test_wrong_credentials_are_told(
    prepared: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.properties"
    file.write_text(
        f"bootstrap.servers={prepared.address('SASL', 1)}\nsecurity.protocol=SASL_PLAINTEXT\n"
        f"sasl.username={USER}\nsasl.password=wrong\n"
    )
    assert main(["groups", "list", "--config", str(file)]) == ExitCode.NOT_ALLOWED
    assert "Invalid username or password" in capsys.readouterr().err
