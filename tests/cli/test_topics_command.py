"""`kohort topics` on a real broker."""

from __future__ import annotations

import json
import os
import pty
from collections.abc import Iterator

import pytest

from kohort import Admin, Producer
from kohort.broker.running import running
from tests.cli.command_line import PATIENCE_S, Ran, kohort_process, run_kohort


@pytest.fixture
def broker() -> Iterator[running]:
    with running(num_partitions=2) as broker:
        yield broker


def topics(broker: running, *arguments: str) -> Ran:
    return run_kohort("topics", *arguments, "--bootstrap", broker.bootstrap_servers)


def test_create_list_describe(broker):
    assert topics(broker, "list") == Ran(0, b"", "there are no topics; kohort topics create NAME makes one\n")
    made = topics(broker, "create", "orders", "--partitions", "3", "--set", "retention.ms=86400000")
    assert made == Ran(0, b"orders: created\n", "")
    topics(broker, "create", "plain")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(5):
            producer.send("orders", b"x", partition=number % 2)
    head, orders, plain = (line.split() for line in topics(broker, "list").lines)
    assert head == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "BYTES"]
    assert orders[:4] == ["orders", "3", "1", "5"]
    assert int(orders[4]) > 100
    assert plain == ["plain", "2", "1", "0", "0"]
    listed = json.loads(topics(broker, "list", "--json").out)
    assert listed[0] == {
        "topic": "orders", "internal": False, "partitions": 3, "replication_factor": 1, "records": 5,
        "bytes": int(orders[4]),
    }  # fmt: skip
    described = topics(broker, "describe", "orders").lines
    assert described[0].startswith("orders: 3 partitions, 1 replicas, id ")
    assert "  retention.ms=86400000" in described
    assert not any("cleanup.policy" in line for line in described)  # it is the default
    assert described[-3].split() == ["0", "1", "1", "1", "0", "3", "3"]
    everything = json.loads(topics(broker, "describe", "orders", "--all-settings", "--json").out)
    assert everything[0]["settings"]["cleanup.policy"] == "delete"
    assert [each["end_offset"] for each in everything[0]["partitions"]] == [3, 2, 0]


def test_internal_topics_are_listed_when_asked_for(broker):
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("mine")
        admin.alter_group_offsets("g", {("mine", 0): 0})
    assert "__consumer_offsets" not in topics(broker, "list").out.decode()
    assert "__consumer_offsets" in topics(broker, "list", "--internal").out.decode()


def test_creating_twice(broker):
    topics(broker, "create", "one")
    again = topics(broker, "create", "one", "two")
    assert (again.code, again.out) == (1, b"two: created\n")
    assert "TOPIC_ALREADY_EXISTS" in again.err
    fine = topics(broker, "create", "one", "two", "three", "--if-not-exists")
    assert fine.code == 0
    assert set(fine.lines) == {"one: is there already", "two: is there already", "three: created"}
    assert topics(broker, "create", "four", "--dry-run").lines == ["four: would be created"]
    assert "four" not in topics(broker, "list").out.decode()


def test_alter_shows_before_and_after(broker):
    topics(broker, "create", "orders", "--set", "retention.ms=1000")
    changed = topics(
        broker,
        "alter",
        "orders",
        "--set",
        "cleanup.policy=compact",
        "--unset",
        "retention.ms",
        "--partitions",
        "4",
    )
    assert changed.lines == [
        "orders: cleanup.policy: delete → compact",
        "orders: retention.ms: 1000 → 604800000",
        "orders: partitions: 2 → 4",
    ]
    dry = topics(broker, "alter", "orders", "--set", "retention.ms=7", "--dry-run", "--json")
    assert json.loads(dry.out) == {
        "topic": "orders",
        "dry_run": True,
        "changes": [{"name": "retention.ms", "before": "604800000", "after": "7"}],
    }
    assert "  retention.ms=7" not in topics(broker, "describe", "orders").lines


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["alter", "orders"], 2, "nothing to change"),
        (["alter", "orders", "--set", "x"], 2, "NAME=VALUE"),
        (["alter", "orders", "--set", "a=1", "--unset", "a"], 2, "which of the two"),
        (["alter", "orders", "--partitions", "1"], 2, "can only be given more"),
        (["alter", "orders", "--set", "retention.ms=soon"], 1, "retention.ms"),
        (["alter", "nix", "--set", "retention.ms=1"], 3, "there is no topic nix"),
        (["describe", "nix"], 3, "there is no topic nix"),
        (["create", "a/b"], 1, "a/b"),
        (["create", "a", "--replica-assignment", "1:x"], 2, "as in 1:2,2:1"),
        (["create", "a", "--replica-assignment", "1", "--partitions", "2"], 2, "leave those out"),
        (["delete", "orders"], 2, "say --yes"),
        (["delete", "orders", "nix", "--yes"], 3, "nothing was deleted"),
        (["delete-records", "orders"], 2, "--before PARTITION:OFFSET, or --all"),
        (["delete-records", "orders", "--before", "0"], 2, "as in 0:100"),
    ],
)
def test_what_is_wrong_is_said(broker, arguments, code, words):
    topics(broker, "create", "orders")
    ran = topics(broker, *arguments)
    assert (ran.code, words in ran.err) == (code, True), ran.err
    assert "orders" in topics(broker, "list").out.decode()


def test_delete(broker):
    topics(broker, "create", "one", "two")
    assert topics(broker, "delete", "one", "nix", "--yes", "--if-exists").lines == [
        "nix: is not there",
        "one: deleted",
    ]
    assert [line.split() for line in topics(broker, "list").lines[1:]] == [["two", "2", "1", "0", "0"]]


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 130)])
def test_delete_asks_on_a_terminal(broker, answer, code):
    topics(broker, "create", "orders")
    ours, theirs = pty.openpty()
    process = kohort_process(
        "topics",
        "delete",
        "orders",
        "--bootstrap",
        broker.bootstrap_servers,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    try:
        asked = b""
        while b"?" not in asked:
            asked += os.read(ours, 1000)
        os.write(ours, answer)
        assert process.wait(PATIENCE_S) == code
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    assert b"Delete orders with 0 records?" in asked
    assert ("orders" in topics(broker, "list").out.decode()) == (code != 0)


def test_delete_records(broker):
    topics(broker, "create", "orders")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(6):
            producer.send("orders", b"x", partition=number % 2)
    cut = topics(broker, "delete-records", "orders", "--before", "0:2", "--before", "1:end", "--yes")
    assert cut.lines == ["PARTITION  BEGIN-OFFSET", "0          2", "1          3"]
    assert json.loads(topics(broker, "list", "--json").out)[0]["records"] == 1
    assert json.loads(topics(broker, "delete-records", "orders", "--all", "--yes", "--json").out) == [
        {"partition": 0, "begin_offset": 3},
        {"partition": 1, "begin_offset": 3},
    ]


def test_brokers_of_partitions(broker):
    assert topics(broker, "create", "placed", "--replica-assignment", "1,1,1").code == 0
    assert json.loads(topics(broker, "list", "--json").out)[0]["partitions"] == 3
