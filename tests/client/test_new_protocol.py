"""`group.protocol=consumer` as users see it, against a real cluster (ours, or the one that conftest.py is given)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import confluent_kafka
import pytest

from kohort import (
    Admin,
    AsyncConsumer,
    Consumer,
    IllegalState,
    KafkaError,
    KohortError,
    OffsetAndMetadata,
    Producer,
    SubscriptionPattern,
    TopicPartition,
    Wakeup,
    WrongArgument,
)
from tests.client.consuming import Told, poll_until, read
from tests.clients.process import eventually

NewTopic = Callable[..., str]
NewConsumer = Callable[..., Consumer]


@pytest.fixture
def new_consumer(bootstrap_servers: str) -> Iterable[NewConsumer]:
    """Makes members of the consumer protocol that begin at the beginning, and closes them after the test."""
    made: list[Consumer] = []

    def make(group_id: str, **settings: object) -> Consumer:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        base = {"bootstrap.servers": bootstrap_servers, "group.id": group_id, "group.protocol": "consumer"}
        made.append(Consumer({**base, "auto.offset.reset": "earliest", **given}))
        return made[-1]

    yield make
    for consumer in made:
        with contextlib.suppress(KohortError):  # killed, or refused
            consumer.close(timeout=5)


@pytest.fixture
def write(bootstrap_servers: str) -> Callable[..., None]:
    def make(topic: str, values: Iterable[object], partition: int = 0) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
        for value in values:
            producer.produce(topic, value=str(value).encode(), partition=partition)
        assert producer.flush(60) == 0

    return make


def share_out(*consumers: Consumer, done: Callable[[], object], what: str) -> None:
    """Polls all of them in turn until it is so."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, f"{what}: {[c.assignment() for c in consumers]}"
        for consumer in consumers:
            consumer.poll(0.05)


def of(topic: str, *numbers: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in numbers}


def test_two_members_share_partitions_and_are_told_the_difference(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic, told, told_second = new_topic(partitions=4), Told(), Told()
    first = new_consumer(group)
    first.subscribe([topic], **told.callbacks)
    share_out(first, done=lambda: len(first.assignment()) == 4, what="one member has everything")
    for partition in first.assignment():
        first.pause(partition)
    second = new_consumer(group)
    second.subscribe([topic], **told_second.callbacks)
    share_out(first, second, done=lambda: len(second.assignment()) == 2, what="two members share")

    assert first.assignment() | second.assignment() == of(topic, 0, 1, 2, 3)
    assert first.paused() == first.assignment(), "what stays, stays paused"
    (revoked,) = [partitions for kind, partitions in told.calls if kind == "revoked"]
    assert set(revoked) == second.assignment(), "only the difference is revoked"
    assert "lost" not in told.kinds + told_second.kinds
    second.close()
    share_out(first, done=lambda: len(first.assignment()) == 4, what="the first has everything again")
    assert [p for kind, p in told.calls if kind == "assigned" and p][-1] == revoked
    (rebalances,) = [v for name, v in first.metrics().items() if name.name == "rebalance-total"]
    assert rebalances >= 3


def test_offsets_are_committed_before_partitions_go(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], group: str
) -> None:
    """Auto-commit, with an interval that does not come by itself: nobody reads a record twice."""
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        write(topic, range(10), partition)
    first = new_consumer(group, auto_commit_interval_ms=600_000)
    first.subscribe([topic])
    read(first, 20)
    second = new_consumer(group)
    second.subscribe([topic])
    share_out(first, second, done=lambda: second.assignment(), what="two members share")
    (moved,) = second.assignment()
    assert second.position(moved) == 10
    assert second.poll(0.2) == {}


def test_a_member_that_is_killed_loses_its_partitions_to_the_others(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    first, second = new_consumer(group), new_consumer(group)
    for consumer in (first, second):
        consumer.subscribe([topic])
    share_out(first, second, done=lambda: first.assignment() and second.assignment(), what="both have some")
    first._engine.close()  # no goodbye
    share_out(second, done=lambda: len(second.assignment()) == 2, what="the other one has everything")


def test_who_polls_too_late_loses_everything_and_joins_again(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], group: str
) -> None:
    topic, told = new_topic(), Told()
    slow = new_consumer(group, max_poll_interval_ms=1_000)
    slow.subscribe([topic], **told.callbacks)
    share_out(slow, done=slow.assignment, what="it has a partition")
    epoch = slow.group_metadata().generation_id
    eventually(lambda: slow.group_metadata().generation_id == -1, "it has left by itself")
    with pytest.raises(KafkaError, match=r"poll was not called for .* \(max.poll.interval.ms is 1 s\)"):
        slow.commit({TopicPartition(topic, 0): 0})
    write(topic, ["a"])
    assert read(slow, 1) == [b"a"]
    assert told.kinds == ["assigned", "lost", "assigned"]
    assert slow.group_metadata().generation_id > epoch


def test_a_callback_that_raises_is_called_again(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic, calls = new_topic(), list[list[TopicPartition]]()

    def fails_once(partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        calls.append(partitions)
        if len(calls) == 1:
            raise RuntimeError("not now")

    consumer = new_consumer(group)
    consumer.subscribe([topic], on_assigned=fails_once)
    with pytest.raises(RuntimeError, match="not now"):
        poll_until(consumer, lambda: False, "it raises")
    poll_until(consumer, lambda: len(calls) == 2, "it is told again")
    assert calls[0] == calls[1] == [TopicPartition(topic, 0)]


# --- what to read -------------------------------------------------------------------------------------------


def test_the_broker_matches_a_subscription_pattern(
    new_consumer: NewConsumer, new_topic: NewTopic, write: Callable[..., None], group: str
) -> None:
    stem = group.replace("group", "shop")
    orders = new_topic(name=f"{stem}-orders")
    new_topic(name=f"{stem}-returns")
    write(orders, ["one"])
    consumer = new_consumer(group)
    consumer.subscribe(SubscriptionPattern(f"{stem}-o[a-z]+"))
    assert read(consumer, 1) == [b"one"]
    assert consumer.assignment() == of(orders, 0)
    consumer.unsubscribe()
    consumer.subscribe(SubscriptionPattern("(?=no-look-around)"))
    with pytest.raises(KafkaError, match="takes regular expressions of RE2"):
        poll_until(consumer, lambda: False, "it is refused")
    with pytest.raises(IllegalState, match="exclude each other"):
        consumer.subscribe([orders])


def test_a_subscription_pattern_needs_the_consumer_protocol(new_consumer: NewConsumer, group: str) -> None:
    with pytest.raises(IllegalState, match=r"for members of group.protocol=consumer only: .* re.compile"):
        new_consumer(group, group_protocol="classic").subscribe(SubscriptionPattern("orders-.*"))
    with pytest.raises(WrongArgument, match="must not be empty"):
        new_consumer(group).subscribe(SubscriptionPattern(""))


def test_a_compiled_pattern_is_matched_here(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    stem = group.replace("group", "shop")
    first = new_topic(name=f"{stem}-1")
    consumer = new_consumer(group, metadata_max_age_ms=500)
    consumer.subscribe(re.compile(f"(?=shop){stem}-.*"))
    poll_until(consumer, lambda: consumer.assignment() == of(first, 0), "the first topic")
    second = new_topic(name=f"{stem}-2")
    poll_until(consumer, lambda: consumer.assignment() == of(first, 0) | of(second, 0), "a new topic too")


def test_another_subscription_needs_no_other_membership(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    first, second = new_topic(), new_topic()
    consumer = new_consumer(group)
    consumer.subscribe([first])
    poll_until(consumer, lambda: consumer.assignment() == of(first, 0), "the first")
    me = consumer.group_metadata().member_id
    consumer.subscribe([second])
    poll_until(consumer, lambda: consumer.assignment() == of(second, 0), "the other")
    assert set(consumer._core.metadata.cluster.topics) == {second}, "nobody asks for what nobody reads"
    consumer.unsubscribe()
    consumer.subscribe([first])
    poll_until(consumer, lambda: consumer.assignment() == of(first, 0), "the first again")
    assert consumer.group_metadata().member_id == me, "the id is for life"


@pytest.mark.parametrize(
    ("assignor", "expected"), [("range", [{0, 1}, {0, 1}]), ("uniform", None)], ids=["range", "uniform"]
)
def test_the_broker_assigns_as_it_is_asked(
    new_consumer: NewConsumer,
    new_topic: NewTopic,
    admin: Admin,
    group: str,
    assignor: str,
    expected: list[set[int]] | None,
) -> None:
    """Range gives the same numbers of both topics to one member; uniform only promises equal shares."""
    topics = [new_topic(partitions=4), new_topic(partitions=4)]
    members = [new_consumer(group, group_remote_assignor=assignor) for _ in range(2)]
    for member in members:
        member.subscribe(topics)
    share_out(*members, done=lambda: all(len(m.assignment()) == 4 for m in members), what="equal shares")
    assert admin.describe_groups(group)[group].protocol == assignor
    if expected is not None:
        for member in members:
            numbers = [{p.partition for p in member.assignment() if p.topic == topic} for topic in topics]
            assert numbers[0] == numbers[1]


def test_an_assignor_that_the_broker_does_not_have(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    consumer = new_consumer(group, group_remote_assignor="best")
    consumer.subscribe([new_topic()])
    with pytest.raises(KafkaError, match=r"no assignor 'best' .* group.consumer.assignors"):
        poll_until(consumer, lambda: False, "it is refused")


# --- static members -----------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_finds_its_partitions(
    new_consumer: NewConsumer, new_topic: NewTopic, group: str
) -> None:
    topic, told = new_topic(partitions=2), Told()
    first = new_consumer(group, group_instance_id="one")
    other = new_consumer(group, group_instance_id="two")
    first.subscribe([topic])
    other.subscribe([topic], **told.callbacks)
    share_out(first, other, done=lambda: first.assignment() and other.assignment(), what="both have some")
    had, calls = first.assignment(), list(told.calls)
    thief = new_consumer(group, group_instance_id="one")
    thief.subscribe([topic])
    with pytest.raises(
        KafkaError, match=r"another consumer is a member of group .* with group.instance.id 'one'"
    ):
        poll_until(thief, lambda: False, "its name is taken")
    first.close()
    again = new_consumer(group, group_instance_id="one")
    again.subscribe([topic])
    share_out(again, other, done=again.assignment, what="it has partitions again")
    assert again.assignment() == had
    assert told.calls == calls, "nothing moved"


# --- beside the rest of the client --------------------------------------------------------------------------


def test_transactions_commit_offsets_of_a_member(
    new_consumer: NewConsumer,
    new_topic: NewTopic,
    write: Callable[..., None],
    group: str,
    bootstrap_servers: str,
) -> None:
    source, sink = new_topic(), new_topic()
    at = TopicPartition(source, 0)
    write(source, range(5))
    consumer = new_consumer(group, enable_auto_commit=False, isolation_level="read_committed")
    consumer.subscribe([source])
    values = read(consumer, 5)
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=group) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(sink, value=value)
        producer.send_offsets_to_transaction({at: 5}, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed(at)[at] == OffsetAndMetadata(5)
        producer.begin_transaction()
        producer.send(sink, value=b"never")
        stale = consumer.group_metadata()._replace(generation_id=99)
        with pytest.raises(KafkaError, match=r"ILLEGAL_GENERATION|STALE_MEMBER_EPOCH"):
            producer.send_offsets_to_transaction({at: 0}, stale)
        producer.abort_transaction()
    assert consumer.committed(at)[at] == OffsetAndMetadata(5)


def test_wakeup_ends_a_poll_of_a_member(new_consumer: NewConsumer, new_topic: NewTopic, group: str) -> None:
    consumer = new_consumer(group)
    consumer.subscribe([new_topic()])
    poll_until(consumer, consumer.assignment, "it has a partition")
    timer = threading.Timer(0.2, consumer.wakeup)
    timer.start()
    with pytest.raises(Wakeup):
        consumer.poll(60)
    timer.join()


def test_members_on_an_event_loop(
    new_topic: NewTopic, write: Callable[..., None], group: str, bootstrap_servers: str
) -> None:
    topic = new_topic(partitions=2)
    for partition in (0, 1):
        write(topic, range(3), partition)

    async def share() -> list[list[TopicPartition]]:
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
        told: list[list[TopicPartition]] = []

        async def on_revoked(partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            told.append(partitions)

        async with AsyncConsumer(settings) as first, AsyncConsumer(settings) as second:
            await first.subscribe([topic], on_revoked=on_revoked)
            count = 0
            while count < 6:
                count += sum(map(len, (await first.poll(0.2)).values()))
            await second.subscribe([topic])
            while not second.assignment():
                await asyncio.gather(first.poll(0.1), second.poll(0.1))
            (moved,) = second.assignment()
            assert await second.position(moved) == 3
        return told

    told = asyncio.run(asyncio.wait_for(share(), 60))
    assert [len(partitions) for partitions in told] == [1, 1], "one went to the second member, one at the end"


# --- a live group moves from the classic protocol to the new one and back -----------------------------------


class Worker:
    """A member in a thread of its own: notes what it reads, commits before it gives partitions away."""

    def __init__(
        self,
        seen: Counter[tuple[int, int]],
        poll: Callable[[], Iterator[tuple[int, int]]],
        close: Callable[[], None],
    ) -> None:
        self._seen, self._poll, self._close = seen, poll, close
        self._stopping = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for place in self._poll():
                    self._seen[place] += 1
            self._close()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert self.error is None, self.error


def our_worker(seen: Counter[tuple[int, int]], topic: str, settings: dict[str, object]) -> Worker:
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic], on_revoked=lambda partitions: consumer.commit())

    def poll() -> Iterator[tuple[int, int]]:
        for records in consumer.poll(0.1).values():
            yield from ((record.partition, record.offset) for record in records)

    return Worker(seen, poll, consumer.close)


def their_worker(seen: Counter[tuple[int, int]], topic: str, settings: dict[str, object]) -> Worker:
    consumer = confluent_kafka.Consumer(
        {**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )

    def on_revoke(
        consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]
    ) -> None:
        positions = [p for p in consumer.position(partitions) if p.offset >= 0]
        if positions:
            consumer.commit(offsets=positions, asynchronous=False)

    consumer.subscribe([topic], on_revoke=on_revoke)

    def poll() -> Iterator[tuple[int, int]]:
        for message in consumer.consume(100, 0.1):
            assert message.error() is None, message.error()
            yield message.partition() or 0, message.offset() or 0

    return Worker(seen, poll, consumer.close)


@pytest.mark.timeout(120)
def test_a_group_moves_to_the_new_protocol_and_back_while_it_works(
    new_topic: NewTopic, admin: Admin, group: str, bootstrap_servers: str, write: Callable[..., None]
) -> None:
    """Members are replaced one by one, ours and librdkafka's: every record is read exactly once."""
    topic, seen = new_topic(partitions=4), Counter[tuple[int, int]]()
    base: dict[str, object] = {"bootstrap.servers": bootstrap_servers, "group.id": group}
    classic = {
        **base,
        "group.protocol": "classic",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 300,
    }
    modern = {**base, "group.protocol": "consumer"}
    written = 0

    def work(group_type: str, members: int) -> None:
        """The group settles, and reads what was written meanwhile."""
        nonlocal written
        for partition in range(4):
            write(topic, range(25), partition)
        written += 100

        def settled() -> bool:
            described = admin.describe_groups(group)[group]
            owned = Counter(p for m in described.members for p in m.assignment)
            return (
                (described.group_type, described.state, len(described.members))
                == (group_type, "Stable", members)
                and len(owned) == 4
                and all(m.assignment for m in described.members)
                and len(seen) == written
            )

        eventually(settled, f"{members} members of a {group_type} group have read {written} records", 60)

    ours, theirs = our_worker(seen, topic, classic), their_worker(seen, topic, classic)
    work("classic", 2)
    try:
        for settings, between, after in ((modern, "consumer", "consumer"), (classic, "consumer", "classic")):
            ours.stop()
            ours = our_worker(seen, topic, settings)
            work(between, 2)
            theirs.stop()
            theirs = their_worker(seen, topic, settings)
            work(after, 2)
    finally:
        ours.stop()
        theirs.stop()
    assert {place: times for place, times in seen.items() if times > 1} == {}
