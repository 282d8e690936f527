"""A broker that comes, goes away, comes back and is thrown away."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.settings import SettingError
from kohort.testing import Kafka
from kohort.testing.waiting import wait_until
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.metadata import MetadataRequest

Factory = Callable[..., Kafka]


def test_it_is_ready_soon() -> None:
    with Kafka():
        pass  # imports are not part of it

    def ready_s() -> float:
        began = time.perf_counter()
        with Kafka() as kafka, BlockingConnection(kafka.bootstrap_servers) as client:
            client.call(MetadataRequest(None), 12)
            return time.perf_counter() - began

    assert is_quick(ready_s, 0.1)


def is_quick(took_s: Callable[[], float], limit_s: float) -> bool:
    """Says whether any try within a minute is quick; a busy machine may delay some of them."""
    deadline = time.monotonic() + 60
    while took_s() >= limit_s:
        if time.monotonic() > deadline:
            return False
    return True


def test_a_stopped_broker_refuses_and_comes_back_with_its_data(kafka: Kafka) -> None:
    kafka.produce("orders", ["one"])
    address = kafka.bootstrap_servers
    client = BlockingConnection(address)
    kafka.stop()
    with pytest.raises(ConnectionError):
        client.call(MetadataRequest(None), 12)
    client.close()
    with pytest.raises(ConnectionRefusedError):
        BlockingConnection(address)
    with pytest.raises(RuntimeError, match="stopped: start"):
        kafka.consume_all("orders")
    with pytest.raises(RuntimeError, match="stopped: start"):
        kafka.produce("orders", ["two"])
    kafka.stop()  # twice is once
    kafka.start()
    kafka.start()
    assert kafka.bootstrap_servers == address
    assert [record.value for record in kafka.consume_all("orders")] == [b"one"]
    assert kafka.produce("orders", ["two"]) == [1]


@pytest.mark.parametrize("how", ["stop", "close", "restart"])
def test_it_does_not_wait_for_those_who_wait_for_it(kafka: Kafka, how: str) -> None:
    """A member that waits in JoinGroup for another, and requests that are to be carried out in ten minutes."""

    def took_s() -> float:
        kafka.start()  # it was stopped or closed by the iteration before
        return while_three_wait(kafka, getattr(kafka, how))

    assert is_quick(took_s, 1)


def while_three_wait(kafka: Kafka, what: Callable[[], None]) -> float:
    """How long it takes, in seconds; the member is told, as by Kafka, and all who wait are cut off."""
    group = f"g{uuid.uuid4()}"  # a group lives on after a restart
    protocol = JoinGroupRequestProtocol("range", bytes(10))
    join = JoinGroupRequest(group, 60_000, 60_000, protocol_type="consumer", protocols=[protocol])
    with (
        BlockingConnection(kafka.bootstrap_servers) as one,
        BlockingConnection(kafka.bootstrap_servers) as two,
        kafka.delay("Metadata", ms=600_000) as metadata,
        kafka.delay("Heartbeat", ms=600_000) as heartbeat,
    ):
        one.call(FindCoordinatorRequest(group), 3)
        assert one.call(join, 3).error_code == 0
        two.send(join, 3)
        one.send(MetadataRequest(None), 12)
        with BlockingConnection(kafka.bootstrap_servers) as three:
            three.send(HeartbeatRequest(group, 1, "m"), 4)
            metadata.wait()
            heartbeat.wait()
            wait_until(
                lambda: kafka.group(group).state == "PreparingRebalance", 60, lambda: "no second member"
            )
            began = time.perf_counter()
            what()
            took_s = time.perf_counter() - began
            assert two.receive().error_code == ErrorCode.NOT_COORDINATOR
            for waiting in (one, two, three):
                with pytest.raises(ConnectionError):
                    waiting.receive_frame()
    return took_s


def test_a_group_goes_on_after_a_restart(kafka: Kafka) -> None:
    kafka.produce("orders", ["one"])
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 50,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 20,
            "log_level": 0,
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(60).value() == b"one"
    consumer.commit(asynchronous=False)
    member = consumer.memberid()
    kafka.restart()
    kafka.clear()
    kafka.group("g").wait_stable(members=1)
    assert [m.id for m in kafka.group("g").members] == [member]  # from __consumer_offsets
    assert kafka.committed("g", "orders") == {0: 1}
    kafka.produce("orders", ["two"])
    assert consumer.poll(60).value() == b"two"
    kafka.wait_for_request("Heartbeat")
    assert kafka.group("g").generation == 1
    consumer.close()


def test_time_that_passes_while_it_is_stopped(kafka: Kafka) -> None:
    kafka.create_topic("orders", retention_ms=1000)
    kafka.produce("orders", ["one"])
    kafka.stop()
    kafka.advance(60_000)
    kafka.start()
    kafka.advance(1)
    assert kafka.consume_all("orders") == []


def test_a_broker_on_disk(tmp_path: Path, kafka_factory: Factory) -> None:
    kafka = kafka_factory(directory=tmp_path / "data")
    kafka.produce("orders", ["one"])
    kafka.restart()
    kafka.advance(60_000)
    kafka.close()
    again = kafka_factory(directory=tmp_path / "data")
    assert [record.value for record in again.consume_all("orders")] == [b"one"]


def test_several_at_once(kafka_factory: Factory) -> None:
    one, two = kafka_factory(), kafka_factory(num_partitions=4)
    one.produce("orders", ["a"])
    two.produce("orders", ["b", "c"])
    assert one.bootstrap_servers != two.bootstrap_servers
    assert one.end_offsets("orders") == {0: 1}
    assert two.end_offsets("orders") == {0: 1, 1: 1, 2: 0, 3: 0}


def test_settings_by_either_spelling(kafka_factory: Factory) -> None:
    for kafka in (kafka_factory(settings={"num.partitions": 2}), kafka_factory(num_partitions=2)):
        kafka.produce("orders", ["a"])
        assert len(kafka.end_offsets("orders")) == 2
    with pytest.raises(SettingError, match=r"did you mean num\.partitions"):
        kafka_factory(num_partition=2)


def test_what_does_not_run_says_so() -> None:
    kafka = Kafka()
    with pytest.raises(RuntimeError, match="does not run: start"):
        kafka.produce("orders", ["one"])
    with kafka:
        pass
    with pytest.raises(RuntimeError, match="does not run: start"):
        assert kafka.bootstrap_servers
    kafka.close()


async def test_in_an_event_loop() -> None:
    async with Kafka() as kafka:
        kafka.produce("orders", ["one"])
        _, writer = await asyncio.open_connection(*kafka.bootstrap_servers.split(":"))
        writer.close()
        await writer.wait_closed()
        fault = kafka.fail("JoinGroup", with_error="NOT_COORDINATOR")
        with pytest.raises(TimeoutError):
            await fault.wait_async(timeout=0.02)
        with pytest.raises(TimeoutError, match="it is Dead"):
            await kafka.group("g").wait_stable_async(timeout=0.02)
        await kafka.group("g").wait_empty_async()
        with pytest.raises(TimeoutError, match="0 JoinGroup requests have come, 2 were waited for"):
            await kafka.wait_for_request_async("JoinGroup", 2, timeout=0.02)
    with pytest.raises(RuntimeError, match="does not run"):
        kafka.consume_all("orders")


def test_who_tests_may_do_everything_whatever_the_acls_are():
    settings = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with Kafka(settings=settings) as kafka:
        kafka.create_topic("orders")
        kafka.produce("orders", ["1"])
        assert kafka.end_offsets("orders") == {0: 1}
