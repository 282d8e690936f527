"""The driver's side of a stream, as Spark calls it, without a Spark: starts, micro-batches, commits, losses."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, Consumer, TopicPartition
from kohort.broker.running import running
from kohort.client.errors import FencedInstanceId
from kohort.spark.driver.commit_only import GroupTaken
from kohort.spark.driver.member import SoleMember
from kohort.spark.driver.stream import Guard, StreamDriver
from kohort.spark.executor.tasks import RangePartition
from kohort.spark.offsets import Offsets
from kohort.spark.ranges import DataLoss, OffsetRange
from kohort.wire.errors import KafkaError
from tests.clients.process import eventually
from tests.spark.reading import fill, options_for


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running(
        group_consumer_heartbeat_interval_ms=200, group_consumer_min_heartbeat_interval_ms=200
    ) as broker:
        yield broker.bootstrap_servers


CLASSIC = {"kafka__session__timeout__ms": 300_000}
NEW_PROTOCOL = {"kafka__group__protocol": "consumer"}
both_protocols = pytest.mark.parametrize("protocol", [CLASSIC, NEW_PROTOCOL], ids=["classic", "consumer"])


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as client:
        yield client


_names = itertools.count()


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"t{next(_names)}"
    admin.create_topic(name, 2)
    return name


@pytest.fixture
def group() -> str:
    return f"g{next(_names)}"


@pytest.fixture
def drive(bootstrap: str, topic: str) -> Iterator[Callable[..., StreamDriver]]:
    """`drive(startingOffsets="earliest", …)`: a driver that is closed at the end of the test."""
    drivers: list[StreamDriver] = []

    def make(**given: Any) -> StreamDriver:
        drivers.append(StreamDriver(options_for(bootstrap, topic, **given)))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def write(bootstrap: str, topic: str) -> Callable[..., None]:
    return lambda count, partition=0: fill(bootstrap, topic, range(count), partition)


def offsets(topic: str, *at: int) -> Offsets:
    return {TopicPartition(topic, number): offset for number, offset in enumerate(at)}


def ranges(driver: StreamDriver, start: Offsets, end: Offsets) -> list[OffsetRange]:
    return [task.wanted for task in driver.tasks(start, end) if isinstance(task, RangePartition)]


def committed(admin: Admin, group: str) -> Offsets:
    return {partition: at.offset for partition, at in admin.group_offsets(group).items()}


# --- where it starts ----------------------------------------------------------------------------------


def test_a_stream_starts_at_the_end_unless_it_is_told(drive: Any, topic: str, write: Any) -> None:
    write(3)
    assert drive().initial() == offsets(topic, 3, 0)
    assert drive(startingOffsets="earliest").initial() == offsets(topic, 0, 0)
    by_offset = f'{{"{topic}":{{"0":2,"1":-2}}}}'
    assert drive(startingOffsets=by_offset).initial() == offsets(topic, 2, 0)


def test_offsets_must_name_all_partitions(drive: Any, topic: str) -> None:
    with pytest.raises(
        ValueError, match=rf"Specified: Set\({topic}-0\) Assigned: Set\({topic}-0, {topic}-1\)"
    ):
        drive(startingOffsets=f'{{"{topic}":{{"0":2}}}}').initial()


def test_at_a_time(drive: Any, topic: str, write: Any, bootstrap: str) -> None:
    before = int(time.time() * 1000) - 60_000
    write(2)
    write(1, 1)
    assert drive(startingTimestamp=before).initial() == offsets(topic, 0, 0)
    later = before + 10**9
    with pytest.raises(
        ValueError, match=f"No offset matched from request of topic-partition {topic}-0 and timestamp"
    ):
        drive(startingTimestamp=later).initial()
    at_the_end = drive(startingTimestamp=later, startingOffsetsByTimestampStrategy="latest")
    assert at_the_end.initial() == offsets(topic, 2, 1)


@pytest.mark.parametrize("mode", ["member", "assign"])
def test_the_groups_offsets_go_before_starting_offsets(
    drive: Any, topic: str, write: Any, admin: Admin, group: str, mode: str
) -> None:
    write(5)
    admin.alter_group_offsets(group, {(topic, 0): 2})
    driver = drive(startingOffsets="latest", kafka__group__id=group, groupMode=mode)
    assert driver.initial() == offsets(topic, 2, 0)


@pytest.mark.parametrize("mode", ["member", "assign", "shared"])
def test_the_start_is_committed_before_it_is_used(
    drive: Any, topic: str, write: Any, admin: Admin, group: str, mode: str
) -> None:
    write(5)
    driver = drive(kafka__group__id=group, groupMode=mode)
    assert driver.initial() == offsets(topic, 5, 0)
    assert committed(admin, group) == offsets(topic, 5, 0)
    driver.close()
    write(5)
    assert drive(kafka__group__id=group, groupMode=mode).initial() == offsets(topic, 5, 0)


def test_spark_asks_twice_and_gets_the_same(drive: Any, topic: str, write: Any, admin: Admin) -> None:
    driver = drive()
    start = driver.initial()
    write(3)
    admin.create_partitions({topic: 3})
    assert driver.initial() == start


def test_an_unknown_topic_is_named(bootstrap: str) -> None:
    driver = StreamDriver(options_for(bootstrap, "no-such-topic"))
    with pytest.raises(KafkaError, match=r"This server does not host this topic-partition.*'no-such-topic'"):
        driver.initial()
    driver.close()


def test_a_pattern_is_searched_in_names(bootstrap: str, admin: Admin) -> None:
    for name in ("orders", "my-orders", "orders-old", "bills"):
        admin.create_topic(name, 1)

    def found(pattern: str) -> set[str]:
        driver = StreamDriver(options_for(bootstrap, "", subscribePattern=pattern))
        try:
            return {partition.topic for partition in driver.initial()}
        finally:
            driver.close()

    assert found("orders") == {"orders", "my-orders", "orders-old"}
    assert found("^orders$") == {"orders"}
    assert found("nothing-is-called-so") == set()
    assert not any(name.startswith("__") for name in found("."))


def test_assign_leaves_out_partitions_that_are_not_there(bootstrap: str, topic: str) -> None:
    driver = StreamDriver(options_for(bootstrap, "", assign=f'{{"{topic}":[1,7]}}'))
    assert driver.initial() == {TopicPartition(topic, 1): 0}
    driver.close()


# --- micro-batches ------------------------------------------------------------------------------------


def test_everything_that_is_there(drive: Any, topic: str, write: Any) -> None:
    driver = drive(startingOffsets="earliest")
    start = driver.initial()
    write(5)
    end = driver.next(start, limited=False)
    assert end == offsets(topic, 5, 0)
    assert ranges(driver, start, end) == [OffsetRange(TopicPartition(topic, 0), 0, 5)]
    assert driver.next(end, limited=False) == end
    assert ranges(driver, end, end) == []


def test_max_offsets_per_trigger_and_the_true_end(drive: Any, topic: str, write: Any) -> None:
    write(90)
    write(10, 1)
    driver = drive(startingOffsets="earliest", maxOffsetsPerTrigger=10)
    end = driver.next(driver.initial(), limited=True)
    assert end == offsets(topic, 9, 1)
    assert driver.ends == offsets(topic, 90, 10)
    assert driver.next(end, limited=False) == offsets(topic, 90, 10)  # Trigger.Once ignores the limit


def test_min_offsets_per_trigger(drive: Any, topic: str, write: Any) -> None:
    driver = drive(startingOffsets="earliest", minOffsetsPerTrigger=10)
    start = driver.initial()
    assert driver.next(start, limited=True) == start
    write(3)
    first = driver.next(start, limited=True)
    assert first == offsets(topic, 3, 0)
    write(3)
    assert driver.next(first, limited=True) == first
    write(7)
    assert driver.next(first, limited=True) == offsets(topic, 13, 0)


def test_available_now_stops_at_what_was_there_at_the_start(drive: Any, topic: str, write: Any) -> None:
    write(6)
    driver = drive(startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=3)
    driver.freeze()
    start = driver.initial()
    write(6)
    first = driver.next(start, limited=True)
    second = driver.next(first, limited=True)
    assert [first, second] == [offsets(topic, 4, 0), offsets(topic, 6, 0)]
    assert driver.next(second, limited=True) == second


def test_new_partitions_are_read_from_offset_0(
    drive: Any, topic: str, write: Any, admin: Admin, bootstrap: str
) -> None:
    driver = drive()
    start = driver.initial()
    admin.create_partitions({topic: 3})
    write(4, 2)
    end = driver.next(start, limited=True)
    assert end == offsets(topic, 0, 0, 4)
    assert ranges(driver, start, end) == [OffsetRange(TopicPartition(topic, 2), 0, 4)]


def test_a_partition_that_appears_while_available_now_begins(
    drive: Any, topic: str, write: Any, admin: Admin
) -> None:
    driver = drive(startingOffsets="earliest")
    driver.freeze()
    admin.create_partitions({topic: 3})
    write(2, 2)
    start = driver.initial()
    end = driver.next(start, limited=True)
    assert end == offsets(topic, 0, 0)
    assert ranges(driver, start, end) == []
    driver._target = None  # the next run
    assert ranges(driver, end, driver.next(end, limited=True)) == [
        OffsetRange(TopicPartition(topic, 2), 0, 2)
    ]


def test_tasks_are_split(drive: Any, topic: str, write: Any) -> None:
    write(10)
    driver = drive(startingOffsets="earliest", maxRecordsPerPartition=4)
    start = driver.initial()
    assert [r.size for r in ranges(driver, start, driver.next(start, limited=True))] == [3, 3, 4]


def test_a_batch_that_was_planned_before_the_driver_died_is_planned_again(
    drive: Any, topic: str, write: Any
) -> None:
    write(10)
    start, end = offsets(topic, 2, 0), offsets(topic, 8, 0)
    assert ranges(drive(), start, end) == [OffsetRange(TopicPartition(topic, 0), 2, 8)]


# --- loss ---------------------------------------------------------------------------------------------


def test_a_start_behind_the_end_is_a_loss(drive: Any, topic: str, write: Any) -> None:
    write(10)
    driver = drive()
    driver.initial()
    with pytest.raises(DataLoss, match=f"Partition {topic}-0 offset was changed from 99 to 10"):
        driver.next(offsets(topic, 99, 0), limited=True)


def test_without_fail_on_data_loss_the_offset_goes_back(drive: Any, topic: str, write: Any) -> None:
    write(10)
    driver = drive(failOnDataLoss=False)
    driver.initial()
    start = offsets(topic, 99, 0)
    end = driver.next(start, limited=True)
    assert end == offsets(topic, 10, 0)
    assert ranges(driver, start, end) == []


def make_anew(admin: Admin, bootstrap: str, topic: str, count: int) -> None:
    admin.delete_topics(topic)
    admin.create_topic(topic, 2)
    fill(bootstrap, topic, range(count))


@pytest.mark.parametrize("count", [3, 80])
def test_a_topic_made_anew_is_noticed_by_its_id(
    drive: Any, topic: str, write: Any, admin: Admin, bootstrap: str, count: int
) -> None:
    write(50)
    driver = drive()
    start = driver.initial()
    make_anew(admin, bootstrap, topic, count)
    with pytest.raises(DataLoss, match=f"the topic {topic} was deleted and made anew"):
        driver.next(start, limited=True)


@pytest.mark.parametrize("count", [3, 49, 50, 80])
def test_or_is_read_from_its_beginning(
    drive: Any, topic: str, write: Any, admin: Admin, bootstrap: str, group: str, count: int
) -> None:
    write(50)
    given = {"kafka__group__id": group, "failOnDataLoss": False, "startingOffsets": "earliest"}
    driver = drive(**given)
    driver.initial()
    start = offsets(topic, 50, 0)
    driver.next(start, limited=True)
    make_anew(admin, bootstrap, topic, count)
    end = driver.next(start, limited=True)
    seen = [offset for each in ranges(driver, start, end) for offset in range(each.start, each.end)]
    while (then := driver.next(end, limited=True)) != end:
        for each in ranges(driver, end, then):
            seen += range(each.start, each.end)
        end = then
    assert seen == list(range(count))


def test_a_topic_deleted_under_the_query(drive: Any, topic: str, admin: Admin) -> None:
    driver = drive()
    start = driver.initial()
    admin.delete_topics(topic)
    with pytest.raises(KafkaError, match=rf"UnknownTopicOrPartitionException.*'{topic}'"):
        driver.next(start, limited=True)


# --- commits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["member", "assign", "shared"])
def test_what_is_durable_is_committed_and_nothing_else(
    drive: Any, topic: str, write: Any, admin: Admin, group: str, mode: str
) -> None:
    write(5)
    driver = drive(kafka__group__id=group, groupMode=mode, startingOffsets="earliest")
    start = driver.initial()
    end = driver.next(start, limited=True)
    assert committed(admin, group) == offsets(topic, 0, 0)  # the batch is planned, not done
    assert driver.next(end, limited=True) == end  # also on an idle topic
    eventually(lambda: committed(admin, group) == offsets(topic, 5, 0), "the commit arrives")


def test_available_now_ends_when_everything_is_committed(
    drive: Any, topic: str, write: Any, admin: Admin, group: str
) -> None:
    write(5)
    driver = drive(kafka__group__id=group, startingOffsets="earliest")
    driver.freeze()
    end = driver.next(driver.initial(), limited=True)
    assert driver.next(end, limited=True) == end
    assert committed(admin, group) == offsets(topic, 5, 0)


def test_the_last_commit_is_made_when_the_query_stops(
    drive: Any, topic: str, write: Any, admin: Admin, group: str
) -> None:
    write(5)
    driver = drive(kafka__group__id=group, startingOffsets="earliest")
    end = driver.next(driver.initial(), limited=True)
    write(1)
    driver.next(end, limited=True)
    driver.close()
    assert committed(admin, group) == offsets(topic, 5, 0)


def test_without_a_group_nothing_is_committed(drive: Any, write: Any, admin: Admin) -> None:
    before = {listing.group_id for listing in admin.list_groups()}
    driver = drive(groupIdPrefix="somebody")
    driver.next(driver.initial(), limited=True)
    assert {listing.group_id for listing in admin.list_groups()} <= before


@pytest.mark.parametrize("fails", [True, False])
def test_a_failed_commit(
    drive: Any, topic: str, write: Any, bootstrap: str, admin: Admin, group: str, fails: bool
) -> None:
    """groupMode=assign commits to a group without members; somebody joins it, and commits are refused."""
    driver = drive(
        kafka__group__id=group, groupMode="assign", failOnCommitError=fails, startingOffsets="earliest"
    )
    start = driver.initial()
    with Consumer(bootstrap_servers=bootstrap, group_id=group) as other:
        other.subscribe([topic])
        eventually(lambda: other.poll(0.05) or other.assignment(), "the other consumer is a member")
        write(5)
        if fails:
            with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
                driver.next(start, limited=True)
            return
        end = driver.next(start, limited=True)
        assert driver.next(end, limited=True) == end
    eventually(
        lambda: driver.next(end, limited=True) and committed(admin, group) == offsets(topic, 5, 0),
        "it is tried again, and succeeds when the other consumer is gone",
    )


# --- members ------------------------------------------------------------------------------------------


@both_protocols
def test_the_driver_is_a_static_member_with_all_partitions(
    drive: Any, topic: str, admin: Admin, group: str, protocol: dict[str, object]
) -> None:
    driver = drive(kafka__group__id=group, **protocol)
    driver.initial()
    described = admin.describe_groups(group)[group]
    assert described.state == "Stable"
    assert [member.group_instance_id for member in described.members] == [f"kohort-spark-{group}"]
    assert set(described.members[0].assignment) == set(offsets(topic, 0, 0))
    driver.close()
    assert admin.describe_groups(group)[group].state == "Empty"


def test_a_second_query_in_the_same_group_fails_clearly(
    drive: Any, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.spark.driver.member.TAKEOVER_TIMEOUT_S", 0.3)
    first = drive(kafka__group__id=group)
    start = first.initial()
    with pytest.raises(
        GroupTaken, match=r"already has a query .* its own kafka.group.id, or set groupMode=shared"
    ):
        drive(kafka__group__id=group).initial()
    assert first.next(start, limited=True) == start  # and the first one goes on


def test_a_group_with_other_consumers_is_not_taken(
    drive: Any, topic: str, bootstrap: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.spark.driver.member.TAKEOVER_TIMEOUT_S", 0.3)
    with Consumer(bootstrap_servers=bootstrap, group_id=group) as other:
        other.subscribe([topic])
        eventually(lambda: other.poll(0.05) or other.assignment(), "the other consumer is a member")
        with pytest.raises(
            GroupTaken, match=r"has other members .* use another kafka.group.id, or groupMode=shared"
        ):
            drive(kafka__group__id=group).initial()


@both_protocols
def test_a_killed_driver_is_replaced_at_once_and_its_commits_are_fenced(
    drive: Any,
    topic: str,
    write: Any,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    protocol: dict[str, object],
) -> None:
    old = drive(kafka__group__id=group, startingOffsets="earliest", **protocol)
    start = old.initial()
    write(3)
    monkeypatch.setattr(
        "kohort.spark.driver.member.process_lives", lambda name: False
    )  # as if it had been on another machine
    began = time.monotonic()
    new = drive(kafka__group__id=group, **protocol)
    assert new.initial() == start
    assert time.monotonic() - began < 150  # and not session.timeout.ms
    assert isinstance(old.group, SoleMember)
    eventually(lambda: isinstance(old.group._error, FencedInstanceId), "the old one knows")
    with pytest.raises(GroupTaken, match="another query has taken over the group"):
        old.next(start, limited=True)
    old.close()
    assert new.next(start, limited=True) == offsets(topic, 3, 0)
    new.group.check()


def test_new_topics_of_a_pattern_join_the_subscription(bootstrap: str, admin: Admin, group: str) -> None:
    admin.create_topic(f"{group}-a", 1)
    driver = StreamDriver(options_for(bootstrap, "", subscribePattern=f"{group}-", kafka__group__id=group))
    start = driver.initial()
    admin.create_topic(f"{group}-b", 1)
    fill(bootstrap, f"{group}-b", range(2))
    assert driver.next(start, limited=True) == {
        TopicPartition(f"{group}-a", 0): 0,
        TopicPartition(f"{group}-b", 0): 2,
    }
    eventually(
        lambda: len(admin.describe_groups(group)[group].members[0].assignment) == 2,
        "both topics are assigned",
    )
    driver.close()


# --- the end of the process -----------------------------------------------------------------------------


def test_sigterm_waits_for_the_call_under_way() -> None:
    guard = Guard()
    before = signal.getsignal(signal.SIGTERM)
    try:
        reached = []

        def call() -> None:
            with guard:
                guard._on_sigterm(signal.SIGTERM, None)
                reached.append("the end of the call")

        with pytest.raises(SystemExit) as ended:
            call()
        assert reached
        assert ended.value.code == 143
        with pytest.raises(SystemExit):
            Guard()._on_sigterm(signal.SIGTERM, None)
    finally:
        signal.signal(signal.SIGTERM, before)


_ENDS = """
import os, signal, sys
from importlib.machinery import ModuleSpec
from kohort.spark.driver.stream import RUNNER, StreamReader
from tests.spark.reading import options_for

how, bootstrap, topic, group = sys.argv[1:]
sys.modules["__main__"].__spec__ = ModuleSpec(RUNNER, None)  # as in the process that Spark runs it in
reader = StreamReader(options_for(bootstrap, topic, kafka__group__id=group), ("value",))
reader.initialOffset()
print("joined", flush=True)
if how == "in the farewell":
    leave = reader._driver.group._leave

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        leave()

    reader._driver.group._leave = interrupted
    reader.stop()
else:
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("how", ["in the farewell", "before it"])
def test_sigterm_does_not_cut_the_farewell_short(
    bootstrap: str, admin: Admin, topic: str, group: str, how: str
) -> None:
    """Spark closes the socket of the source's process and sends SIGTERM; which is noticed first is chance."""
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS, how, bootstrap, topic, group],
        cwd=Path(__file__).resolve().parents[2], stdout=subprocess.PIPE, text=True, timeout=120,
    )  # fmt: skip
    assert (ended.stdout, ended.returncode) == ("joined\n", 143)
    assert admin.describe_groups(group)[group].state == "Empty"
