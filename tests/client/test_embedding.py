"""The door for programs that are built on the client: sessions with a cluster, for a group, and reads of ranges."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort import Admin, Producer, TopicPartition
from kohort.broker.running import running
from kohort.client.embedding import (
    ClusterSession,
    FetchedRecords,
    GroupSession,
    PartitionLeader,
    TopicReplaced,
    check_assignors,
)
from kohort.client.errors import ClosedClient, OffsetOutOfRange, TimedOut, Wakeup
from kohort.settings import SettingError
from kohort.wire.records.batch import iter_batches, iter_records
from tests.clients.process import BrokerProcess, eventually, fixed_port

log = logging.getLogger("tests.embedding")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as client:
        yield client


@pytest.fixture
def topic(admin: Admin, counter: Iterator[int] = itertools.count()) -> str:  # noqa: B008
    name = f"embedded{next(counter)}"
    admin.create_topic(name, 2)
    return name


@pytest.fixture
def session(bootstrap: str) -> Iterator[ClusterSession]:
    with ClusterSession({"bootstrap.servers": bootstrap}) as made:
        yield made


@pytest.fixture
def group(bootstrap: str, topic: str) -> Iterator[GroupSession]:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": "false"}
    with GroupSession(settings, "a group") as made:
        yield made


def write(bootstrap: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, value=b"%d" % number, partition=0, timestamp_ms=1000 + number)
        producer.flush()


def leader_of(session: ClusterSession, partition: TopicPartition) -> PartitionLeader:
    leader = PartitionLeader.of(session.look_up([partition.topic]), partition)
    assert leader is not None
    return leader


def values(fetched: FetchedRecords | None) -> list[int]:
    assert fetched is not None
    whole = [fetched.records[at : at + header.size] for at, header in iter_batches(fetched.records)]
    return [int(record.value or b"") for batch in whole for record in iter_records(batch)]


# --- topics and offsets -------------------------------------------------------------------------------


def test_a_session_knows_topics_and_offsets(session: ClusterSession, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, 3)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert session.look_up([topic]).partitions_of(topic) == (first, second)
    assert topic in session.look_up(None).topics
    assert session.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert session.end_offsets([first, second]) == {first: 3, second: 0}
    found = session.offsets_for_times({first: 1001, second: 1001})
    assert {partition: at and at.offset for partition, at in found.items()} == {first: 1, second: None}
    assert session.end_offsets([]) == session.beginning_offsets([]) == {}


def test_a_topic_that_does_not_exist_is_not_created(session: ClusterSession) -> None:
    cluster = session.look_up(["nothing"])
    assert "nothing" in cluster.errors
    assert PartitionLeader.of(cluster, TopicPartition("nothing", 0)) is None


def test_a_closed_session_says_so(bootstrap: str) -> None:
    session = ClusterSession({"bootstrap.servers": bootstrap})
    session.close()
    with pytest.raises(ClosedClient):
        session.look_up(None)


def test_assignors_are_checked_by_name() -> None:
    check_assignors("range,cooperative-sticky")
    with pytest.raises(SettingError):
        check_assignors("nobody")


# --- a group ------------------------------------------------------------------------------------------


def test_an_outsider_commits_for_a_group(group: GroupSession, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    group.commit({first: 7})
    committed = group.committed([first, second])
    assert {partition: at and at.offset for partition, at in committed.items()} == {first: 7, second: None}
    pending = group.begin_commit({second: 9})
    pending.wait(30)
    assert (pending.done, pending.error, pending.offsets) == (True, None, {second: 9})
    assert group.describe().state == "Empty"


def test_a_member_serves_until_it_is_woken_and_leaves(group: GroupSession, topic: str) -> None:
    owned: list[TopicPartition] = []

    def on_assigned(partitions: list[TopicPartition]) -> None:
        group.pause(partitions)
        owned.extend(partitions)

    group.join([topic], on_assigned, lambda partitions: None, lambda partitions: None)
    woken = threading.Event()

    def serve() -> None:
        try:
            while True:
                group.serve(1.0)
        except Wakeup:
            woken.set()

    thread = threading.Thread(target=serve)
    thread.start()
    eventually(lambda: len(owned) == 2, "both partitions are assigned")
    assert [len(member.assignment) for member in group.describe().members] == [2]
    group.wakeup()
    thread.join(30)
    assert woken.is_set()
    assert topic in group.membership()
    group.leave("the test is over", 30)
    assert group.describe().state == "Empty"


# --- ranges -------------------------------------------------------------------------------------------


def test_a_range_is_read_from_any_offset(session: ClusterSession, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)
    fetcher = session.fetch_range(partition, leader_of(session, partition), 10, log)
    fetched = fetcher.receive(fetcher.send(0))
    assert values(fetched) == list(range(10))
    assert fetched is not None
    assert (fetched.next_offset, fetched.log_end_offset, fetched.aborted) == (10, 10, None)
    nothing = fetcher.receive(fetcher.send(10))
    assert nothing is not None
    assert (len(nothing.records), nothing.next_offset) == (0, None)


def test_an_offset_that_the_log_does_not_hold(session: ClusterSession, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    fetcher = session.fetch_range(partition, leader_of(session, partition), 99, log)
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0 has no offset 50"):
        fetcher.receive(fetcher.send(50))


@pytest.mark.parametrize("anew", [True, False])
def test_a_topic_that_was_deleted_is_not_read_under_its_old_name(
    session: ClusterSession, admin: Admin, bootstrap: str, topic: str, anew: bool
) -> None:
    write(bootstrap, topic, 1)
    partition = TopicPartition(topic, 0)
    fetcher = session.fetch_range(partition, leader_of(session, partition), 1, log)
    admin.delete_topics(topic)
    if anew:
        admin.create_topic(topic, 2)
    with pytest.raises(TopicReplaced, match="made anew" if anew else "does not exist any more"):
        fetcher.receive(fetcher.send(0))


def test_a_partition_without_a_leader_is_looked_up_again(
    session: ClusterSession, bootstrap: str, topic: str
) -> None:
    write(bootstrap, topic, 2)
    partition = TopicPartition(topic, 0)
    known = leader_of(session, partition)
    nobody = PartitionLeader(known.topic_id, None, -1)
    fetcher = session.fetch_range(partition, nobody, 2, log)
    assert fetcher.receive(fetcher.send(0)) is None  # and now the leader is known
    assert values(fetcher.receive(fetcher.send(0))) == [0, 1]


def test_a_leader_that_is_gone_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "durability=os", port=fixed_port()) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        write(broker.bootstrap_servers, "t", 3)
        partition = TopicPartition("t", 0)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "30000"}
        with ClusterSession(settings) as session:
            fetcher = session.fetch_range(partition, leader_of(session, partition), 3, log)
            broker.kill()
            ahead = fetcher.send(0)
            broker.restart()
            while (fetched := fetcher.receive(ahead)) is None:
                ahead = fetcher.send(0)
            assert values(fetched) == [0, 1, 2]
        with ClusterSession({**settings, "default.api.timeout.ms": "300"}) as hasty:
            fetcher = hasty.fetch_range(partition, leader_of(hasty, partition), 3, log)
            broker.kill()
            with pytest.raises(TimedOut):
                until_raised(lambda: fetcher.receive(fetcher.send(0)))


def until_raised(call: Callable[[], object]) -> None:
    while True:
        call()
