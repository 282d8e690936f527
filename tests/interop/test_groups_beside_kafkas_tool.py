"""`kohort groups` and Kafka's ConsumerGroupCommand against one cluster: Kohort, and an Apache Kafka of two nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from benchmarks.targets import kohort

from kohort import Admin, Consumer, NewTopic, Producer
from kohort.cli.main import main

from .apache_kafka import start_cluster
from .conftest import Run
from .test_java_tools import TOOLS
from .test_our_groups_command import eventually

pytestmark = pytest.mark.interop
Ours = Callable[..., Any]
Theirs = Callable[..., str]
Offsets = dict[tuple[str, int], int]
BEGAN_MS = int(time.time() * 1000) - 3_600_000  # young enough to be kept
MIDDLE = datetime.fromtimestamp((BEGAN_MS + 8) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
START = {("orders", 0): 4, ("orders", 1): 10, ("returns", 1): 2}


@pytest.fixture(scope="module", params=["kohort", "apache kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster with two topics of two partitions, ten records in each."""
    folder = tmp_path_factory.mktemp("beside")
    if request.param == "kohort":
        one = kohort(folder / "data")
        address, close = one.address, one.kill
    else:
        cluster = start_cluster(folder, nodes=2)
        address, close = cluster.bootstrap_servers, cluster.kill
    try:
        prepare(address, 1 if request.param == "kohort" else 2)
        yield address
    finally:
        close()


def prepare(address: str, nodes: int) -> None:
    with Admin(bootstrap_servers=address) as admin:
        eventually(lambda: len(admin.describe_cluster().nodes) == nodes, "all nodes are there")
        topics = [
            NewTopic(
                topic, assignments={n: (admin.describe_cluster().nodes[n % nodes].node_id,) for n in range(2)}
            )
            for topic in ("orders", "returns")
        ]
        admin.create_topics(topics)
        eventually(lambda: admin.end_offsets([("orders", 0), ("returns", 1)]), "the topics are there")
        with Producer(bootstrap_servers=address) as producer:
            for n in range(20):
                for topic in ("orders", "returns"):
                    producer.send(topic, value=b"%d" % n, partition=n % 2, timestamp_ms=BEGAN_MS + n)


@pytest.fixture
def ours(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Ours:
    """`kohort groups …`: what it prints; as JSON if that was asked for."""

    def call(*words: str) -> Any:
        capsys.readouterr()
        assert main(["groups", *words, "--bootstrap", bootstrap]) == 0, capsys.readouterr().err
        said = capsys.readouterr().out
        return json.loads(said) if "--json" in words else said

    return call


@pytest.fixture
def theirs(bootstrap: str, java: Run) -> Theirs:
    def call(*words: str) -> str:
        tool = f"{TOOLS}consumer.group.ConsumerGroupCommand"
        return java(tool, "--bootstrap-server", bootstrap, *words, timeout_s=90)

    return call


@pytest.fixture
def group(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A group of its own for each test, with offsets and without members."""
    name = f"audit-{request.node.originalname.removeprefix('test_')[:30]}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets(name, START)
    return name


def rows(said: str, first: str) -> list[list[str]]:
    """The rows of a table whose first word is this one."""
    return sorted(line.split() for line in said.splitlines() if line.split()[:1] == [first])


def committed(bootstrap: str, group: str) -> Offsets:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return {(at.topic, at.partition): each.offset for at, each in admin.group_offsets(group).items()}


def test_list(ours: Ours, theirs: Theirs, group: str) -> None:
    shown = rows(theirs("--list", "--state", "--type"), group)
    assert [[name, kind.lower(), state] for name, kind, state in shown] == [
        [each["group"], each["type"], each["state"]]
        for each in ours("list", "--json")
        if each["group"] == group
    ]
    wanted = {
        line.split()[0] for line in theirs("--list", "--state", "empty").splitlines()[1:] if line.strip()
    }
    assert {each["group"] for each in ours("list", "--state", "empty", "--json")} == wanted
    assert group in wanted


def test_describe(ours: Ours, theirs: Theirs, bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reading", "client.id": "me"}
    with Consumer(settings, enable_auto_commit=False, group_instance_id="till-1") as consumer:
        consumer.subscribe(["orders"])
        eventually(lambda: consumer.poll(0.2) or len(consumer.assignment()) == 2, "it has its partitions")
        consumer.commit({("orders", 0): 4})
        with Admin(bootstrap_servers=bootstrap) as admin:
            eventually(lambda: admin.describe_groups("reading")["reading"].state == "Stable", "it is stable")
        found = ours("describe", "reading", "--json")
        (member,) = found["members"]
        assert rows(theirs("--describe", "--group", "reading"), "reading") == [
            ["reading", row["topic"], *("-" if row[key] is None else str(row[key])
                                         for key in ("partition", "offset", "end", "lag")),
             member["member_id"], member["host"], member["client_id"]]
            for row in found["offsets"]
        ]  # fmt: skip
        # The table for people has the same columns; ids are cut short, and the age of records is one column more.
        shown = rows(ours("describe", "reading"), "reading")
        assert [(row[1:6], row[-2:]) for row in shown] == [
            (row[1:6], row[-2:]) for row in rows(theirs("--describe", "--group", "reading"), "reading")
        ]
        (mine,) = rows(ours("describe", "reading", "--members", "--verbose"), "reading")
        (kafkas,) = rows(theirs("--describe", "--group", "reading", "--members", "--verbose"), "reading")
        assert mine[:6] == kafkas[:6]
        assert mine[6] in kafkas
        (mine,) = rows(ours("describe", "reading", "--state"), "reading")
        (kafkas,) = rows(theirs("--describe", "--group", "reading", "--state"), "reading")
        assert mine == kafkas


PLACES = [
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-current",),
    ("--to-offset", "7"),
    ("--to-offset", "99"),
    ("--shift-by", "-3"),
    ("--to-datetime", MIDDLE),
    ("--by-duration", "PT1S"),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "".join(place).strip("-"))
def test_a_dry_run(ours: Ours, theirs: Theirs, group: str, bootstrap: str, place: tuple[str, ...]) -> None:
    kafkas = theirs("--reset-offsets", "--group", group, "--all-topics", *place, "--dry-run", "--export")
    mine = ours("reset", group, "--all-topics", *place, "--export")
    assert sorted(mine.split()) == sorted(line for line in kafkas.split("\n") if line.count(",") == 2)
    assert committed(bootstrap, group) == START


def test_each_reads_what_the_other_has_exported(
    ours: Ours, theirs: Theirs, group: str, bootstrap: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(
        ours("reset", group, "--topic", "orders:0", "--topic", "returns", "--to-offset", "5", "--export")
    )
    theirs("--reset-offsets", "--group", group, "--from-file", str(file), "--execute")
    wanted = START | {("orders", 0): 5, ("returns", 0): 5, ("returns", 1): 5}
    assert committed(bootstrap, group) == wanted
    lines = theirs(
        "--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--dry-run", "--export"
    )
    file.write_text("".join(f"{line}\n" for line in lines.splitlines() if line.count(",") == 2))
    ours("reset", group, "--from-file", str(file), "--execute")
    assert committed(bootstrap, group) == dict.fromkeys(wanted, 0)
    file.write_text(ours("reset", group, "reading-not", "--topic", "orders:0", "--to-latest", "--export"))
    assert file.read_text() == f"{group},orders,0,10\nreading-not,orders,0,10\n"
    theirs(
        "--reset-offsets", "--group", group, "--group", "reading-not", "--from-file", str(file), "--execute"
    )
    assert committed(bootstrap, "reading-not") == {("orders", 0): 10}


def test_each_sees_what_the_other_has_deleted(ours: Ours, theirs: Theirs, group: str, bootstrap: str) -> None:
    ours("delete-offsets", group, "--topic", "returns")
    assert [row[1] for row in rows(theirs("--describe", "--group", group), group)] == ["orders", "orders"]
    assert "Successful" in theirs("--delete-offsets", "--group", group, "--topic", "orders:1")
    assert [row["partition"] for row in ours("describe", group, "--json")["offsets"]] == [0]
    ours("delete", group)
    assert group not in theirs("--list").split()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets(group, START)
    assert "successful" in theirs("--delete", "--group", group)
    assert group not in {each["group"] for each in ours("list", "--json")}
