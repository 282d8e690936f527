"""What a user does wrong is an exception that says what is right; and a program that just ends, ends."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from kohort import (
    Admin,
    Consumer,
    IllegalState,
    KohortError,
    OffsetAndMetadata,
    TopicPartition,
    WrongArgument,
)
from kohort.testing import Kafka
from tests.client.consuming import PATIENCE_S, Told, joined, poll_until, quick, read, times_out, within

T0 = TopicPartition("t", 0)


@pytest.fixture
def three(kafka: Kafka) -> Kafka:
    kafka.create_topic("t")
    kafka.produce("t", ["a", "b", "c"])
    return kafka


@pytest.fixture
def consumer(three: Kafka) -> Iterator[Consumer]:
    with quick(three.bootstrap_servers, "g") as made:
        made.subscribe(["t"])
        joined(made)
        yield made


WRONG: list[tuple[Callable[[Consumer], object], str]] = [
    (lambda c: c.poll("1"), "seconds"),  # type: ignore[arg-type]
    (lambda c: c.poll(float("nan")), "seconds"),
    (lambda c: c.poll(-1), "negative"),
    (lambda c: c.poll(0, max_records=0), "max_records must be at least 1"),
    (lambda c: c.poll_arrow(0, max_records=-1), "max_records must be at least 1"),
    (lambda c: c.commit({T0: None}), "an offset is a number"),  # type: ignore[arg-type]
    (lambda c: c.commit({T0: "7"}), "an offset is a number"),  # type: ignore[arg-type]
    (lambda c: c.commit({T0: (1, "x")}), "an offset is a number"),  # type: ignore[arg-type]
    (lambda c: c.commit({T0: True}), "an offset is a number"),
    (lambda c: c.commit([T0]), "by partition"),  # type: ignore[arg-type]
    (lambda c: c.commit({"t": 1}), "a partition is a topic and a number"),  # type: ignore[arg-type]
    (lambda c: c.seek(T0, 1.5), "an offset is a number"),  # type: ignore[arg-type]
    (lambda c: c.seek(T0, "1"), "an offset is a number"),  # type: ignore[arg-type]
    (lambda c: c.seek("t", 1), "a partition is a topic and a number"),  # type: ignore[arg-type]
    (lambda c: c.committed("t", 0), "a partition is a topic and a number"),  # type: ignore[arg-type]
    (lambda c: c.committed([T0, "t"]), "a partition is a topic and a number"),  # type: ignore[list-item]
    (lambda c: c.pause(5), "or a list of these"),  # type: ignore[arg-type]
    (lambda c: c.seek_to_end(("t", "0")), "the partition of topic t is a whole number"),  # type: ignore[arg-type]
    (lambda c: c.position(("t", 2**31)), "a number from 0 to 2147483647"),
    (lambda c: c.end_offsets(("t", -1)), "the partition of topic t cannot be negative: -1"),
    (lambda c: c.commit({T0: 2**63}), "a number from 0 to 9223372036854775807"),
    (lambda c: c.commit({T0: OffsetAndMetadata(1, 5)}), "the metadata of .* is a string, not 5"),  # type: ignore[arg-type]
    (lambda c: c.commit({T0: OffsetAndMetadata(1, "\ud800")}), "surrogate"),
    (lambda c: c.commit({T0: OffsetAndMetadata(1, "m" * 40_000)}), "may have 32767 bytes"),
    (lambda c: c.commit({T0: OffsetAndMetadata(1, "", 1.5)}), "leader epoch .* is a whole number"),  # type: ignore[arg-type]
    (lambda c: c.commit_async({T0: 1}, 5), "the callback of a commit is a function"),  # type: ignore[arg-type]
    (lambda c: c.seek(T0, 10**5000), "a number from 0 to"),
    (lambda c: c.poll(timeout=True), "seconds"),
    (lambda c: c.poll(0, max_records=1.5), "max_records is a whole number"),  # type: ignore[arg-type]
    (lambda c: c.poll_arrow(0, columns="value"), "a list of names"),  # type: ignore[arg-type]
    (lambda c: c.offsets_for_times([T0]), "times go by partition"),  # type: ignore[arg-type]
    (lambda c: c.offsets_for_times({T0: 1.5}), "milliseconds since 1970"),  # type: ignore[dict-item]
    (lambda c: c.partitions_for(None), "a topic must have a name"),  # type: ignore[arg-type]
    (lambda c: c.partitions_for("\ud800"), "surrogate"),
    (lambda c: c.enforce_rebalance("\ud800"), "surrogate"),
    (lambda c: c.enforce_rebalance(5), "the reason is a string"),  # type: ignore[arg-type]
    (lambda c: c.subscribe(["\ud800"]), "surrogate"),
    (lambda c: c.subscribe(re.compile(b"t")), "a pattern to subscribe to is a string"),  # type: ignore[arg-type]
    (lambda c: c.subscribe([5]), "a topic must have a name"),  # type: ignore[list-item]
    (lambda c: c.assign(None), "or a list of these; not None"),  # type: ignore[arg-type]
    (lambda c: c.assign(), "assign.. needs partitions"),
    (lambda c: c.assign("t"), "a partition is a topic and a number"),  # type: ignore[arg-type]
    (lambda c: c.close("soon"), "seconds"),  # type: ignore[arg-type]
    (lambda c: c.offsets_for_times({T0: "now"}), "milliseconds since 1970"),  # type: ignore[arg-type]
    (lambda c: c.subscribe(None), "a list of topics"),  # type: ignore[arg-type]
    (lambda c: c.subscribe(["t"], on_assigned=5), "on_assigned"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "words"), WRONG)
def test_a_wrong_argument_is_refused_with_what_is_right(
    consumer: Consumer, call: Callable[[Consumer], object], words: str
) -> None:
    with pytest.raises(WrongArgument, match=words) as raised:
        call(consumer)
    assert isinstance(raised.value, ValueError)
    assert isinstance(raised.value, TypeError)
    assert "int()" not in str(raised.value)
    consumer.poll(0)  # nothing is broken


NAMED: list[Callable[[], tuple[object, ...]]] = [
    lambda: (T0, ("t", 1)),
    lambda: ([T0, ("t", 1)],),
    lambda: ({("t", 1), T0},),
    lambda: ({T0: "records", ("t", 1): "records"},),
    lambda: (TopicPartition("t", number) for number in range(2)),  # type: ignore[return-value]
    lambda: (T0, [("t", 1)]),
    lambda: (["t", numpy.int32(0)], ("t", numpy.uint8(1))),
]


@pytest.mark.parametrize("named", NAMED)
def test_partitions_are_named_one_by_one_or_in_lists(kafka: Kafka, named: Callable[[], Any]) -> None:
    kafka.create_topic("t", partitions=2)
    both = {T0, TopicPartition("t", 1)}

    def given() -> tuple[Any, ...]:
        made = named()
        return made if isinstance(made, tuple) else (made,)

    with (
        # By itself it would commit when it gives partitions up, perhaps after they are deleted.
        quick(kafka.bootstrap_servers, "g", enable_auto_commit=False) as consumer,
        Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
    ):
        consumer.assign(*given())
        assert consumer.assignment() == both
        consumer.pause(*given())
        assert consumer.paused() == both
        consumer.resume(*given())
        assert consumer.paused() == frozenset()
        consumer.seek_to_end(*given())
        consumer.seek_to_beginning(*given())
        assert consumer.committed(*given()) == dict.fromkeys(both)
        assert (
            consumer.beginning_offsets(*given()) == consumer.end_offsets(*given()) == dict.fromkeys(both, 0)
        )
        assert consumer.lag(*given()) == dict.fromkeys(both, 0)
        consumer.commit(dict.fromkeys(both, 0))
        assert admin.group_offsets("g", *given()).keys() == both
        assert admin.group_offsets("g", []) == {}
        consumer.assign([])
        assert consumer.assignment() == frozenset()
        admin.delete_group_offsets("g", *given())
        assert admin.group_offsets("g") == {}


def test_whole_numbers_of_numpy_are_whole_numbers(consumer: Consumer) -> None:
    consumer.seek(("t", numpy.int64(0)), numpy.int64(1))  # type: ignore[arg-type]
    assert consumer.position(("t", numpy.int16(0))) == 1  # type: ignore[arg-type]
    consumer.commit({("t", numpy.int64(0)): numpy.uint32(2)})  # type: ignore[dict-item]
    assert consumer.committed(T0) == {T0: OffsetAndMetadata(2)}
    consumer.commit({T0: OffsetAndMetadata(numpy.int64(3), "m", numpy.int32(0))})  # type: ignore[arg-type]
    found = consumer.offsets_for_times({T0: numpy.int64(1)})[T0]  # type: ignore[dict-item]
    assert found is not None
    assert found.offset == 0
    assert sum(map(len, consumer.poll(numpy.float32(PATIENCE_S), numpy.int8(1)).values())) == 1  # type: ignore[arg-type]


def test_a_poll_may_wait_for_ever(consumer: Consumer) -> None:
    consumer.seek_to_beginning()
    assert sum(map(len, consumer.poll(float("inf")).values())) == 3


def test_a_partition_that_does_not_exist_is_named_as_such(three: Kafka) -> None:
    with quick(three.bootstrap_servers) as consumer:
        consumer.assign([("t", 7)])
        times_out(lambda timeout: consumer.position(("t", 7), timeout=timeout), "t has no partition 7")


ADMIN_CALLS = [
    "delete_topics",
    "describe_topics",
    "topic_configs",
    "describe_groups",
    "delete_groups",
    "list_groups",
]


@pytest.mark.parametrize("call", ADMIN_CALLS)
def test_names_for_the_admin_are_given_one_by_one(three: Kafka, call: str) -> None:
    with Admin(bootstrap_servers=three.bootstrap_servers) as admin:
        with pytest.raises(ValueError, match="one by one"):
            getattr(admin, call)(["t"])
        assert admin.list_topics() == ["t"]


# --- callbacks that call the consumer ----------------------------------------------------------------------------


def test_a_callback_cannot_poll(three: Kafka) -> None:
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], on_assigned=lambda partitions: consumer.poll(1))
        with pytest.raises(IllegalState, match="within poll"):
            poll_until(consumer, lambda: False, "it is told")
        assert read(consumer, 3) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("kind", ["on_assigned", "on_revoked"])
@pytest.mark.parametrize("what", ["close", "unsubscribe"])
def test_a_callback_may_end_it_all(three: Kafka, kind: str, what: str) -> None:
    consumer = quick(three.bootstrap_servers, "g")
    calls: list[str] = []

    def end(partitions: list[TopicPartition]) -> None:
        calls.append(kind)
        if what == "close":
            consumer.close(timeout=PATIENCE_S)
        else:
            consumer.unsubscribe()

    consumer.subscribe(["t"], **{kind: end})

    def done() -> bool:
        if kind == "on_revoked" and consumer.assignment() and not calls:
            consumer.enforce_rebalance()
        return False

    with within(5), pytest.raises(KohortError, match="closed" if what == "close" else "subscribe"):
        poll_until(consumer, done, "it has ended")
    assert calls == [kind]
    consumer.close(timeout=PATIENCE_S)
    assert three.group("g").members == []


def test_a_callback_may_subscribe_to_something_else(three: Kafka) -> None:
    three.produce("u", ["x"])
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], on_assigned=lambda partitions: consumer.subscribe(["u"], **told.callbacks))
        poll_until(consumer, lambda: consumer.assignment() == {("u", 0)}, "it reads the other topic")
        assert told.calls[-1] == ("assigned", [("u", 0)])


def test_the_consumer_may_be_used_in_the_callback_of_an_asynchronous_commit(consumer: Consumer) -> None:
    heard: list[object] = []
    consumer.commit_async(
        {T0: 1}, lambda offsets, error: heard.append(consumer.committed(T0, timeout=PATIENCE_S)[T0])
    )
    poll_until(consumer, lambda: heard, "it is called back")
    assert heard[0] is not None


# --- subscriptions that change ---------------------------------------------------------------------------------


def test_another_subscription_takes_effect_with_the_next_polls(three: Kafka) -> None:
    three.produce("u", ["x"])
    told = Told()
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"], **told.callbacks)
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        consumer.subscribe(["t", "u"], **told.callbacks)
        assert read(consumer, 1) == [b"x"]
        consumer.subscribe(["u"], **told.callbacks)
        poll_until(consumer, lambda: consumer.assignment() == {("u", 0)}, "only the other topic is left")
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        consumer.assign([T0])
        consumer.seek(T0, 2)
        assert read(consumer, 1) == [b"c"]
    assert told.kinds.count("lost") == 0


def test_unsubscribe_in_the_middle_of_a_join(three: Kafka) -> None:
    with quick(three.bootstrap_servers, "g") as consumer:
        consumer.subscribe(["t"])
        with three.delay("JoinGroup", ms=500, times=1) as slow:
            poll_until(consumer, lambda: slow.hits, "it joins")
            with within(0.5):
                consumer.unsubscribe()
        consumer.subscribe(["t"])
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        assert len(three.group("g").members) == 1


# --- records outlive everything ----------------------------------------------------------------------------------


def test_records_outlive_later_polls_and_the_consumer(three: Kafka) -> None:
    with quick(three.bootstrap_servers) as consumer:
        consumer.assign([T0])
        kept = [record for some in consumer.poll(PATIENCE_S).values() for record in some]
        three.produce("t", ["later"] * 1_000)
        read(consumer, 1_000)
    assert [record.value for record in kept] == [b"a", b"b", b"c"]


# --- programs ----------------------------------------------------------------------------------------------------

FORGETS_TO_CLOSE = """
import sys
from kohort import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["t"])
while not consumer.poll(1): pass
print("done")
"""

ASYNCIO = """
import asyncio, sys
from kohort import AsyncConsumer
async def main():
    async with AsyncConsumer(bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(["t"])
        async for record in consumer:
            print(record.offset, flush=True)
asyncio.run(main())
"""


def test_a_program_that_forgets_to_close_ends_all_the_same(three: Kafka) -> None:
    command = [sys.executable, "-c", FORGETS_TO_CLOSE, three.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_an_asyncio_program_which_leaves_its_group(three: Kafka) -> None:
    import signal

    command = [sys.executable, "-c", ASYNCIO, three.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
        time.sleep(0.2)  # it waits for the next record
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=180)
        assert "KeyboardInterrupt" in errors
    assert three.group("g").members == []
    assert three.committed("g", "t") == {0: 3}
