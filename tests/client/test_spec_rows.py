"""Every row of the consumer's list has tests that a reader finds from the row (rows.py); and the tests of rows that
have no better place."""

from __future__ import annotations

import ast
import re
import threading
import time
from pathlib import Path

import confluent_kafka
import pytest

from kohort import Admin, Consumer, OffsetAndMetadata, TopicPartition, Wakeup
from kohort.testing import Kafka
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from tests.client.brokers import Log, log_cluster
from tests.client.consuming import PATIENCE_S, Told, joined, poll_until, quick, read, within
from tests.client.rows import SECTIONS
from tests.clients.process import eventually

HERE = Path(__file__).parent
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


# --- the table ------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    """Title and text of each section of the list."""
    text = (HERE / "consumer_rows.txt").read_text("utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    functions = (node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return {f"{path.name}::{node.name}" for node in functions if node.name.startswith("test_")}


def test_the_table_has_the_sections_of_the_list() -> None:
    assert list(SECTIONS) == list(sections())


@pytest.mark.parametrize("section", list(SECTIONS))
def test_nothing_of_a_section_is_without_a_test(section: str) -> None:
    """The claims, one after the other, are the text of the section; only what joins them is left over."""
    text = sections()[section]
    for claim, tests in SECTIONS[section].items():
        assert tests, claim
        before, found, text = text.partition(claim)
        assert found, f"not in the list, or not in this order: {claim}"
        assert re.fullmatch(r"[\s\-,;.:]*", before), f"without a test: {before.strip()}"
    assert re.fullmatch(r"[\s.]*", text), f"without a test: {text.strip()}"


def test_every_test_of_the_table_exists() -> None:
    there = {path.stem for path in (HERE / "transcripts").glob("*.txt")}
    for path in HERE.glob("test_*.py"):
        there |= names_in(path)
    named = {test for claims in SECTIONS.values() for tests in claims.values() for test in tests}
    assert named - there == set()
    assert len(named) > 100


# --- one poll -------------------------------------------------------------------------------------------------


def test_one_poll_does_its_things_in_order(kafka: Kafka) -> None:
    kafka.produce("t", ["a"])
    with quick(kafka.bootstrap_servers, "g", auto_commit_interval_ms=50) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 1)
        poll_until(consumer, lambda: kafka.committed("g", "t") == {0: 1}, "it commits by itself")
    wanted = [
        "FindCoordinator",
        "JoinGroup",
        "SyncGroup",
        "OffsetFetch",
        "ListOffsets",
        "Fetch",
        "OffsetCommit",
    ]
    # While nothing was read yet it may commit that: an interval can be over before the first answer to a fetch.
    requests = [r for r in kafka.requests() if r.api != "OffsetCommit" or 1 in offsets_in(r.message)]
    firsts = list(dict.fromkeys(request.api for request in requests if request.api in wanted))
    assert firsts == wanted


def offsets_in(commit: OffsetCommitRequest) -> list[int]:
    return [partition.committed_offset for topic in commit.topics for partition in topic.partitions]


def test_a_poll_of_what_is_buffered_does_no_more_than_fetch_ahead(kafka: Kafka) -> None:
    kafka.produce("t", [str(n) for n in range(10)])
    with quick(kafka.bootstrap_servers, max_poll_records=1) as consumer:
        consumer.assign([T0])
        read(consumer, 1)
        kafka.clear()
        for number in range(1, 10):
            assert [record.offset for record in consumer.poll(0)[T0]] == [number]
        assert {request.api for request in kafka.requests()} <= {"Fetch"}


def test_a_long_poll_sends_heartbeats_and_commits_when_they_are_due(kafka: Kafka) -> None:
    kafka.produce("t", ["a"])
    with quick(kafka.bootstrap_servers, "g", auto_commit_interval_ms=300) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 1)
        kafka.clear()

        def watch() -> None:
            kafka.wait_for_request("Heartbeat", count=5, timeout=PATIENCE_S)
            eventually(lambda: kafka.committed("g", "t") == {0: 1}, "it commits", PATIENCE_S)
            consumer.wakeup()

        watcher = threading.Thread(target=watch)
        watcher.start()
        with pytest.raises(Wakeup):
            consumer.poll(3 * PATIENCE_S)
        watcher.join()


def test_the_next_fetch_is_under_way_when_poll_returns() -> None:
    log = Log([b"a", b"b"])
    with log_cluster({T0: log}) as cluster, quick(cluster.bootstrap_servers) as consumer:
        consumer.assign([T0])
        read(consumer, 2)
        eventually(lambda: len(cluster.fetches()) >= 2, "the next fetch has come, though nobody polls")


def test_a_poll_waits_for_data_no_longer_than_its_time(kafka: Kafka) -> None:
    kafka.create_topic("t")
    with quick(kafka.bootstrap_servers, fetch_max_wait_ms=25_000) as consumer:
        consumer.assign([T0])
        consumer.position(T0, timeout=PATIENCE_S)
        with within(0.2):
            assert consumer.poll(0.2) == {}
        writer = threading.Timer(0.2, lambda: kafka.produce("t", ["a"]))
        writer.start()
        with within(5):
            assert len(consumer.poll(PATIENCE_S)[T0]) == 1  # as soon as it is there
        writer.join()


# --- subscriptions, joining -----------------------------------------------------------------------------------


def test_neither_the_group_nor_metadata_moves_what_was_assigned_by_hand(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=2)
    alone = quick(kafka.bootstrap_servers, "g", metadata_max_age_ms=50, enable_auto_commit=False)
    with (
        alone,
        quick(kafka.bootstrap_servers, "g") as member,
        Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
    ):
        alone.assign([T0])
        member.subscribe(["t"])
        joined(member)
        admin.create_partitions({"t": 4})
        kafka.clear()
        poll_until(
            alone, lambda: len(kafka.requests("Metadata")) >= 5, "metadata was looked at again and again"
        )
        assert alone.assignment() == {T0}
        assert alone.group_metadata().generation_id == -1


def test_a_rebalance_keeps_the_identity(kafka: Kafka) -> None:
    kafka.create_topic("t")
    with quick(kafka.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"])
        joined(consumer)
        before = consumer.group_metadata()
        kafka.rebalance("g")
        poll_until(consumer, lambda: consumer.group_metadata().generation_id == 2, "it has rejoined")
        assert consumer.group_metadata().member_id == before.member_id


def test_a_join_that_takes_longer_than_a_request_may_is_waited_for(kafka: Kafka) -> None:
    kafka.create_topic("t")
    settings = {"request_timeout_ms": 400, "max_poll_interval_ms": 60_000}
    with quick(kafka.bootstrap_servers, "g", **settings) as consumer:
        consumer.subscribe(["t"])
        slow = kafka.delay("JoinGroup", ms=700, times=2)
        joined(consumer)
        assert slow.hits == 2
    asked = [request.api for request in kafka.requests()]
    before = asked[: asked.index("SyncGroup")]
    assert before.count("JoinGroup") == 2  # one for the id, one that was waited for


def test_a_static_leader_that_comes_back_does_not_assign_but_watches_metadata(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=2)
    settings = {"group_instance_id": "me", "metadata_max_age_ms": 100}
    with quick(kafka.bootstrap_servers, "g", **settings) as first:
        first.subscribe(["t"])
        joined(first)
    with (
        quick(kafka.bootstrap_servers, "g", **settings) as again,
        Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
    ):
        kafka.clear()
        again.subscribe(["t"])
        joined(again)
        assert kafka.requests("SyncGroup")[0].message.assignments == []
        assert again.group_metadata().generation_id == 1
        admin.create_partitions({"t": 3})
        poll_until(again, lambda: len(again.assignment()) == 3, "it has seen the new partition")


# --- committing -----------------------------------------------------------------------------------------------


def test_another_assignment_by_hand_commits_the_one_before(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=2)
    kafka.produce("t", [{"value": "a", "partition": 0}])
    with quick(kafka.bootstrap_servers, "g", auto_commit_interval_ms=60_000) as consumer:
        consumer.assign([T0])
        read(consumer, 1)
        consumer.assign([T1])
        poll_until(consumer, lambda: kafka.committed("g", "t") == {0: 1}, "the first one is committed")


def test_what_is_only_buffered_is_not_committed(kafka: Kafka) -> None:
    kafka.produce("t", [str(n) for n in range(10)])
    with quick(kafka.bootstrap_servers, "g", max_poll_records=4) as consumer:
        consumer.subscribe(["t"])
        read(consumer, 4)
    assert kafka.committed("g", "t") == {0: 4}


def test_committed_answers_for_partitions_that_are_not_assigned(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=2)
    kafka.create_topic("u")
    other = TopicPartition("u", 0)
    with quick(kafka.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        consumer.commit({other: OffsetAndMetadata(7, "noted")}, timeout=PATIENCE_S)
        consumer.assign([T0])
        found = consumer.committed(T1, other, timeout=PATIENCE_S)
        assert found == {T1: None, other: OffsetAndMetadata(7, "noted")}
        assert all(request.message.require_stable for request in kafka.requests("OffsetFetch"))


# --- assignors ------------------------------------------------------------------------------------------------


def test_a_group_mixes_our_members_with_another_clients(kafka: Kafka) -> None:
    kafka.create_topic("t", partitions=4)
    told = Told()
    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "heartbeat.interval.ms": 50}
    )
    with quick(kafka.bootstrap_servers, "g", partition_assignment_strategy="range") as ours:
        ours.subscribe(["t"], **told.callbacks)
        poll_until(ours, lambda: len(ours.assignment()) == 4, "ours has all")
        theirs.subscribe(["t"])
        settle(ours, theirs)
        assert {(p.topic, p.partition) for p in theirs.assignment()} | ours.assignment() == {
            ("t", n) for n in range(4)
        }
        theirs.close()
        poll_until(ours, lambda: len(ours.assignment()) == 4, "ours has all again")


def settle(ours: Consumer, theirs: confluent_kafka.Consumer) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (len(ours.assignment()) == len(theirs.assignment()) == 2):
        assert time.monotonic() < deadline, "they did not come to share"
        ours.poll(0.02)
        theirs.poll(0.02)
