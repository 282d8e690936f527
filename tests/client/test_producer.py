"""The producer, blocking and asyncio, against a real broker: what is acknowledged is there, once and in order."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka  # type: ignore[import-untyped]
import pytest

from kohort import ClosedClient, KafkaError, RecordMetadata, SerializationFailed, TimedOut
from kohort.broker.running import running
from kohort.client.async_producer import AsyncProducer
from kohort.client.produce.outgoing import ProducerRecord
from kohort.client.produce.partitioners import make_partitioner
from kohort.client.producer import Delivery, Producer
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode
from tests.clients.process import BrokerProcess, eventually, fixed_port

EARLIER_MS = time.time_ns() // 1_000_000 - 60_000  # older than retention.ms it could be deleted at any time


@pytest.fixture
def broker(bootstrap_servers: str) -> str:
    return bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest, new_name: Callable[[str], str]) -> str:
    """Made by the first record, with three partitions."""
    return new_name("t" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:100])


def read(servers: str, topic: str, count: int) -> list[Any]:
    """All records of a topic as kafka-python sees them, in the order of offsets per partition."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        max_poll_records=5000,
    )
    try:
        partitions = eventually(lambda: consumer.partitions_for_topic(topic), f"{topic} is there")
        consumer.assign([kafka.TopicPartition(topic, p) for p in sorted(partitions)])
        records: list[Any] = []
        deadline = time.monotonic() + 60
        while len(records) < count and time.monotonic() < deadline:
            for several in consumer.poll(timeout_ms=200).values():
                records += several
                deadline = time.monotonic() + 60  # as long as there are more, however slowly they come
        assert len(records) >= count, f"{len(records)} of {count} records are there"
        for several in consumer.poll(timeout_ms=100).values():  # more than there should be?
            records += several
        return records
    finally:
        consumer.close()


# --- sending ------------------------------------------------------------------------------------------


def small_batches(size: int) -> dict[str, Any]:
    """Settings with which no batch is larger, also when records wait: a request takes no more."""
    return {"batch_size": size, "max_request_size": size}


def test_a_record_is_written_and_its_delivery_says_where(broker: str, topic: str) -> None:
    with Producer({"bootstrap.servers": broker}) as producer:
        delivery = producer.send(
            topic, value=b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=EARLIER_MS
        )
        metadata = delivery.result(timeout=60)
        assert delivery.done()
        assert delivery.exception(0) is None
        assert isinstance(metadata, RecordMetadata)
        assert (metadata.topic, metadata.offset, metadata.timestamp) == (topic, 0, EARLIER_MS)
        assert (metadata.key_size, metadata.value_size) == (1, 1)
    (record,) = read(broker, topic, 1)
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", EARLIER_MS)
    assert [(name, content) for name, content in record.headers] == [("h", b"1"), ("n", None)]
    assert record.partition == metadata.partition


def test_settings_may_be_keywords_and_unknown_ones_are_named() -> None:
    with pytest.raises(SettingError, match=r"linger\.ms"):
        Producer(bootstrap_servers="127.0.0.1:1", lingerms=5)
    with pytest.raises(SettingError, match="acks=all"):
        Producer(bootstrap_servers="127.0.0.1:1", acks=1, enable_idempotence=True)


def test_text_is_utf8_none_is_null_and_other_types_need_a_serializer(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(topic, "grün", key="ключ", partition=0)
        producer.send(topic, None, partition=0)
        producer.send(topic, bytearray(b"b"), key=memoryview(b"m"), partition=0)
        with pytest.raises(SerializationFailed, match=r"value_serializer"):
            producer.send(topic, 5)
        with pytest.raises(SerializationFailed, match=r"key_serializer"):
            producer.send(topic, b"", key=5)
    records = read(broker, topic, 3)
    assert [(r.key, r.value) for r in records] == [
        ("ключ".encode(), "grün".encode()),
        (None, None),
        (b"m", b"b"),
    ]


def test_serializers_get_the_topic_and_what_they_raise_is_attached(broker: str, topic: str) -> None:
    def to_bytes(name: str, value: int) -> bytes:
        assert name == topic
        return b"%d" % value

    with Producer(bootstrap_servers=broker, key_serializer=to_bytes, value_serializer=to_bytes) as producer:
        producer.send(topic, 7, key=8).result(60)
        with pytest.raises(SerializationFailed) as caught:
            producer.send(topic, "seven", key=8)
        assert isinstance(caught.value.__cause__, TypeError)
    (record,) = read(broker, topic, 1)
    assert (record.key, record.value) == (b"8", b"7")


@pytest.mark.parametrize(("times", "batch_size"), [(1, 16_384), (50, 200_000), (50, 900_000)])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_others_read_every_codec(broker: str, topic: str, codec: str, times: int, batch_size: int) -> None:
    sent = [(b"k%d" % n if n % 3 else None, b"value %d " % n * (n % 40) * times) for n in range(500)]
    settings = {"compression.type": codec, "linger.ms": 20, "batch.size": batch_size}
    with Producer(settings, bootstrap_servers=broker) as producer:
        for key, value in sent:
            producer.send(
                topic, value, key=key, partition=1, headers=[("n", b"x")] if len(value) % 2 else None
            )
    if codec in ("none", "gzip"):  # kafka-python needs packages of its own for the others
        assert [(r.key, r.value) for r in read(broker, topic, 500)] == sent
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker, "group.id": topic})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 1, 0)])
        got: list[Any] = []
        deadline = time.monotonic() + 60
        while len(got) < 500 and time.monotonic() < deadline:
            got += consumer.consume(500, 1.0)
        assert [(m.key(), m.value()) for m in got] == sent
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("murmur2", "murmur2_random"),
        ("consistent_random", "consistent_random"),
        ("fnv1a_random", "fnv1a_random"),
    ],
)
def test_keys_have_the_partitions_that_librdkafka_gives_them(
    broker: str, topic: str, ours: str, theirs: str
) -> None:
    keys = [b"k%d" % n * (n % 5 + 1) for n in range(60)]
    told: dict[Any, Any] = {}
    other = confluent_kafka.Producer({"bootstrap.servers": broker, "partitioner": theirs})
    for key in keys:
        other.produce(topic, b"", key, on_delivery=lambda error, m: told.__setitem__(m.key(), m.partition()))
    assert other.flush(60) == 0
    with Producer(bootstrap_servers=broker, partitioner=ours) as producer:
        deliveries = {key: producer.send(topic, b"", key) for key in keys}
        assert {key: delivery.result(60).partition for key, delivery in deliveries.items()} == told
    choose = make_partitioner(ours, False, lambda: 0.5)
    assert {key: choose(topic, key, 3) for key in keys} == told


def test_a_partitioner_of_ones_own(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker, partitioner=lambda name, key, count: count - 1) as producer:
        assert producer.send(topic, b"v").result(60).partition == 2
        assert producer.partitions_for(topic) == [0, 1, 2]
        with pytest.raises(ValueError, match="there is no partition 3"):
            producer.send(topic, b"v", partition=3)


def test_callbacks_run_on_the_producers_thread_in_order(broker: str, topic: str) -> None:
    told: list[tuple[int, str]] = []

    def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
        assert metadata is not None, error
        told.append((metadata.offset, threading.current_thread().name))

    with Producer(bootstrap_servers=broker, linger_ms=5) as producer:
        for n in range(300):
            producer.send(topic, b"%d" % n, partition=0, on_delivery=on_delivery)
        producer.flush(60)
        assert told == [(n, "kohort-producer-kohort") for n in range(300)]
        later: list[Delivery] = []
        delivery = producer.send(topic, b"late")
        delivery.add_done_callback(later.append)
        delivery.result(60)
        eventually(lambda: later == [delivery], "the callback was called")


def test_a_callback_that_raises_harms_nobody(
    broker: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(topic, b"a", on_delivery=lambda m, e: 1 / 0)
        producer.flush(60)
        producer.send(topic, b"b").result(60)
    assert "a delivery callback failed" in caplog.text


def test_a_subclass_may_have_a_send_of_its_own(broker: str, topic: str) -> None:
    class Loud(Producer):
        def send(self, topic: str, value: Any = None, *rest: Any, **more: Any) -> Delivery:
            return super().send(topic, value.upper(), *rest, **more)

    with Loud(bootstrap_servers=broker) as producer:
        producer.send(topic, b"a").result(60)
        producer.send(topic, "b").result(60)
    assert sorted(r.value for r in read(broker, topic, 2)) == [b"A", b"B"]


def test_interceptors_see_every_record_and_its_end(broker: str, topic: str) -> None:
    class Marker:
        def __init__(self) -> None:
            self.acks: list[Any] = []

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=b"<" + record.value + b">")

        def on_ack(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
            self.acks.append(metadata.offset if metadata is not None else error)

    class Bad:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise RuntimeError("bad")

    marker = Marker()
    with Producer(bootstrap_servers=broker, interceptors=[Bad(), marker]) as producer:
        producer.send(topic, b"a", partition=0)
        producer.send(topic, b"b", partition=0)
        producer.flush(60)
        with pytest.raises(ValueError, match="no partition"):
            producer.send(topic, b"c", partition=9)
    assert marker.acks[:2] == [0, 1]
    assert isinstance(marker.acks[2], ValueError)
    assert [r.value for r in read(broker, topic, 2)] == [b"<a>", b"<b>"]


def test_many_threads_send_and_each_ones_order_is_kept(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker, **small_batches(2000)) as producer:

        def work(number: int) -> None:
            for turn in range(1000):
                producer.send(topic, b"%d" % turn, key=b"%d" % number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen: dict[bytes, list[int]] = {}
    for record in read(broker, topic, 4000):
        seen.setdefault(record.key, []).append(int(record.value))
    assert seen == {b"%d" % n: list(range(1000)) for n in range(4)}


@pytest.fixture
def ready_topic(new_topic: Callable[..., str]) -> str:
    """With acks=0 a record is lost where the leader of a new topic has not begun: Kafka's takes a moment."""
    return new_topic(partitions=3)


def test_acks_0_and_1_without_idempotence(broker: str, ready_topic: str) -> None:
    topic = ready_topic
    for acks, offset in ((0, -1), (1, 1)):
        with Producer(bootstrap_servers=broker, acks=acks, enable_idempotence=False) as producer:
            assert producer.send(topic, b"a", partition=0).result(60).offset == offset
            producer.flush(60)
        # With acks=0 it is only on its way, and the next producer's connection might overtake this one's.
        assert len(read(broker, topic, acks + 1)) == acks + 1


def test_many_batches_with_acks_0(broker: str, ready_topic: str) -> None:
    topic = ready_topic
    with Producer(
        bootstrap_servers=broker, acks=0, enable_idempotence=False, **small_batches(500)
    ) as producer:
        for n in range(3000):
            producer.send(topic, b"%d" % n * 20, partition=0)
    assert len(read(broker, topic, 3000)) == 3000


# --- limits -------------------------------------------------------------------------------------------


def test_a_record_that_fits_nowhere_is_refused_with_sizes_and_settings(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        with pytest.raises(KafkaError, match=r"20000\d\d bytes.*max\.request\.size") as caught:
            producer.send(topic, b"x" * 200_000 * 10)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_the_topic_does_not_take_is_split(broker: str, topic: str) -> None:
    from kohort import Admin

    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topic(topic, partitions=1, configs={"max.message.bytes": "3000"})
    with Producer(bootstrap_servers=broker, linger_ms=50, batch_size=50_000) as producer:
        deliveries = [producer.send(topic, b"%02d" % n * 250) for n in range(40)]
        producer.flush(60)
        assert [d.result(0).offset for d in deliveries] == list(range(40))
        with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
            producer.send(topic, b"x" * 5000).result(60)
        assert producer.send(topic, b"after").result(60).offset == 40


def test_with_the_defaults_a_topic_that_takes_small_batches_gets_every_record_in_order(
    broker: str, topic: str
) -> None:
    from kohort import Admin

    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topic(topic, partitions=1, configs={"max.message.bytes": "20000"})
    with Producer(bootstrap_servers=broker) as producer:
        deliveries = [producer.send(topic, b"%06d" % n * 30) for n in range(5000)]
        producer.flush(60)
        assert [d.result(0).offset for d in deliveries] == list(range(5000))


def test_send_to_an_unknown_topic_says_so_after_max_block_ms(tmp_path: Path) -> None:
    with (
        running(auto_create_topics_enable=False) as node,
        Producer(bootstrap_servers=node.bootstrap_servers, max_block_ms=300) as producer,
    ):
        # Not at once if the broker needs more than these 300 ms to answer at all.
        unknown = re.compile("UNKNOWN_TOPIC_OR_PARTITION.*Create it")
        eventually(lambda: unknown.search(refusal(TimedOut, producer, "nowhere")), "the broker says so")
        misnamed = (TimedOut, KafkaError)
        eventually(lambda: "check its name" in refusal(misnamed, producer, "no such name"), "that is no name")


def refusal(kind: type[Exception] | tuple[type[Exception], ...], producer: Producer, topic: str) -> str:
    with pytest.raises(kind) as refused:
        producer.send(topic, b"a")
    return str(refused.value)


def test_no_broker_at_all_is_told_with_the_address(unused_port: int) -> None:
    producer = Producer(bootstrap_servers=f"127.0.0.1:{unused_port}", max_block_ms=200)
    with producer, pytest.raises(TimedOut, match=f"127.0.0.1:{unused_port}"):
        producer.send("t", b"a")


def test_back_pressure_blocks_and_then_says_what_to_do(tmp_path: Path) -> None:
    def fill(producer: Producer) -> None:
        for _ in range(100):
            producer.send("t", b"x" * 1000)

    with BrokerProcess(tmp_path, "durability=os", port=fixed_port()) as broker:
        settings = {"buffer.memory": 20_000, "max.block.ms": 300, "linger.ms": 0}
        with Producer(settings, bootstrap_servers=broker.bootstrap_servers) as producer:

            def begun() -> Delivery | None:
                try:
                    return producer.send("t", b"first")
                except TimedOut:  # 300 ms may not be enough to make the topic
                    return None

            eventually(begun, "the topic is there").result(60)
            os.kill(broker.pid, 19)  # SIGSTOP: connected, and silent
            try:
                with pytest.raises(TimedOut, match=r"buffer\.memory \(20000 bytes\)"):
                    fill(producer)
                with pytest.raises(TimedOut, match="Flush again"):
                    producer.flush(0.1)
            finally:
                os.kill(broker.pid, 18)
            producer.flush(60)
            producer.send("t", b"again").result(60)


# --- the end ------------------------------------------------------------------------------------------


def test_close_waits_for_what_is_on_its_way_and_then_nothing_is_taken(broker: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker, linger_ms=60_000, delivery_timeout_ms=200_000)
    delivery = producer.send(topic, b"a")
    producer.close()
    assert delivery.result(0).offset == 0
    producer.close()
    with pytest.raises(ClosedClient):
        producer.send(topic, b"b")
    with pytest.raises(ClosedClient):
        producer.flush()


def test_close_0_fails_the_rest() -> None:
    with running() as node:
        producer = Producer(
            bootstrap_servers=node.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=200_000
        )
        told: list[Any] = []
        delivery = producer.send("t", b"a", on_delivery=lambda m, e: told.append(e))
        producer.close(0)
        with pytest.raises(ClosedClient, match="before this record was written"):
            delivery.result(60)
        assert isinstance(told[0], ClosedClient)


def test_a_callback_may_send_and_may_close_but_not_wait(broker: str, topic: str) -> None:
    from kohort import IllegalState

    producer = Producer(bootstrap_servers=broker)
    errors: list[Any] = []
    more: list[Delivery] = []

    def on_first(metadata: Any, error: Any) -> None:
        more.append(producer.send(topic, b"second", partition=0))
        try:
            producer.flush()
        except IllegalState as refused:
            errors.append(refused)

    producer.send(topic, b"first", partition=0, on_delivery=on_first)
    eventually(lambda: more, "the callback sent a record")
    assert more[0].result(60).offset == 1
    assert len(errors) == 1
    closed = threading.Event()

    def on_last(metadata: Any, error: Any) -> None:
        producer.close()
        closed.set()

    producer.send(topic, b"last", on_delivery=on_last)
    assert closed.wait(60)


def test_a_forked_child_is_told_that_the_producer_is_not_its_own(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker) as producer:
        producer.send(topic, b"a", partition=0).result(60)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send(topic, b"from the child")
            except ClosedClient:
                producer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert producer.send(topic, b"b", partition=0).result(60).offset == 1


SENDS_UNTIL_INTERRUPTED_150_TIMES = """
import json, signal, sys
from kohort import Producer

def stop(number, frame):
    raise KeyboardInterrupt

taken, turn, interrupted = [], 0, 0
number = signal.Signals[sys.argv[3]]
signal.signal(number, signal.default_int_handler if number == signal.SIGINT else stop)
producer = Producer(bootstrap_servers=sys.argv[1], batch_size=3000, max_request_size=3000, linger_ms=1)
producer.partitions_for(sys.argv[2])
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))  # at a time of our choosing
while interrupted < 150 or len(taken) < 1000:
    try:
        # Once: never while the last one is being handled. Later each time: a slow machine too has time to send.
        signal.setitimer(signal.ITIMER_REAL, 0.0007 + interrupted * 0.000003)
        while True:
            turn += 1
            taken.append((turn, producer.send(sys.argv[2], b"%d" % turn, key=b"k" if turn % 2 else None, partition=0)))
    except KeyboardInterrupt:
        interrupted += 1
lost = turn - len(taken)
assert lost <= interrupted, f"{lost} records are lost with {interrupted} interruptions"
producer.flush(60)
print(json.dumps([[delivery.result(0).offset, turn] for turn, delivery in taken]))
producer.close()
"""


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_the_middle_of_sending_loses_no_record_that_send_returned(
    broker: str, topic: str, signal_name: str
) -> None:
    command = [sys.executable, "-c", SENDS_UNTIL_INTERRUPTED_150_TIMES, broker, topic, signal_name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    placed: list[list[int]] = json.loads(done.stdout)
    assert len(placed) >= 1000
    written = {record.offset: int(record.value) for record in read(broker, topic, placed[-1][0] + 1)}
    assert all(written[offset] == turn for offset, turn in placed)
    assert list(written.values()) == sorted(set(written.values()))


# --- a broker that is killed --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kill_and_restart_every_acknowledged_record_once_and_in_order(tmp_path: Path, codec: str) -> None:
    with BrokerProcess(tmp_path, "durability=os", "num.partitions=3", port=fixed_port()) as broker:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
        }
        deliveries: list[tuple[bytes, int, Delivery]] = []
        with Producer(
            settings,
            linger_ms=2,
            retry_backoff_max_ms=200,
            reconnect_backoff_max_ms=200,
            **small_batches(3000),
        ) as producer:
            stop, wanted = threading.Event(), 0

            def work() -> None:
                turn = 0
                while not stop.is_set():
                    if turn < wanted:
                        key = b"%d" % (turn % 7)
                        deliveries.append((key, turn, producer.send("t", b"%d" % turn * 5, key=key)))
                        turn += 1
                    if turn % 200 == 0 or turn >= wanted:
                        stop.wait(0.004)

            thread = threading.Thread(target=work)
            thread.start()
            for _ in range(3):
                reached = len(deliveries) + 3000
                # It goes on while the broker is gone, but not for however long that takes.
                wanted = reached + 4000
                eventually(lambda: len(deliveries) > reached, "records are sent")  # noqa: B023
                broker.kill()
                broker.restart()
            reached = len(deliveries) + 3000
            wanted = reached + 1000
            eventually(lambda: len(deliveries) > reached, "records are sent")
            stop.set()
            thread.join()
            producer.flush(60)
            placed: dict[bytes, list[Any]] = {}
            for key, turn, delivery in deliveries:
                metadata = delivery.result(0)
                placed.setdefault(key, []).append((metadata.partition, metadata.offset, turn))
        records = read(broker.bootstrap_servers, "t", len(deliveries))
        assert len(records) == len(deliveries)
        seen: dict[bytes, list[Any]] = {}
        for record in records:
            turn = int(record.value[: len(record.value) // 5])
            seen.setdefault(record.key, []).append((record.partition, record.offset, turn))
        for key, expected in placed.items():
            assert [turn for _, _, turn in seen[key]] == [turn for _, _, turn in expected]
            exact = [(p, o, t) for p, o, t in expected if o >= 0]  # -1: a duplicate whose place is forgotten
            assert set(exact) <= set(seen[key])


# --- asyncio ------------------------------------------------------------------------------------------


async def test_the_asyncio_producer_sends_and_its_deliveries_are_awaited(broker: str, topic: str) -> None:
    async with AsyncProducer({"bootstrap.servers": broker}, linger_ms=2) as producer:
        delivery = await producer.send(topic, b"a", key=b"k", partition=0)
        metadata = await delivery
        assert metadata.offset == 0
        assert delivery.done()
        assert delivery.result() == metadata
        assert (await producer.send_and_wait(topic, "b", headers=[("h", b"1")], partition=0)).offset == 1
        assert (await producer.send_and_wait(topic, b"c", timestamp_ms=EARLIER_MS)).timestamp == EARLIER_MS
        told: list[Any] = []
        several = [
            await producer.send(topic, b"%d" % n, on_delivery=lambda m, e: told.append(m))
            for n in range(2000)
        ]
        await producer.flush(60)
        assert all(each.done() for each in several)
        assert len(told) == 2000
        assert await producer.partitions_for(topic) == [0, 1, 2]
    with pytest.raises(ClosedClient):
        await producer.send(topic, b"late")
    assert len(read(broker, topic, 2003)) == 2003


async def test_the_asyncio_producer_waits_for_room_and_lets_others_work(broker: str, topic: str) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async with AsyncProducer(bootstrap_servers=broker, buffer_memory=50_000, batch_size=4000) as producer:
        for n in range(3000):
            await producer.send(topic, b"%d" % n * 30)
    task.cancel()
    assert turns > 50
    assert len(read(broker, topic, 3000)) == 3000


async def test_the_asyncio_producer_says_what_is_wrong(broker: str, topic: str, unused_port: int) -> None:
    async with AsyncProducer(bootstrap_servers=broker) as producer:
        with pytest.raises(SerializationFailed):
            await producer.send(topic, 5)
        delivery = await producer.send(topic, b"x", partition=0)
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
    producer = AsyncProducer(bootstrap_servers=f"127.0.0.1:{unused_port}", max_block_ms=100)
    with pytest.raises(TimedOut):
        await producer.send("t", b"a")
    await producer.close()


# --- Arrow --------------------------------------------------------------------------------------------


def arrow_rows(count: int, **columns: Any) -> Any:
    import pyarrow as pa

    values = pa.array([b"value %d" % n for n in range(count)], pa.binary())
    return pa.record_batch({"value": values, **columns})


def test_an_arrow_batch_is_written_in_order_with_all_its_columns(broker: str, topic: str) -> None:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    rows = arrow_rows(
        3000,
        key=pa.array([None if n % 3 == 0 else f"k{n % 50}" for n in range(3000)]),
        timestamp=pa.array([EARLIER_MS + n for n in range(3000)], pa.timestamp("ms")),
        headers=pa.array(
            [[{"key": "n", "value": b"1"}] if n % 2 else None for n in range(3000)], pa.list_(header)
        ),
    )
    with Producer(bootstrap_servers=broker, batch_size=4000) as producer:
        written = producer.send_arrow(topic, rows).result(60)
    assert sum(each.record_count for each in written) == 3000
    records = read(broker, topic, 3000)
    choose = make_partitioner("murmur2", False, lambda: 0.5)
    at: dict[int, list[int]] = {}
    for record in records:
        n = int(record.value.split()[1])
        assert record.key == (None if n % 3 == 0 else b"k%d" % (n % 50))
        assert record.timestamp == EARLIER_MS + n
        assert list(record.headers) == ([("n", b"1")] if n % 2 else [])
        if record.key is not None:
            assert record.partition == choose(topic, record.key, 3)
        at.setdefault(record.partition, []).append(n)
    keyed = {p: [n for n in numbers if n % 3] for p, numbers in at.items()}
    assert all(numbers == sorted(numbers) for numbers in keyed.values())


def test_arrow_rows_may_name_their_topic_and_partition(broker: str, topic: str) -> None:
    import pyarrow as pa

    rows = arrow_rows(
        6,
        topic=pa.array([topic + "-a", topic + "-b"] * 3),
        partition=pa.array([0, 1, None, 1, 2, 1], pa.int32()),
        key=pa.array(["x"] * 6),
    )
    with Producer(bootstrap_servers=broker) as producer:
        written = producer.send_arrow(None, pa.Table.from_batches([rows])).result(60)
        assert {each.topic for each in written} == {topic + "-a", topic + "-b"}
        with pytest.raises(ValueError, match="there is no partition 7"):
            producer.send_arrow(topic + "-a", arrow_rows(1, partition=pa.array([7], pa.int32())))
        with pytest.raises(ValueError, match="name the topic"):
            producer.send_arrow(None, arrow_rows(1))
        with pytest.raises(TypeError, match="binary or string"):
            producer.send_arrow(topic + "-a", pa.record_batch({"value": pa.array([1])}))
    assert [r.partition for r in read(broker, topic + "-b", 3)] == [1, 1, 1]


def test_arrow_rows_come_after_what_was_sent_before(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker, linger_ms=5000) as producer:
        producer.send(topic, b"first", partition=0)
        import pyarrow as pa

        producer.send_arrow(topic, arrow_rows(10, partition=pa.array([0] * 10, pa.int32())))
        last = producer.send(topic, b"last", partition=0)
        producer.flush(60)
        assert last.result(0).offset == 11


def test_arrow_rows_wait_for_room(broker: str, topic: str) -> None:
    with Producer(bootstrap_servers=broker, buffer_memory=20_000, batch_size=4000) as producer:
        producer.send_arrow(topic, arrow_rows(5000)).result(60)
    assert len(read(broker, topic, 5000)) == 5000


async def test_a_forked_child_is_told_that_the_asyncio_producer_is_not_its_own(
    broker: str, topic: str
) -> None:
    async with AsyncProducer(bootstrap_servers=broker) as producer:
        await producer.send_and_wait(topic, b"a", partition=0)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send(topic, b"from the child", partition=0).send(None)
            except ClosedClient:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222
        assert (await producer.send_and_wait(topic, b"b", partition=0)).offset == 1


async def test_the_asyncio_producer_sends_arrow_batches(broker: str, topic: str) -> None:
    async with AsyncProducer(bootstrap_servers=broker, batch_size=4000) as producer:
        written = await (await producer.send_arrow(topic, arrow_rows(2000)))
    assert sum(each.record_count for each in written) == 2000
