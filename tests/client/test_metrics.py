"""`metrics()`: Kafka's names and samples, what the parts count in virtual time, and what real clients count."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kohort import Admin, AsyncConsumer, AsyncProducer, Producer, TopicPartition, WrongArgument
from kohort.client.consume.fetch_metrics import FetchMetrics, PartitionFetchMetrics, TopicFetchMetrics
from kohort.client.consume.poll_metrics import POLLS, PollMetrics
from kohort.client.core.effects import FailureKind
from kohort.client.core.metrics import (
    MetricName,
    Metrics,
    MetricSource,
    MetricWindow,
    Sensor,
    read_metrics,
)
from kohort.client.group.group_metrics import GROUP
from kohort.client.metrics import TABLES
from kohort.client.offsets.subscription import Position, SubscriptionState
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from tests.client import fetching, group_world, producing
from tests.client.consuming import joined, poll_until, quick, read

WINDOW = MetricWindow()
START_MS = 5_000_000


def names_in(text: str) -> set[str]:
    return set(text.split())


# As the clients of Apache Kafka 4.0 define them, without transactions and the times of the I/O thread.
KAFKA = {
    "consumer-coordinator-metrics": names_in("""
        assigned-partitions commit-latency-avg commit-latency-max commit-rate commit-total
        failed-rebalance-rate-per-hour
        failed-rebalance-total heartbeat-rate heartbeat-response-time-max heartbeat-total join-rate join-time-avg
        join-time-max join-total last-heartbeat-seconds-ago last-rebalance-seconds-ago partition-assigned-latency-avg
        partition-assigned-latency-max partition-lost-latency-avg partition-lost-latency-max
        partition-revoked-latency-avg partition-revoked-latency-max rebalance-latency-avg rebalance-latency-max
        rebalance-latency-total rebalance-rate-per-hour rebalance-total sync-rate sync-time-avg sync-time-max sync-total
    """),
    "consumer-fetch-manager-metrics": names_in("""
        bytes-consumed-rate bytes-consumed-total fetch-latency-avg fetch-latency-max fetch-rate fetch-size-avg
        fetch-size-max fetch-throttle-time-avg fetch-throttle-time-max fetch-total preferred-read-replica
        records-consumed-rate records-consumed-total records-lag records-lag-avg records-lag-max records-lead
        records-lead-avg records-lead-min records-per-request-avg
    """),
    "consumer-metrics": names_in("""
        commit-sync-time-ns-total committed-time-ns-total last-poll-seconds-ago poll-idle-ratio-avg
        time-between-poll-avg time-between-poll-max
    """),
    "consumer-share-coordinator-metrics": names_in("""
        heartbeat-rate heartbeat-response-time-max heartbeat-total last-heartbeat-seconds-ago rebalance-rate-per-hour
        rebalance-total
    """),
    "consumer-share-fetch-manager-metrics": names_in("""
        acknowledgements-error-rate acknowledgements-error-total acknowledgements-send-rate acknowledgements-send-total
        bytes-consumed-rate bytes-consumed-total fetch-latency-avg fetch-latency-max fetch-rate fetch-size-avg
        fetch-size-max fetch-throttle-time-avg fetch-throttle-time-max fetch-total records-consumed-rate
        records-consumed-total records-per-request-avg records-per-request-max
    """),
    "consumer-share-metrics": names_in("""
        last-poll-seconds-ago poll-idle-ratio-avg time-between-poll-avg time-between-poll-max
    """),
    "producer-metrics": names_in("""
        batch-size-avg batch-size-max batch-split-rate batch-split-total buffer-available-bytes buffer-exhausted-rate
        buffer-exhausted-total buffer-total-bytes bufferpool-wait-ratio bufferpool-wait-time-ns-total
        compression-rate-avg flush-time-ns-total metadata-age metadata-wait-time-ns-total produce-throttle-time-avg
        produce-throttle-time-max record-error-rate record-error-total record-queue-time-avg record-queue-time-max
        record-retry-rate record-retry-total record-send-rate record-send-total record-size-avg record-size-max
        records-per-request-avg request-latency-avg request-latency-max requests-in-flight waiting-threads
    """),
    "producer-topic-metrics": names_in("""
        byte-rate byte-total compression-rate record-error-rate record-error-total record-retry-rate record-retry-total
        record-send-rate record-send-total
    """),
    "admin-client-metrics": set[str](),
    "kafka-metrics-count": {"count"},
}
OF_ALL_CLIENTS = names_in("""
    connection-close-rate connection-close-total connection-count connection-creation-rate connection-creation-total
    failed-authentication-rate failed-authentication-total incoming-byte-rate incoming-byte-total network-io-rate
    network-io-total outgoing-byte-rate outgoing-byte-total request-rate request-size-avg request-size-max request-total
    response-rate response-total successful-authentication-rate successful-authentication-total
    failed-reauthentication-rate failed-reauthentication-total successful-reauthentication-rate
    successful-reauthentication-total
""")
NOT_HERE = {("producer-metrics", "record-size-max")}


def test_the_names_are_those_of_kafka_and_one_is_missing():
    ours = {
        (table.group.format(client=client), row.name)
        for client, tables in TABLES.items()
        for table in tables
        for row in table.rows
    }
    kafkas = {(group, name) for group, names in KAFKA.items() for name in names}
    kafkas |= {(f"{client}-metrics", name) for client in TABLES for name in OF_ALL_CLIENTS}
    assert ours == kafkas - NOT_HERE


# --- samples ------------------------------------------------------------------------------------------


def test_a_sensor_without_values_has_no_average_and_a_rate_of_zero():
    sensor = Sensor(WINDOW)
    assert math.isnan(sensor.avg(START_MS))
    assert math.isnan(sensor.max(START_MS))
    assert (sensor.rate(START_MS), sensor.count, sensor.total) == (0, 0, 0)


def test_rates_divide_by_at_least_all_samples_but_one():
    sensor = Sensor(WINDOW)
    sensor.record(30, START_MS)
    assert sensor.rate(START_MS) == 1.0  # of 30 s, though no time has passed
    assert sensor.rate(START_MS + 10_000) == pytest.approx(30 / 40)
    assert sensor.count_rate(START_MS + 30_000) == pytest.approx(1 / 30)


def test_averages_and_maxima_forget_what_is_older_than_all_samples():
    sensor = Sensor(WINDOW)
    sensor.record(100, START_MS)
    sensor.record(10, START_MS + 31_000)
    assert (sensor.avg(START_MS + 40_000), sensor.max(START_MS + 40_000)) == (55, 100)
    sensor.record(20, START_MS + 62_000)
    assert (sensor.avg(START_MS + 62_000), sensor.max(START_MS + 62_000)) == (15, 20)
    assert math.isnan(sensor.max(START_MS + 130_000))
    assert (sensor.count, sensor.total) == (3, 130), "totals never shrink"


def test_the_window_is_what_the_settings_say(bootstrap_servers: str):
    sensor = Sensor(MetricWindow(sample_ms=1_000, samples=5))
    for second in range(10):
        sensor.record(1, START_MS + second * 1_000)
    assert sensor.recent(START_MS + 9_000) == (5, 5)
    with Admin(
        bootstrap_servers=bootstrap_servers, metrics_sample_window_ms=1_000, metrics_num_samples=5
    ) as admin:
        admin.list_topics()
        assert 0 < admin.metrics().value("request-rate") <= admin.metrics().value("request-total") / 4


def test_a_steady_rate_is_measured_as_it_is():
    sensor = Sensor(WINDOW)
    for step in range(3_000):
        sensor.record(7, START_MS + step * 100)
    assert sensor.rate(START_MS + 300_000) == pytest.approx(70, rel=0.02)
    assert sensor.count_rate(START_MS + 300_000) == pytest.approx(10, rel=0.02)


# --- looking up ---------------------------------------------------------------------------------------


def test_a_metric_is_looked_up_by_name_and_tags():
    metrics = Metrics(
        {
            MetricName("records-lag-max", "f", {"client-id": "a"}): 9,
            MetricName("records-lag-max", "f", {"client-id": "a", "topic": "t", "partition": "0"}): 3,
            MetricName("records-lag-max", "f", {"client-id": "a", "topic": "t", "partition": "1"}): 4,
        }
    )
    assert metrics.value("records-lag-max") == 9
    assert metrics.value("records-lag-max", topic="t", partition=1) == 4
    assert metrics[MetricName("records-lag-max", "f", {"client-id": "a"})] == 9
    with pytest.raises(WrongArgument, match="stands for 2 metrics"):
        metrics.value("records-lag-max", client_id="a", topic="t")
    with pytest.raises(WrongArgument, match="no metric records-lac"):
        metrics.value("records-lac")
    assert str(next(iter(metrics))) == "f:records-lag-max{client-id=a}"


def at(now_ms: int, *sources: MetricSource, client: str = "consumer") -> Metrics:
    return read_metrics(client, "a", iter(sources), now_ms)


# --- the parts, in virtual time -----------------------------------------------------------------------


def fetched(world: fetching.World) -> Metrics:
    return at(world.now_ms, *world.fetcher.metrics.sources())


def test_fetches_records_and_lag():
    world = fetching.World()
    world.tick()
    world.now_ms += 40
    records = fetching.batch(0, 10)
    world.answer(
        {fetching.ORDERS_0: fetching.data(records, high_watermark=25, log_start_offset=0)}, throttle_ms=7
    )
    before = fetched(world)
    assert before.value("fetch-latency-max") == 40
    assert before.value("fetch-size-avg") == before.value("fetch-size-max", topic="orders") == len(records)
    assert before.value("fetch-throttle-time-avg") == 7
    assert before.value("records-consumed-total") == 0
    assert before.value("records-lag", topic="orders", partition=0) == 25

    assert len(world.take(4)[fetching.ORDERS_0]) == 4
    some = fetched(world)
    assert some.value("records-consumed-total") == some.value("records-consumed-total", topic="orders") == 4
    assert some.value("records-lag", topic="orders", partition=0) == 21
    assert some.value("bytes-consumed-total") == 0, "an answer counts when it is used up"

    world.now_ms += 10_000
    world.take()
    done = fetched(world)
    assert done.value("records-consumed-total") == done.value("records-per-request-avg") == 10
    assert done.value("records-consumed-rate") == pytest.approx(10 / 30)
    assert done.value("bytes-consumed-total", topic="orders") == len(records)
    assert done.value("records-lag-max") == done.value("records-lag-max", partition=0) == 21
    assert done.value("records-lag-avg", partition=0) == 18
    assert (done.value("records-lead", partition=0), done.value("records-lead-min")) == (10, 4)


def test_a_partition_that_is_gone_has_no_metrics_any_more():
    world = fetching.World()
    world.tick()
    world.answer({fetching.ORDERS_0: fetching.data(fetching.batch(0, 3))})
    world.take()
    world.subscription.assign([])
    with pytest.raises(WrongArgument):
        fetched(world).value("records-lag", topic="orders", partition=0)
    assert fetched(world).value("records-consumed-total", topic="orders") == 3


def test_a_consumer_of_committed_records_is_behind_the_last_stable_offset():
    world = fetching.World(isolation_level="read_committed")
    world.tick()
    found = fetching.data(fetching.batch(0, 3), high_watermark=100, last_stable_offset=8)
    world.answer({fetching.ORDERS_0: found})
    world.take()
    assert fetched(world).value("records-lag", partition=0) == 5


def sent(core: producing.Core) -> Metrics:
    return at(core.now_ms, *core.sender.metrics.sources(), client="producer")


def test_batches_retries_and_errors_of_a_producer():
    core = producing.Core(retries=1, enable_idempotence=False)
    for n in range(5):
        core.send(b"%d" % n)
    (first,) = core.tick(after_ms=30)
    assert sent(core).value("requests-in-flight") == 1
    core.now_ms += 12
    core.lose(first)
    lost = sent(core)
    assert (lost.value("record-retry-total"), lost.value("record-error-total")) == (5, 0)
    assert math.isnan(lost.value("request-latency-max")), "a request without an answer has no latency"

    core.tick()
    (again,) = core.tick(after_ms=5_000)
    core.now_ms += 8
    core.reply(again, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    metrics = sent(core)
    assert metrics.value("record-send-total", "producer-metrics") == 10, "those sent again count, as in Kafka"
    assert metrics.value("record-error-total", topic="orders") == 5
    assert metrics.value("request-latency-avg") == 8
    assert metrics.value("records-per-request-avg") == 5
    assert metrics.value("record-queue-time-max") == 30 + 12 + 5_000
    assert metrics.value("compression-rate-avg") == metrics.value("compression-rate", topic="orders") == 1
    assert metrics.value("byte-total", topic="orders") == 2 * metrics.value("batch-size-max")
    assert metrics.value("requests-in-flight") == 0
    assert metrics.value("buffer-available-bytes") == metrics.value("buffer-total-bytes")


def test_a_batch_that_is_given_up_is_an_error():
    core = producing.Core(enable_idempotence=False, delivery_timeout_ms=31_000, request_timeout_ms=30_000)
    core.send(b"x")
    (send,) = core.tick()
    core.now_ms += 31_000
    core.tick()
    assert sent(core).value("record-error-total", topic="orders") == 1
    core.lose(send, FailureKind.TIMED_OUT)
    assert sent(core).value("record-retry-total", topic="orders") == 0


def grouped(member: group_world.Member, world: group_world.World) -> Metrics:
    return at(world.now_ms, MetricSource(GROUP, member.membership.metrics))


def test_joins_syncs_heartbeats_and_rebalances_of_members():
    world = group_world.World(1, {"orders": 4})
    first = group_world.Member(world, "range", ["orders"])
    assert grouped(first, world).value("last-rebalance-seconds-ago") == -1
    world.run(20_000)
    alone = grouped(first, world)
    assert alone.value("join-total") == alone.value("sync-total") == alone.value("rebalance-total") == 1
    assert alone.value("rebalance-latency-max") >= alone.value("join-time-max") >= 100, (
        "the coordinator's delay"
    )
    assert alone.value("failed-rebalance-total") == 0
    assert alone.value("heartbeat-total") >= 3
    assert 0 <= alone.value("heartbeat-response-time-max") < 1_000
    assert 0 <= alone.value("last-heartbeat-seconds-ago") <= 4

    group_world.Member(world, "range", ["orders"])
    world.run(20_000)
    both = grouped(first, world)
    assert both.value("rebalance-total") >= 2
    assert both.value("last-rebalance-seconds-ago") < 20
    assert both.value("rebalance-latency-total") >= both.value("rebalance-latency-max")
    world.run(600_000)
    calm = grouped(first, world)
    assert calm.value("rebalance-rate-per-hour") == 0
    assert math.isnan(calm.value("join-time-avg")), "the joins are too long ago"
    assert calm.value("join-total") == both.value("join-total")


def test_joins_that_get_lost_are_failed_rebalances():
    world = group_world.World(5, {"orders": 4})
    world.loss = 0.4
    member = group_world.Member(world, "range", ["orders"])
    world.run(300_000)
    world.loss = 0.0
    world.run(120_000)
    metrics = grouped(member, world)
    assert metrics.value("failed-rebalance-total") > 0
    assert metrics.value("rebalance-total") > 0
    assert metrics.value("rebalance-latency-max") > 0 or math.isnan(metrics.value("rebalance-latency-max"))


def test_time_in_poll_and_between_polls():
    polls = PollMetrics(WINDOW)
    assert at(START_MS, MetricSource(POLLS, polls)).value("last-poll-seconds-ago") == -1
    for began, ended in ((0, 100), (200, 300), (1_200, 1_200)):
        polls.poll_began(START_MS + began)
        polls.poll_ended(START_MS + ended)
    metrics = at(START_MS + 4_000, MetricSource(POLLS, polls))
    assert metrics.value("time-between-poll-max") == 1_000
    assert metrics.value("time-between-poll-avg") == 400
    assert metrics.value("poll-idle-ratio-avg") == pytest.approx((1 + 100 / 300 + 0) / 3)
    assert metrics.value("last-poll-seconds-ago") == 2


# --- real clients -------------------------------------------------------------------------------------


def test_a_producer_and_a_consumer_agree(bootstrap_servers: str, new_topic: Callable[..., str], group: str):
    topic = new_topic(partitions=2)
    with Producer(bootstrap_servers=bootstrap_servers, client_id="maker", compression_type="lz4") as producer:
        for n in range(300):
            producer.send(topic, b"apples and pears " * 10, key=b"%d" % n)
        producer.flush()
        made = producer.metrics()
    assert made.value("record-send-total", topic=topic, client_id="maker") == 300
    assert 0 < made.value("compression-rate-avg") < 0.9
    assert made.value("request-latency-max") >= made.value("request-latency-avg") >= 0
    assert made.value("buffer-available-bytes") == made.value("buffer-total-bytes")
    assert made.value("connection-count") >= 1
    assert producer.metrics().value("connection-count") == 0, "also when it is closed"

    with quick(bootstrap_servers, group) as consumer:
        consumer.subscribe([topic], on_assigned=lambda partitions: None)
        assert len(read(consumer, 300)) == 300
        consumer.commit()
        consumer.committed([TopicPartition(topic, 0)])
        poll_until(
            consumer, lambda: consumer.metrics().value("heartbeat-total") > 0, "a heartbeat is answered"
        )
        seen = consumer.metrics()
    assert seen.value("records-consumed-total") == seen.value("records-consumed-total", topic=topic) == 300
    assert seen.value("bytes-consumed-total") == made.value("byte-total", topic=topic)
    assert seen.value("assigned-partitions") == 2
    assert seen.value("records-lag", topic=topic, partition=1) == 0
    assert seen.value("join-total") == seen.value("rebalance-total") == 1
    assert seen.value("commit-total") >= 1
    assert seen.value("commit-latency-max") >= 0
    assert seen.value("partition-assigned-latency-max") >= 0
    assert math.isnan(seen.value("partition-lost-latency-max"))
    assert seen.value("incoming-byte-total") > seen.value("bytes-consumed-total")
    assert seen.value("request-total") >= seen.value("response-total")
    assert seen.value("last-poll-seconds-ago") <= 60
    assert seen.value("count") == len(seen)


def test_a_consumer_without_a_group_has_no_joins(bootstrap_servers: str, new_topic: Callable[..., str]):
    topic = new_topic()
    with quick(bootstrap_servers) as consumer:
        consumer.assign([(topic, 0)])
        consumer.poll(0.1)
        metrics = consumer.metrics()
        assert metrics.value("assigned-partitions") == 1
        with pytest.raises(WrongArgument, match="join-total"):
            metrics.value("join-total")


def test_what_is_read_as_arrow_counts_too(bootstrap_servers: str, new_topic: Callable[..., str]):
    pytest.importorskip("pyarrow")
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for n in range(50):
            producer.send(topic, b"%d" % n)
    with quick(bootstrap_servers) as consumer:
        consumer.assign([(topic, 0)])
        while (batch := consumer.poll_arrow(10.0)) is None:
            pass
        assert consumer.metrics().value("records-consumed-total") == batch.num_rows


async def use_async_clients(bootstrap_servers: str, topic: str) -> tuple[Metrics, Metrics]:
    async with AsyncProducer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"one")
        made = producer.metrics()
    async with AsyncConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic, 0)])
        for _ in range(100):
            if await consumer.poll(1.0):
                break
        return made, consumer.metrics()


def test_the_async_clients_count_the_same(bootstrap_servers: str, new_topic: Callable[..., str]):
    topic = new_topic()
    made, seen = asyncio.run(use_async_clients(bootstrap_servers, topic))
    assert made.value("record-send-total", topic=topic) == seen.value("records-consumed-total") == 1


def test_a_broker_that_is_not_there_shows_in_the_metrics(kafka: Kafka):
    kafka.create_topic("orders")
    kafka.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    with Producer(
        bootstrap_servers=kafka.bootstrap_servers, retry_backoff_ms=1, retry_backoff_max_ms=1
    ) as producer:
        producer.send("orders", b"x").result(30)
        assert producer.metrics().value("record-retry-total", topic="orders") == 2
        assert producer.metrics().value("record-error-total", topic="orders") == 0
        kafka.restart()
        producer.send("orders", b"y").result(30)
        assert producer.metrics().value("connection-close-total") >= 1
        assert producer.metrics().value("connection-creation-total") >= 2


def test_metrics_may_be_read_by_other_threads(
    bootstrap_servers: str, new_topic: Callable[..., str], group: str
):
    topics = [new_topic() for _ in range(5)]
    failed: list[BaseException] = []
    stop = threading.Event()

    def scrape(client: Any) -> None:
        try:
            while not stop.is_set():
                assert client.metrics()
        except BaseException as error:
            failed.append(error)

    with (
        Producer(bootstrap_servers=bootstrap_servers) as producer,
        quick(bootstrap_servers, group) as consumer,
    ):
        threads = [threading.Thread(target=scrape, args=(client,)) for client in (producer, consumer)]
        for thread in threads:
            thread.start()
        try:
            consumer.subscribe(topics)
            for topic in topics:
                producer.send(topic, b"x")
            assert len(read(joined(consumer), 5)) == 5
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not failed


class _ResetMeanwhile:
    """A partition whose position is reset by another thread as soon as somebody has looked at it."""

    high_watermark, last_stable_offset, log_start_offset = 10, 8, 2

    def __init__(self) -> None:
        self._positions = [Position(5), None]

    @property
    def position(self) -> Position | None:
        return self._positions.pop(0)


@pytest.mark.parametrize(
    ("read_committed", "name", "expected"), [(False, "lag", 5), (True, "lag", 3), (False, "lead", 3)]
)
def test_a_position_that_is_reset_while_it_is_read(read_committed: bool, name: str, expected: int) -> None:
    window, state = MetricWindow(), _ResetMeanwhile()
    client = FetchMetrics(window, SubscriptionState(), read_committed)
    topic = TopicFetchMetrics(window, client)
    metrics = PartitionFetchMetrics(window, state, topic, read_committed)  # type: ignore[arg-type]
    assert getattr(metrics, name) == expected


def test_a_function_is_called_when_a_client_is_closed(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
):
    called: list[str] = []
    admin = Admin(bootstrap_servers=bootstrap_servers)
    admin.on_close(lambda: called.append("first"))
    admin.on_close(lambda: 1 / 0)  # it is logged, and the others are called
    admin.on_close(lambda: called.append("second"))
    with pytest.raises(WrongArgument):
        admin.on_close("no function")  # type: ignore[arg-type]
    assert called == []
    admin.close()
    assert called == ["first", "second"]
    assert "ZeroDivisionError" in caplog.text
    admin.on_close(lambda: called.append("late"))
    assert called == ["first", "second", "late"]
