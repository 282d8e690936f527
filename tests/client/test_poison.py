"""What goes wrong goes wrong for the call that it belongs to: not for the thread, nor for those who come after it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pyarrow
import pytest

from kohort import (
    Admin,
    Assignment,
    Assignor,
    AsyncConsumer,
    AsyncProducer,
    ClosedClient,
    Consumer,
    IllegalState,
    KafkaError,
    KohortError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    ProducerRecord,
    RebalanceProtocol,
    SerializationFailed,
    TopicPartition,
    WrongArgument,
)
from kohort.client.config import PRODUCER, read_config
from kohort.client.core.effects import FailureKind, Send, ignore_answer
from kohort.settings import SettingError
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.client.consuming import PATIENCE_S, joined, poll_until, quick, read, times_out
from tests.client.driving import HEARTBEAT, driven
from tests.client.producing import Core
from tests.client.scripted import ScriptedCluster
from tests.client.test_tokens import accepting, security

T0 = TopicPartition("t", 0)


@pytest.fixture
def servers(kafka: Kafka) -> str:
    kafka.create_topic("t", partitions=2)
    return kafka.bootstrap_servers


def exits(*given: object) -> Any:
    raise SystemExit(3)


class Unsayable(Exception):
    """An exception that cannot be logged."""

    __str__ = __repr__ = exits


def unsayable(*given: object) -> Any:
    raise Unsayable


# --- records -----------------------------------------------------------------------------------------------------

WRONG_RECORDS: list[tuple[dict[str, Any], str]] = [
    ({"timestamp_ms": 1.5}, "timestamp_ms is a whole number, not 1.5: .* milliseconds since 1970"),
    ({"timestamp_ms": True}, "timestamp_ms is a whole number"),
    ({"timestamp_ms": -1}, "timestamp_ms cannot be negative: -1"),
    ({"timestamp_ms": 2**63}, "timestamp_ms is a number from 0 to 9223372036854775807"),
    ({"partition": "0"}, "the partition of a record for topic t is a whole number, not '0'"),
    ({"partition": 0.0}, "is a whole number"),
    ({"partition": -1}, "cannot be negative: -1; leave it out to have one chosen"),
    ({"partition": 2}, "topic t has the partitions 0 to 1; there is no partition 2"),
    ({"partition": 2**40}, "a number from 0 to 2147483647"),
    ({"topic": None}, "a topic must have a name"),
    ({"topic": ["t"]}, "a topic must have a name"),
    ({"topic": "\ud800"}, "half of a surrogate pair"),
    ({"value": "\ud800"}, "the value of a record for topic t cannot be encoded in UTF-8"),
    ({"key": "a\udfff"}, "the key of a record for topic t cannot be encoded in UTF-8: character 1"),
    ({"headers": 5}, "headers are a list of names with bytes"),
    ({"headers": "h"}, "headers are a list of names with bytes"),
    ({"headers": ["ab"]}, "a header is a name and bytes"),
    ({"headers": [("h", 5)]}, "a header is a name and bytes"),
    ({"headers": [("\ud800", b"")]}, "half of a surrogate pair"),
    ({"headers": {"h": "\ud800"}}, "the header h cannot be encoded in UTF-8"),
    ({"on_delivery": 5}, "on_delivery is a function, not 5"),
]


@pytest.mark.parametrize("known", [False, True])
def test_a_record_that_cannot_be_written_is_refused_by_send(servers: str, known: bool) -> None:
    """Whichever way it goes: a topic that is known takes a shorter one."""
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        if known:
            producer.send("t", b"first").result(PATIENCE_S)
        for wrong, words in WRONG_RECORDS:
            with pytest.raises(WrongArgument, match=words):
                producer.send(**{"topic": "t", "value": b"v", **wrong})
        assert producer.send("t", b"after").result(PATIENCE_S).topic == "t"
        producer.flush(PATIENCE_S)


async def test_the_asyncio_producer_refuses_the_same(servers: str) -> None:
    async with AsyncProducer(bootstrap_servers=servers, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first")
        for wrong, words in WRONG_RECORDS:
            with pytest.raises(WrongArgument, match=words):
                await producer.send(**{"topic": "t", "value": b"v", **wrong})
        with pytest.raises(WrongArgument, match="a topic must have a name"):
            await producer.partitions_for(None)  # type: ignore[arg-type]
        await producer.send_and_wait("t", b"after")


@pytest.mark.parametrize("known", [False, True])
def test_whole_numbers_of_numpy_are_whole_numbers(servers: str, known: bool) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        if known:
            producer.send("t", b"first").result(PATIENCE_S)
        sent = producer.send(
            "t",
            b"v",
            partition=numpy.int32(1),
            timestamp_ms=numpy.int64(1_700_000_000_000),  # type: ignore[arg-type]
        )
        metadata = sent.result(PATIENCE_S)
        assert (metadata.partition, metadata.timestamp) == (1, 1_700_000_000_000)
        assert type(metadata.partition) is type(metadata.timestamp) is int


def test_times_may_be_as_large_as_the_format_has_them(servers: str) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=50) as producer:
        sent = [producer.send("t", b"v", partition=0, timestamp_ms=ms) for ms in (0, 2**63 - 1, 0)]
        for delivery in sent:
            error = delivery.exception(PATIENCE_S)
            assert error is None or "INVALID_TIMESTAMP" in str(error)  # the broker's to decide
        producer.send("t", b"after").result(PATIENCE_S)


WRONG_TABLES: list[tuple[Any, str]] = [
    ([1, 2], "a pyarrow RecordBatch or Table"),
    (pyarrow.table({"key": [b"k"]}), "need a column 'value'"),
    (pyarrow.table({"value": [1.5]}), "must be binary or string"),
    (pyarrow.table({"value": [b"v"], "timestamp": [-1]}), "not negative"),
    (pyarrow.table({"value": [b"v"], "timestamp": [1.5]}), "a timestamp or milliseconds"),
    (pyarrow.table({"value": [b"v"], "partition": [-1]}), "cannot be negative"),
    (pyarrow.table({"value": [b"v"], "partition": [0.5]}), "is a whole number"),
    (pyarrow.table({"value": [b"v"], "headers": [[{"key": None, "value": b""}]]}), "a list of structs"),
    (pyarrow.table({"value": [b"v"], "headers": [[{"key": "h", "value": 5}]]}), "a list of structs"),
]


def test_rows_that_cannot_be_written_are_refused_by_send_arrow(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for table, words in WRONG_TABLES:
            with pytest.raises(WrongArgument, match=words):
                producer.send_arrow("t", table)
        with pytest.raises(WrongArgument, match="a topic must have a name"):
            producer.send_arrow(5, pyarrow.table({"value": [b"v"]}))  # type: ignore[arg-type]
        (written,) = producer.send_arrow("t", pyarrow.table({"value": [b"v"]})).result(PATIENCE_S)
        assert written.record_count == 1


def test_a_wrong_timeout_leaves_the_producer_as_it_is(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        delivery = producer.send("t", b"v")
        for call in (delivery.result, delivery.exception, producer.flush, producer.close):
            for timeout in ("1", -1, float("nan"), True):
                with pytest.raises(WrongArgument, match="a timeout"):
                    call(timeout)  # type: ignore[operator]
        with pytest.raises(WrongArgument, match="a topic must have a name"):
            producer.partitions_for(None)  # type: ignore[arg-type]
        with pytest.raises(WrongArgument, match="is a function"):
            delivery.add_done_callback(None)  # type: ignore[arg-type]
        delivery.result(float("inf"))
        producer.send("t", b"v").result(10**400)


# --- the user's own functions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("raises", [exits, unsayable])
def test_callbacks_cannot_end_the_producers_thread(
    servers: str, raises: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Interceptor:
        on_ack = raises

    told: list[object] = []
    with Producer(bootstrap_servers=servers, interceptors=[Interceptor()]) as producer:
        first = producer.send("t", b"v", partition=0, on_delivery=raises)
        first.add_done_callback(raises)
        second = producer.send(
            "t", b"v", partition=0, on_delivery=lambda metadata, error: told.append(metadata)
        )
        assert first.result(PATIENCE_S).offset == 0
        producer.flush(PATIENCE_S)
        assert told == [second.result(PATIENCE_S)]
        assert producer.send("t", b"v", partition=0).result(PATIENCE_S).offset == 2
        assert producer._engine._thread is not None
        assert producer._engine._thread.is_alive()
    assert "a delivery callback failed" in caplog.text


async def test_a_callback_ends_the_loop_but_not_the_asyncio_producer(servers: str) -> None:
    """As any callback of asyncio: and all records of the batch are told before."""
    told: list[object] = []

    def program() -> None:
        async def main() -> None:
            async with AsyncProducer(bootstrap_servers=servers, linger_ms=50) as producer:
                await producer.partitions_for("t")
                await producer.send("t", b"v", partition=0, on_delivery=exits)
                await producer.send(
                    "t", b"v", partition=0, on_delivery=lambda metadata, error: told.append(metadata)
                )
                await producer.flush(PATIENCE_S)
                await asyncio.sleep(PATIENCE_S)  # the loop ends before

        asyncio.run(main())

    with pytest.raises(SystemExit):
        await asyncio.to_thread(program)
    assert len(told) == 1


def test_what_the_users_functions_raise_in_send_is_the_callers(servers: str) -> None:
    class Interceptor:
        def on_send(self, record: ProducerRecord) -> Any:
            return None if record.value == b"none" else record

    given: dict[str, Any] = {"bootstrap_servers": servers, "interceptors": [Interceptor()]}
    with Producer(**given, partitioner=lambda topic, key, count: numpy.int64(1)) as producer:
        with pytest.raises(WrongArgument, match="it must return a ProducerRecord"):
            producer.send("t", b"none")
        assert producer.send("t", b"v").result(PATIENCE_S).partition == 1
    for wrong in (-1, 2, 0.0, None, True):
        with (
            Producer(
                bootstrap_servers=servers, partitioner=lambda topic, key, count, at=wrong: at
            ) as producer,
            pytest.raises(WrongArgument, match="it must return a number from 0 to 1"),
        ):
            producer.send("t", b"v")
    for raises in (exits, unsayable):
        with (
            Producer(bootstrap_servers=servers, value_serializer=raises) as producer,
            pytest.raises((SystemExit, SerializationFailed)),
        ):
            producer.send("t", b"v")
        with Producer(bootstrap_servers=servers, partitioner=raises) as producer:
            with pytest.raises((SystemExit, Unsayable)):
                producer.send("t", b"v")
            assert producer.send("t", b"v", partition=0).result(PATIENCE_S).partition == 0


@pytest.mark.parametrize("raises", [exits, unsayable, lambda *given: "\ud800"])
def test_what_a_token_function_raises_is_a_failed_authentication(raises: Callable[..., Any]) -> None:
    with (
        accepting() as broker,
        driven(broker.address, security=security({"oauth_cb": raises})) as client,
    ):
        failure = client.call().failure
        assert failure is not None
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "no token for OAUTHBEARER: the token callable raised" in failure.message


@pytest.mark.parametrize("raises", [exits, unsayable])
def test_a_deserializer_that_raises_costs_no_records(
    kafka: Kafka, servers: str, raises: Callable[..., Any]
) -> None:
    kafka.produce("t", [{"value": value, "partition": 0} for value in "ab"])
    calls: list[bytes] = []

    def deserializer(topic: str, data: bytes) -> bytes:
        calls.append(data)
        return raises() if len(calls) == 2 else data  # type: ignore[no-any-return]

    with quick(servers, value_deserializer=deserializer) as consumer:
        consumer.assign(T0)
        values: list[bytes] = []
        for _ in range(600):
            try:
                values += [record.value for some in consumer.poll(0.1).values() for record in some]
            except (SystemExit, KohortError, Unsayable):
                values.append(b"raised")
            if values[-2:] == [b"a", b"b"] or values[-1:] == [b"b"]:
                break
        assert values in ([b"raised", b"a", b"b"], [b"a", b"raised", b"b"])


async def test_nor_with_asyncio(kafka: Kafka, servers: str) -> None:
    kafka.produce("t", [{"value": value, "partition": 0} for value in "ab"])
    calls: list[bytes] = []

    def deserializer(topic: str, data: bytes) -> bytes:
        calls.append(data)
        return exits() if len(calls) == 2 else data  # type: ignore[no-any-return]

    async with AsyncConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", value_deserializer=deserializer
    ) as consumer:
        await consumer.assign(T0)
        values: list[bytes] = []
        while values[-2:] != [b"a", b"b"]:
            try:
                values += [record.value for some in (await consumer.poll(1)).values() for record in some]
            except SystemExit:
                values.append(b"raised")
        assert values == [b"raised", b"a", b"b"]


# --- commits -----------------------------------------------------------------------------------------------------


def test_a_commit_that_is_refused_keeps_no_other_waiting(servers: str) -> None:
    with quick(servers, "g") as consumer:
        consumer.assign(T0)
        for wrong in (OffsetAndMetadata(1, 5), OffsetAndMetadata(1, "\ud800"), OffsetAndMetadata(2**63), 1.5):  # type: ignore[arg-type]
            with pytest.raises(WrongArgument):
                consumer.commit({T0: wrong})  # type: ignore[dict-item]
            with pytest.raises(WrongArgument):
                consumer.commit_async({T0: wrong})  # type: ignore[dict-item]
        consumer.commit({T0: 1}, timeout=PATIENCE_S)
        assert consumer.committed(T0) == {T0: OffsetAndMetadata(1)}


def test_a_commit_that_cannot_be_encoded_fails_and_no_other(servers: str) -> None:
    """What gets past all checks: here it is put where only the client itself puts commits."""
    with quick(servers, "g") as consumer:
        consumer.assign(T0)
        poll_until(consumer, lambda: True, "it runs")
        told: list[tuple[Any, Any]] = []
        with consumer._engine.shielded():
            for offsets in ({T0: OffsetAndMetadata(1, 5)}, {T0: OffsetAndMetadata(2)}):  # type: ignore[arg-type]
                consumer._core.commits.commit_async(
                    offsets, consumer._engine.now_ms(), lambda *outcome: told.append(outcome)
                )
        poll_until(consumer, lambda: len(told) == 2, "both are told")
        (_, refused), (_, good) = told
        assert good is None
        assert isinstance(refused, KafkaError)
        assert "cannot be encoded" in str(refused)
        consumer.commit({T0: 3}, timeout=PATIENCE_S)
        assert consumer.committed(T0)[T0] == OffsetAndMetadata(3)


def test_a_request_that_cannot_be_encoded_leaves_the_connection_to_the_others() -> None:
    with ScriptedCluster() as cluster, driven(cluster.bootstrap_servers) as client:
        cluster.on(HEARTBEAT, HeartbeatResponse())
        answers: list[Any] = []

        def ask(group_id: Any) -> None:
            make = lambda version: HeartbeatRequest(group_id)  # noqa: E731
            send = Send(-1, HEARTBEAT, make, "asker.hello", 60_000, on_answer=ignore_answer)
            client.engine.network.submit(send, answers.append)

        with client.engine.shielded():
            for group_id in ("a", 5, "\ud800", "b"):
                ask(group_id)
        assert client.run(lambda: len(answers) == 4)
        kinds = sorted(answer.failure.kind.value for answer in answers if answer.failure is not None)
        assert kinds == ["cannot be encoded"] * 2
        assert all("Heartbeat" in answer.failure.message for answer in answers if answer.failure is not None)


def test_callbacks_of_commits_are_all_called_whatever_one_raises(servers: str) -> None:
    with quick(servers, "g") as consumer:
        consumer.assign(T0)
        told: list[int] = []

        def told_and_exits(number: int) -> Callable[..., Any]:
            def callback(offsets: object, error: object) -> None:
                told.append(number)
                if number < 2:
                    exits()

            return callback

        for number in range(4):
            consumer.commit_async({T0: number}, told_and_exits(number))
        raised = 0
        for _ in range(1_000):
            try:
                consumer.poll(0.05)
            except SystemExit:
                raised += 1
            if len(told) == 4:
                break
        assert (told, raised) == ([0, 1, 2, 3], 2)
        consumer.commit({T0: 9}, timeout=PATIENCE_S)


def test_a_commit_that_is_too_large_says_so(kafka: Kafka) -> None:
    kafka.create_topic("many", partitions=400)
    with quick(kafka.bootstrap_servers, "g") as consumer:
        consumer.assign([("many", number) for number in range(400)])
        with pytest.raises(
            KafkaError, match="metadata committed with the offset of many-0 is too long"
        ) as raised:
            consumer.commit({("many", 0): OffsetAndMetadata(0, "m" * 5_000)})
        assert raised.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
        with pytest.raises(WrongArgument, match=r"the metadata of .* may have 32767 bytes"):
            consumer.commit({("many", 0): OffsetAndMetadata(0, "m" * 40_000)})
        with pytest.raises(
            KafkaError, match=r"max.message.bytes of __consumer_offsets.*commit fewer partitions"
        ):
            consumer.commit({("many", n): OffsetAndMetadata(0, "m" * 4_000) for n in range(400)})
        consumer.commit({("many", 0): 0}, timeout=PATIENCE_S)


def test_a_commit_that_is_too_large_for_a_request_says_so() -> None:
    with Kafka(socket_request_max_bytes=5_000) as kafka:
        kafka.create_topic("t", partitions=3)
        with quick(kafka.bootstrap_servers, "g") as consumer:
            consumer.assign([("t", number) for number in range(3)])
            consumer.commit({T0: 0}, timeout=PATIENCE_S)
            large = {("t", n): OffsetAndMetadata(0, "m" * 3_000) for n in range(3)}
            words = r"about 9\d\d\d bytes; .* socket.request.max.bytes, commit fewer"
            times_out(lambda timeout: consumer.commit(large, timeout=timeout), words)
            consumer.commit({T0: 0}, timeout=PATIENCE_S)


# --- assignors ---------------------------------------------------------------------------------------------------

ANSWERS: list[tuple[Any, str]] = [
    (None, "must return an Assignment for each member id, not None"),
    ([], "must return an Assignment for each member id"),
    ({5: Assignment()}, "must return an Assignment for each member id"),
    ({"nobody": Assignment()}, "which is no member"),
    ("me", "must return an Assignment for each member id"),
    (lambda me: {me: [T0]}, "must return an Assignment for each member id"),
    (lambda me: {me: Assignment(None)}, "what cannot be sent"),
    (lambda me: {me: Assignment((("t", "0"),))}, "the partition of topic t is a whole number"),
    (lambda me: {me: Assignment((("t", 2**40),))}, "a number from 0 to 2147483647"),
    (lambda me: {me: Assignment((("\ud800", 0),))}, "half of a surrogate pair"),
    (lambda me: {me: Assignment((T0,), "text")}, "user_data is bytes or None"),
    (exits, "assignor own raised SystemExit"),
    (unsayable, "assignor own raised <Unsayable whose repr fails>"),
]


class Own(Assignor):
    name = "own"
    protocols = (RebalanceProtocol.EAGER,)

    def __init__(self) -> None:
        self.answer: Any = lambda me: {me: Assignment((T0,))}
        self.user_data: Any = None
        self.told: Any = lambda: None

    def subscription_user_data(self, topics: frozenset[str]) -> Any:
        return self.user_data() if callable(self.user_data) else self.user_data

    def assign(self, cluster: Any, members: Any) -> Any:
        (me,) = members
        return self.answer(me) if callable(self.answer) else self.answer

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self.told()


@contextmanager
def led_by(own: Own, servers: str) -> Iterator[Consumer]:
    with quick(servers, "g", partition_assignment_strategy=own) as consumer:
        consumer.subscribe(["t"])
        joined(consumer)
        yield consumer


def rejoins(consumer: Consumer) -> None:
    generation = consumer.group_metadata().generation_id
    consumer.enforce_rebalance()
    poll_until(
        consumer,
        lambda: consumer.group_metadata().generation_id > generation and consumer.assignment(),
        "it is in another generation",
    )


@pytest.mark.parametrize(("answer", "words"), ANSWERS)
def test_an_assignors_nonsense_fails_the_join_with_words(servers: str, answer: Any, words: str) -> None:
    own = Own()
    with led_by(own, servers) as consumer:
        good, own.answer = own.answer, answer
        consumer.enforce_rebalance()
        with pytest.raises(KohortError, match=words) as raised:
            poll_until(consumer, lambda: False, "it is told")
        assert isinstance(raised.value, IllegalState) or raised.value.__cause__ is not None
        own.answer = good
        rejoins(consumer)
        consumer.commit({T0: 1}, timeout=PATIENCE_S)


@pytest.mark.parametrize("data", [5, "text", exits, unsayable])
def test_user_data_that_cannot_be_sent_fails_the_join_with_words(servers: str, data: Any) -> None:
    own = Own()
    with led_by(own, servers) as consumer:
        own.user_data = data
        consumer.enforce_rebalance()
        with pytest.raises(KohortError, match="subscription_user_data of"):
            poll_until(consumer, lambda: False, "it is told")
        own.user_data = b"good"
        rejoins(consumer)


@pytest.mark.parametrize("raises", [exits, unsayable])
def test_what_on_assignment_raises_is_told_by_poll(servers: str, raises: Callable[..., Any]) -> None:
    own = Own()
    with led_by(own, servers) as consumer:
        own.told = raises
        consumer.enforce_rebalance()
        with pytest.raises(KohortError, match="on_assignment of the assignor raised"):
            poll_until(consumer, lambda: False, "it is told")
        own.told = lambda: None
        rejoins(consumer)


# --- a thread that dies all the same -----------------------------------------------------------------------------


class Bug(BaseException):
    pass


def broken(*given: object) -> Any:
    raise Bug("a bug of our own")


def test_a_batch_that_cannot_be_encoded_fails_and_no_other() -> None:
    core = Core(partitions=2)
    core.start()
    bad = core.send(b"bad", 0, timestamp=1.5)
    good = core.send(b"good", 1)
    (send,) = core.tick()
    core.written(send, 7)
    error = bad._outcome
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.INVALID_RECORD
    assert "cannot be encoded" in str(error)
    assert good._outcome.offset == 7  # type: ignore[union-attr]
    again = core.send(b"again", 0)
    sends = [send for _ in range(3) for send in core.tick()]
    core.written(sends[-1], 0)
    assert again._outcome.offset == 0  # type: ignore[union-attr]


def test_a_producer_whose_thread_dies_fails_all_who_wait(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Exception | None] = []
    with Producer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        producer.partitions_for("t")
        waiting = [
            producer.send("t", b"v", on_delivery=lambda metadata, error: told.append(error)) for _ in range(3)
        ]
        results: list[BaseException | None] = []
        threads = [
            threading.Thread(target=lambda d=delivery: results.append(d.exception()), daemon=True)  # type: ignore[misc]
            for delivery in waiting
        ]
        for thread in threads:
            thread.start()
        producer._calls.sender.tick = broken  # type: ignore[method-assign]
        producer._part.commands.append(lambda: None)
        producer._engine.reactor.wakeup()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert len(results) == len(told) == 3
        for error in (*results, *told):
            assert isinstance(error, ClosedClient)
            assert "a bug of our own" in str(error)
            assert isinstance(error.__cause__, Bug)
        for call in (
            lambda: producer.send("t", b"later"),
            lambda: producer.send("unknown", b"later"),
            lambda: producer.send_arrow("t", pyarrow.table({"value": [b"v"]})),
            lambda: producer.partitions_for("unknown"),
            lambda: producer.flush(PATIENCE_S),
        ):
            with pytest.raises(ClosedClient, match="a bug of our own"):
                call()
    assert "the background thread has failed" in caplog.text


async def test_an_asyncio_producer_that_fails_fails_all_who_wait(servers: str) -> None:
    def bug(now_ms: int) -> None:
        raise AssertionError("a bug of our own")

    async with AsyncProducer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        await producer.partitions_for("t")
        delivery = await producer.send("t", b"v")
        producer._calls.sender.tick = bug  # type: ignore[method-assign]
        producer._iterate_soon()
        with pytest.raises(ClosedClient, match="a bug of our own"):
            await asyncio.wait_for(delivery, PATIENCE_S)
        with pytest.raises(ClosedClient, match="a bug of our own"):
            await producer.send("t", b"v")
        producer._calls.sender.tick = lambda now_ms: None  # type: ignore[method-assign]


def test_a_consumer_whose_thread_dies_says_so_in_every_call(kafka: Kafka, servers: str) -> None:
    consumer = quick(servers, "g")
    consumer.subscribe(["t"])
    joined(consumer)
    assert consumer._engine._thread is not None
    consumer._core.tick_background = broken  # type: ignore[method-assign]
    consumer._engine.reactor.wakeup_group()
    consumer._engine._thread.join(PATIENCE_S)
    for call in (
        lambda: consumer.poll(PATIENCE_S),
        lambda: consumer.commit(),
        lambda: consumer.list_topics(),
    ):
        with pytest.raises(ClosedClient, match="a bug of our own") as raised:
            call()
        assert isinstance(raised.value.__cause__, Bug)
    with pytest.raises(ClosedClient, match="a bug of our own"):
        consumer.close()
    assert consumer._engine.is_closed


# --- settings and the admin --------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"acks": 1}, {"acks": "0"}, {"retries": 0}])
def test_what_rules_idempotence_out_switches_it_off_as_in_kafka(
    given: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config, _ = read_config(PRODUCER, {"bootstrap.servers": "127.0.0.1:1"}, given)
    assert config.enable_idempotence is False
    assert "enable.idempotence is off" in caplog.text
    with pytest.raises(SettingError, match=r"enable.idempotence needs"):
        read_config(PRODUCER, {"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": True}, given)


@pytest.mark.parametrize("given", [{}, {"acks": "all"}, {"acks": -1}])
def test_else_it_is_on(given: dict[str, object]) -> None:
    config, _ = read_config(PRODUCER, {"bootstrap.servers": "127.0.0.1:1"}, given)
    assert config.enable_idempotence is True


def test_records_are_sent_with_acks_1(servers: str) -> None:
    with Producer(bootstrap_servers=servers, acks=1) as producer:
        assert producer.send("t", b"v", partition=0).result(PATIENCE_S).offset == 0


@pytest.mark.parametrize("name", ["client_id", "group_id", "group_instance_id", "client_rack"])
def test_a_setting_that_cannot_be_sent_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="half of a surrogate pair"):
        Consumer(**{"bootstrap_servers": "127.0.0.1:1", "group_id": "g", name: "\ud800"})


WRONG_CALLS: list[tuple[Callable[[Admin], object], str]] = [
    (lambda a: a.create_topic("n", "3"), "the number of partitions of n is a whole number, not '3'"),  # type: ignore[arg-type]
    (lambda a: a.create_topic("n", 1, 2**15), "the replication factor of n is a number from -1 to 32767"),
    (lambda a: a.create_topic(None), "a topic must have a name"),  # type: ignore[arg-type]
    (lambda a: a.create_topic("\ud800"), "surrogate"),
    (
        lambda a: a.create_topic("n", configs={"retention.ms": object()}),
        "the setting retention.ms of n is a string",
    ),
    (lambda a: a.create_topic("n", configs={5: "1"}), "the name of a setting of n is a string"),  # type: ignore[dict-item]
    (lambda a: a.create_topic("n", configs=["x"]), "settings of n are a dict"),  # type: ignore[arg-type]
    (lambda a: a.create_topics("n"), "that takes a list"),  # type: ignore[arg-type]
    (lambda a: a.create_topics(["n"]), "a topic to make is a NewTopic"),  # type: ignore[list-item]
    (lambda a: a.create_topics([NewTopic("n", assignments={0: ("1",)})]), "a whole number"),  # type: ignore[dict-item]
    (lambda a: a.create_topics([NewTopic("n")], validate_only="no"), "True or False"),  # type: ignore[arg-type]
    (lambda a: a.create_partitions({"t": "6"}), "the number of partitions of t is a whole number"),  # type: ignore[dict-item]
    (lambda a: a.create_partitions("t"), "partitions go by topic"),  # type: ignore[arg-type]
    (lambda a: a.delete_topics("\ud800"), "surrogate"),
    (lambda a: a.delete_records({T0: "1"}), "the first offset to keep of t-0 is a whole number"),  # type: ignore[dict-item]
    (lambda a: a.delete_records({T0: -2}), "a number from -1 to"),
    (lambda a: a.alter_topic_configs({"t": 5}), "settings of t are a dict"),  # type: ignore[dict-item]
    (lambda a: a.alter_topic_configs({"t": {"retention.ms": "\ud800"}}), "surrogate"),
    (lambda a: a.broker_configs("one"), "a broker's id is a whole number"),  # type: ignore[arg-type]
    (lambda a: a.alter_broker_configs({"one": {}}), "a broker's id is a whole number"),  # type: ignore[dict-item]
    (lambda a: a.describe_groups("\ud800"), "surrogate"),
    (lambda a: a.group_offsets(5), "the id of a group is a string"),  # type: ignore[arg-type]
    (lambda a: a.group_offsets("g", ("t", "0")), "the partition of topic t is a whole number"),  # type: ignore[arg-type]
    (lambda a: a.alter_group_offsets("g", {T0: OffsetAndMetadata(1, 5)}), "metadata .* is a string"),  # type: ignore[arg-type]
    (lambda a: a.alter_group_offsets("g", [T0]), "offsets to commit go by partition"),  # type: ignore[arg-type]
    (lambda a: a.remove_members("g", reason=5), "the reason is a string"),  # type: ignore[arg-type]
    (lambda a: a.remove_members("g", instances="me"), "that takes a list"),
]


def test_the_admin_says_what_is_wrong_and_goes_on(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        for call, words in WRONG_CALLS:
            with pytest.raises(WrongArgument, match=words):
                call(admin)
        admin.create_topic("n", numpy.int64(3), configs={"cleanup.policy": ["compact", "delete"]})  # type: ignore[arg-type]
        assert len(admin.describe_topics("n")["n"].partitions) == 3
        assert admin.topic_configs("n")["n"]["cleanup.policy"].value == "compact,delete"
        admin.alter_topic_configs({"n": {"retention.ms": numpy.int32(5)}})
        assert admin.topic_configs("n")["n"]["retention.ms"].value == "5"


def test_a_poll_goes_on_after_all(kafka: Kafka, servers: str) -> None:
    kafka.produce("t", ["a"])
    with quick(servers, "g") as consumer:
        for wrong in (None, 5, [5], "t", object()):
            with pytest.raises((WrongArgument, IllegalState)):
                consumer.subscribe(wrong)  # type: ignore[arg-type]
        consumer.subscribe(["t"])
        assert read(consumer, 1) == [b"a"]
