"""The consumer as users call it, against a real cluster (ours, or the one that conftest.py is given)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import confluent_kafka
import pytest

from kohort import (
    Admin,
    ClosedClient,
    ConcurrentUse,
    Consumer,
    DeserializationFailed,
    IllegalState,
    NoOffsetForPartition,
    OffsetAndMetadata,
    Record,
    TimedOut,
    TopicPartition,
    Wakeup,
)
from tests.clients.process import eventually

NewTopic = Callable[..., str]
NewConsumer = Callable[..., Consumer]


@pytest.fixture
def new_consumer(bootstrap_servers: str) -> Iterable[NewConsumer]:
    """Makes consumers that begin at the beginning, and closes them after the test."""
    made: list[Consumer] = []

    def make(group_id: str | None = None, **settings: object) -> Consumer:
        given: dict[str, object] = {
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 1_000,
            **settings,
        }
        made.append(Consumer(bootstrap_servers=bootstrap_servers, group_id=group_id, **given))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(timeout=5)


@pytest.fixture
def write(bootstrap_servers: str) -> Callable[..., None]:
    """Writes values to partitions, with a client that is not ours."""

    def make(topic: str, values: Iterable[str], partition: int = 0, **more: object) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
        for value in values:
            producer.produce(topic, value=value.encode(), partition=partition, **more)
        assert producer.flush(60) == 0

    return make


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def read(consumer: Consumer, count: int, timeout_s: float = 60.0) -> list[Record]:
    """The next records, in the order in which they come."""
    records: list[Record] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        for some in consumer.poll(0.5).values():
            records += some
    return records


def values(records: Iterable[Record]) -> list[str]:
    return [record.value.decode() for record in records]


def poll_until(consumer: Consumer, condition: Callable[[], object], what: str) -> None:
    eventually(lambda: (consumer.poll(0.05) or True) and condition(), what, 60)


# --- subscriptions ------------------------------------------------------------------------------------


def test_a_subscriber_gets_all_records_with_all_their_fields(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], group: str
) -> None:
    topic = new_topic()
    write(topic, ["one"], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    consumer = new_consumer(group)
    consumer.subscribe([topic])
    (record,) = read(consumer, 1)
    assert (record.topic, record.partition, record.offset) == (topic, 0, 0)
    assert (record.key, record.value, record.timestamp) == (b"k", b"one", 1_700_000_000_123)
    assert record.headers == [("h", b"1"), ("h", None)]
    assert record.timestamp_type == 0
    assert consumer.subscription() == {topic}
    assert consumer.assignment() == {(topic, 0)}


def test_subscribe_pattern_and_assign_exclude_each_other(new_consumer: NewConsumer, group: str) -> None:
    consumer = new_consumer(group)
    consumer.subscribe(["a"])
    with pytest.raises(IllegalState, match=r"unsubscribe\(\) first"):
        consumer.assign([("a", 0)])
    with pytest.raises(IllegalState, match="exclude each other"):
        consumer.subscribe(re.compile("a.*"))
    consumer.unsubscribe()
    consumer.assign([("a", 0)])
    with pytest.raises(IllegalState, match="exclude each other"):
        consumer.subscribe(["a"])


def test_an_empty_list_unsubscribes(
    new_consumer: NewConsumer, new_topic: NewTopic, admin: Admin, group: str
) -> None:
    topic = new_topic()
    consumer = new_consumer(group)
    revoked: list[TopicPartition] = []
    consumer.subscribe([topic], on_revoked=revoked.extend)
    poll_until(consumer, consumer.assignment, "it has its partition")
    consumer.subscribe([])
    assert revoked == [(topic, 0)]
    assert consumer.assignment() == consumer.subscription() == frozenset()
    assert admin.describe_groups(group)[group].state == "Empty"


def test_polling_with_no_subscription_is_an_error(new_consumer: NewConsumer, group: str) -> None:
    with pytest.raises(IllegalState, match="subscribe"):
        new_consumer(group).poll(0)


@pytest.mark.parametrize("topics", [[""], ["  "], ["good", None]])
def test_blank_topics_are_refused(new_consumer: NewConsumer, group: str, topics: list[str]) -> None:
    with pytest.raises(ValueError, match="must have a name"):
        new_consumer(group).subscribe(topics)


def test_a_string_is_not_a_list_of_topics(new_consumer: NewConsumer, group: str) -> None:
    with pytest.raises(IllegalState, match=r"subscribe\(\['orders'\]\)"):
        new_consumer(group).subscribe("orders")


def test_subscribing_without_a_group_says_what_to_do(new_consumer: NewConsumer) -> None:
    with pytest.raises(IllegalState, match=r"needs group\.id"):
        new_consumer().subscribe(["a"])


def test_a_pattern_finds_topics_that_are_made_later(
    new_consumer: NewConsumer,
    new_topic: NewTopic,
    new_name: Callable[[str], str],
    write: Callable[..., None],
    group: str,
) -> None:
    stem = new_name("pattern")
    first = new_topic(name=f"{stem}-a")
    consumer = new_consumer(group)
    consumer.subscribe(re.compile(f"{stem}-.*"))
    poll_until(consumer, lambda: consumer.assignment() == {(first, 0)}, "the first topic is read")
    second = new_topic(name=f"{stem}-b", partitions=2)
    poll_until(consumer, lambda: len(consumer.assignment()) == 3, "the second one too")
    write(second, ["new"], partition=1)
    assert values(read(consumer, 1)) == ["new"]
    assert consumer.subscription() == {first, second}


def test_the_leader_rejoins_when_a_topic_gets_more_partitions(
    new_consumer: NewConsumer, new_topic: NewTopic, admin: Admin, group: str
) -> None:
    topic = new_topic()
    consumer = new_consumer(group)
    consumer.subscribe([topic])
    poll_until(consumer, consumer.assignment, "it has one")
    admin.create_partitions({topic: 3})
    poll_until(consumer, lambda: len(consumer.assignment()) == 3, "it has all three")


def test_assign_reads_without_a_group(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    write(topic, ["a"], partition=0)
    write(topic, ["b"], partition=1)
    consumer = new_consumer()
    consumer.assign([(topic, 1)])
    assert values(read(consumer, 1)) == ["b"]
    with pytest.raises(IllegalState, match=r"group\.id"):
        consumer.commit()


def test_assign_with_a_group_commits_and_does_not_join(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], admin: Admin, group: str
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 5))
    consumer = new_consumer(group, enable_auto_commit=False)
    consumer.assign([(topic, 0)])
    read(consumer, 5)
    consumer.commit()
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 5
    assert admin.describe_groups(group)[group].state == "Empty"
    assert consumer.group_metadata().generation_id == -1


# --- rebalances -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_two_members_share_and_one_takes_over(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str, strategy: str
) -> None:
    topic = new_topic(partitions=4)
    one = new_consumer(group, partition_assignment_strategy=[strategy])
    two = new_consumer(group, partition_assignment_strategy=[strategy])
    told: dict[str, list[tuple[str, list[TopicPartition]]]] = {"one": [], "two": []}
    for name, consumer in (("one", one), ("two", two)):
        calls = told[name]
        consumer.subscribe(
            [topic],
            on_assigned=lambda ps, calls=calls: calls.append(("assigned", ps)),
            on_revoked=lambda ps, calls=calls: calls.append(("revoked", ps)),
        )
    poll_until(one, lambda: len(one.assignment()) == 4, "one has all")
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [one.poll(0.05) for _ in iter(stop.is_set, True)])
    thread.start()
    try:
        poll_until(two, lambda: len(two.assignment()) == 2, "two has half")
        eventually(lambda: len(one.assignment()) == 2, "one has the other half")
        assert not one.assignment() & two.assignment()
    finally:
        stop.set()
        thread.join()
    moved = [ps for what, ps in told["one"] if what == "revoked"]
    assert len(moved) == 1
    assert len(moved[0]) == (2 if strategy == "cooperative-sticky" else 4)
    two.close()
    poll_until(one, lambda: len(one.assignment()) == 4, "one has all again")
    assert [what for what, _ in told["two"]] in (["assigned", "revoked"], ["assigned", "assigned", "revoked"])


def test_a_static_member_comes_back_without_a_rebalance(
    new_consumer: NewConsumer, new_topic: NewTopic, admin: Admin, group: str
) -> None:
    topic = new_topic(partitions=2)
    consumer = new_consumer(group, group_instance_id="me")
    consumer.subscribe([topic])
    poll_until(consumer, consumer.assignment, "it has its partitions")
    generation = consumer.group_metadata().generation_id
    consumer.close()
    assert admin.describe_groups(group)[group].state == "Stable"  # it did not leave
    again = new_consumer(group, group_instance_id="me")
    again.subscribe([topic])
    poll_until(again, again.assignment, "it has them again")
    assert again.group_metadata().generation_id == generation


def test_enforce_rebalance_makes_a_new_generation(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    consumer = new_consumer(group)
    consumer.subscribe([topic])
    poll_until(consumer, consumer.assignment, "it has its partition")
    before = consumer.group_metadata().generation_id
    consumer.enforce_rebalance("because I can")
    poll_until(consumer, lambda: consumer.group_metadata().generation_id == before + 1, "it joined again")


def test_an_exception_in_a_callback_is_raised_by_poll_after_all_of_them_ran(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    consumer = new_consumer(group)
    ran: list[str] = []

    def fail(partitions: list[TopicPartition]) -> None:
        ran.append("revoked")
        raise RuntimeError("no")

    consumer.subscribe([topic], on_revoked=fail, on_assigned=lambda ps: ran.append("assigned"))
    poll_until(consumer, consumer.assignment, "it has its partition")
    consumer.enforce_rebalance()
    with pytest.raises(RuntimeError, match="no"):
        poll_until(consumer, lambda: False, "the callback fails")
    poll_until(consumer, consumer.assignment, "it has it again all the same")
    assert ran == ["assigned", "revoked", "assigned"]
    consumer.subscribe([topic])


def test_a_callback_may_seek_and_commit(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], admin: Admin, group: str
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 10))
    consumer = new_consumer(group, enable_auto_commit=False)
    consumer.subscribe(
        [topic],
        on_assigned=lambda ps: consumer.seek(ps[0], 7),
        on_revoked=lambda ps: consumer.commit(),
    )
    assert values(read(consumer, 3)) == ["7", "8", "9"]
    consumer.close()
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 10


def test_a_callback_may_ask_where_it_will_begin(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], group: str
) -> None:
    topic = new_topic(partitions=2)
    write(topic, numbers(0, 10), partition=1)
    consumer = new_consumer(group, enable_auto_commit=False)
    consumer.commit({(topic, 1): 7})
    found: list[dict[TopicPartition, int]] = []
    consumer.subscribe(
        [topic],
        on_assigned=lambda ps: found.append({p: consumer.position(p) for p in ps}),
        on_revoked=lambda ps: found.append({p: consumer.position(p) for p in ps}),
    )
    assert values(read(consumer, 3)) == ["7", "8", "9"]
    consumer.close()
    assert found == [{(topic, 0): 0, (topic, 1): 7}, {(topic, 0): 0, (topic, 1): 10}]


# --- positions -------------------------------------------------------------------------------------------


def test_seek_goes_anywhere(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    write(topic, numbers(0, 20))
    consumer = new_consumer()
    consumer.assign([partition])
    assert values(read(consumer, 20)) == numbers(0, 20)
    consumer.seek(partition, 15)
    assert consumer.position(partition) == 15
    assert values(read(consumer, 5)) == numbers(15, 20)
    consumer.seek_to_beginning()
    assert consumer.position(partition) == 0
    assert values(read(consumer, 20)) == numbers(0, 20)
    consumer.seek_to_end(partition)
    assert consumer.poll(0.2) == {}
    assert consumer.position(partition) == 20
    with pytest.raises(ValueError, match="negative"):
        consumer.seek(partition, -1)
    with pytest.raises(IllegalState, match="not assigned"):
        consumer.seek(("other", 0), 1)


def test_without_a_reset_policy_a_missing_offset_is_an_error(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    consumer = new_consumer(group, auto_offset_reset="none")
    consumer.assign([(topic, 0)])
    with pytest.raises(NoOffsetForPartition, match=f"{topic}-0"):
        consumer.poll(60)
    consumer.seek((topic, 0), 0)
    assert consumer.poll(0.1) == {}


def test_latest_begins_at_the_end(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    write(topic, ["old"])
    consumer = new_consumer(auto_offset_reset="latest")
    consumer.assign([(topic, 0)])
    assert consumer.position((topic, 0)) == 1
    write(topic, ["new"])
    assert values(read(consumer, 1)) == ["new"]


def test_max_poll_records_slices_without_dropping(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 100))
    consumer = new_consumer(max_poll_records=7)
    consumer.assign([(topic, 0)])
    seen: list[str] = []
    while len(seen) < 100:
        polled = consumer.poll(5)
        assert sum(map(len, polled.values())) <= 7
        seen += [value for records in polled.values() for value in values(records)]
        assert consumer.position((topic, 0)) == len(seen)
    assert seen == numbers(0, 100)


def test_a_paused_partition_gives_nothing_until_it_is_resumed(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    write(topic, numbers(0, 10), partition=0)
    write(topic, numbers(10, 20), partition=1)
    consumer = new_consumer(max_poll_records=1)
    consumer.assign([(topic, 0), (topic, 1)])
    read(consumer, 1)
    consumer.pause((topic, 0))
    assert consumer.paused() == {(topic, 0)}
    position = consumer.position((topic, 0))
    rest = read(consumer, 10 - consumer.position((topic, 1)))
    assert {record.partition for record in rest} == {1}
    assert consumer.poll(0.2) == {}
    consumer.resume((topic, 0))
    more = read(consumer, 10 - position)
    assert values(more) == numbers(position, 10)


def test_offsets_are_looked_up_by_time_and_at_both_ends(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    for second in range(3):
        write(topic, [str(second)], timestamp=1_000_000 + second * 1_000)
    consumer = new_consumer()
    partition = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({partition: 1_000_500})[partition]
    assert found is not None
    assert (found.offset, found.timestamp) == (1, 1_001_000)
    assert consumer.offsets_for_times({partition: 2_000_000}) == {partition: None}
    assert consumer.beginning_offsets(partition) == {partition: 0}
    assert consumer.end_offsets(partition) == {partition: 3}
    with pytest.raises(ValueError, match="negative"):
        consumer.offsets_for_times({partition: -2})
    consumer.assign([partition])
    consumer.seek(partition, 1)
    assert consumer.lag() == {partition: 2}
    assert consumer.partitions_for(topic) == (partition,)
    assert topic in consumer.list_topics()


def test_looking_up_a_partition_that_is_not_there_ends_in_time(
    new_consumer: NewConsumer, new_name: Callable[[str], str]
) -> None:
    nowhere = TopicPartition(new_name("nowhere"), 0)
    consumer = new_consumer(allow_auto_create_topics=False)
    began = time.monotonic()
    with pytest.raises(TimedOut, match=nowhere.topic):
        consumer.end_offsets(nowhere, timeout=0.5)
    assert time.monotonic() - began < 30  # not the 60 s of default.api.timeout.ms
    assert consumer.partitions_for(nowhere.topic) == ()


# --- commits ---------------------------------------------------------------------------------------------


def test_commit_and_go_on_from_there(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], group: str
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    write(topic, numbers(0, 10))
    first = new_consumer(group, enable_auto_commit=False, max_poll_records=4)
    first.subscribe([topic])
    assert values(read(first, 4)) == numbers(0, 4)
    assert first.committed(partition) == {partition: None}
    first.commit()
    assert first.committed(partition)[partition] == OffsetAndMetadata(4, "", 0)
    first.commit({partition: OffsetAndMetadata(6, "noted")})
    assert first.committed(partition)[partition] == OffsetAndMetadata(6, "noted")
    first.close()
    second = new_consumer(group)
    second.subscribe([topic])
    assert values(read(second, 4)) == numbers(6, 10)


def test_async_commits_keep_their_order_and_call_back(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    consumer = new_consumer(group, enable_auto_commit=False)
    consumer.assign([partition])
    heard: list[tuple[int, Exception | None]] = []
    for offset in range(1, 6):
        consumer.commit_async(
            {partition: offset}, lambda offsets, error: heard.append((offsets[partition].offset, error))
        )
    consumer.commit({partition: 6})
    assert heard == [(offset, None) for offset in range(1, 6)]
    assert consumer.committed(partition)[partition] == OffsetAndMetadata(6)


def test_auto_commit_on_close_holds_what_poll_returned(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], admin: Admin, group: str
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 10))
    consumer = new_consumer(group, max_poll_records=3)
    consumer.subscribe([topic])
    read(consumer, 3)
    consumer.close()
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 3


def test_auto_commit_on_the_interval(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], admin: Admin, group: str
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 3))
    consumer = new_consumer(group, auto_commit_interval_ms=100)
    consumer.subscribe([topic])
    read(consumer, 3)
    poll_until(
        consumer,
        lambda: 3 in {at.offset for at in admin.group_offsets(group).values() if at is not None},
        "the offsets are committed by themselves",  # maybe 0 at first: an interval is soon over
    )


# --- iteration -------------------------------------------------------------------------------------------


def test_iteration_commits_only_what_it_gave_out(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], admin: Admin, group: str
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    write(topic, numbers(0, 10))
    consumer = new_consumer(group)
    consumer.subscribe([topic])
    seen = []
    for record in consumer:
        seen.append(record.value.decode())
        if len(seen) == 4:
            assert consumer.position(partition) == 4
            consumer.commit()
            assert admin.group_offsets(group)[partition].offset == 4
        if len(seen) == 6:
            break
    assert consumer.position(partition) == 6
    assert values(read(consumer, 4)) == numbers(6, 10)  # nothing is lost that was polled but not given out
    consumer.close()
    assert admin.group_offsets(group)[partition].offset == 10


def test_a_seek_in_an_iteration_is_followed_at_once(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 10))
    consumer = new_consumer()
    consumer.assign([(topic, 0)])
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if seen == [0, 1]:
            consumer.seek((topic, 0), 8)
        if record.offset == 9:
            break
    assert seen == [0, 1, 8, 9]


def test_going_back_to_the_beginning_in_an_iteration_too(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 3))
    consumer = new_consumer()
    consumer.assign([(topic, 0)])
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if seen == [0, 1]:
            consumer.seek_to_beginning()
        if record.offset == 2:
            break
    assert seen == [0, 1, 0, 1, 2]


def test_arrow_holds_the_same_as_records(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    write(topic, numbers(0, 100), key=b"k")
    consumer = new_consumer()
    consumer.assign([(topic, 0)])
    rows: list[dict[str, object]] = []
    while len(rows) < 100:
        batch = consumer.poll_arrow(60.0, max_records=30)
        assert batch is not None
        assert batch.num_rows <= 30
        rows += batch.to_pylist()
    assert [row["value"] for row in rows] == [n.encode() for n in numbers(0, 100)]
    assert [row["offset"] for row in rows] == list(range(100))
    assert rows[0]["topic"] == topic
    assert consumer.poll_arrow(0.1) is None
    assert consumer.position((topic, 0)) == 100


# --- what users bring ------------------------------------------------------------------------------------


def test_deserializers_make_objects_and_a_failing_one_stops_at_its_record(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None]
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    write(topic, ["1", "2", "x", "4"])
    consumer = new_consumer(value_deserializer=lambda topic, data: int(data))
    consumer.assign([partition])
    assert [record.value for record in read(consumer, 2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(DeserializationFailed, match="offset 2") as failed:
            consumer.poll(60)
        assert (failed.value.partition, failed.value.offset) == (partition, 2)
        assert isinstance(failed.value.__cause__, ValueError)
        assert consumer.position(partition) == 2
    consumer.seek(partition, 3)
    assert [record.value for record in read(consumer, 1)] == [4]


def test_interceptors_see_records_and_commits(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], group: str
) -> None:
    class Watch:
        def __init__(self) -> None:
            self.seen: list[str] = []
            self.committed: list[int] = []

        def on_consume(
            self, records: dict[TopicPartition, list[Record]]
        ) -> dict[TopicPartition, list[Record]]:
            self.seen += [value for some in records.values() for value in values(some)]
            return records

        def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
            self.committed += [at.offset for at in offsets.values()]

    class Broken:
        def on_consume(self, records: object) -> object:
            raise RuntimeError("an interceptor must not stop the records")

    watch = Watch()
    topic = new_topic()
    write(topic, ["a", "b"])
    consumer = new_consumer(group, interceptors=[Broken(), watch], enable_auto_commit=False)
    consumer.subscribe([topic])
    read(consumer, 2)
    consumer.commit()
    assert watch.seen == ["a", "b"]
    assert watch.committed == [2]


# --- threads and the end ---------------------------------------------------------------------------------


def test_wakeup_ends_a_poll_from_another_thread(new_consumer: NewConsumer, new_topic: NewTopic) -> None:
    consumer = new_consumer()
    consumer.assign([(new_topic(), 0)])
    timer = threading.Timer(0.2, consumer.wakeup)
    timer.start()
    with pytest.raises(Wakeup):
        consumer.poll(30)
    timer.join()
    assert consumer.poll(0.05) == {}
    consumer.wakeup()
    with pytest.raises(Wakeup):
        consumer.poll(30)


def test_two_threads_in_one_consumer_are_an_error(new_consumer: NewConsumer, new_topic: NewTopic) -> None:
    consumer = new_consumer()
    consumer.assign([(new_topic(), 0)])
    ready = threading.Event()

    def wait() -> None:
        ready.set()
        with suppress(Wakeup):
            while True:
                with suppress(ConcurrentUse):  # the other thread was first
                    consumer.poll(30)

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()

    def refused() -> bool:
        try:
            consumer.poll(0)
        except ConcurrentUse:
            return True
        return False

    eventually(refused, "the second thread is refused")
    consumer.wakeup()
    thread.join()


def test_a_closed_consumer_says_so(new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedClient):
        consumer.poll(0)
