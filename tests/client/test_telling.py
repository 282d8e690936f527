"""How often a client complains: once a second and node, every few seconds while a broker is away, and about nothing
while a topic is being created."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from kohort import Consumer, Producer
from kohort.client.core.effects import FailureKind
from kohort.client.core.warning_limits import AWAY_EVERY_MS, LastingCondition, NodeWarnings
from kohort.client.io.reactor import SelectorReactor
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from tests.client.consuming import PATIENCE_S, quick, read
from tests.client.driving import driven
from tests.client.producing import Core
from tests.client.test_metadata import Told, topic

log = logging.getLogger("kohort.client.test")


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The texts of all warnings of the client, as they come."""
    texts: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                texts.append(record.getMessage())

    logger, handler = logging.getLogger("kohort.client"), Collect()
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


# --- one a second and node ---------------------------------------------------------------------------------


def test_one_warning_a_second_and_node_and_the_rest_is_counted(warnings: list[str]) -> None:
    told = NodeWarnings()
    for now_ms in range(0, 2_500, 100):
        told.warn(log, "a:1", now_ms, f"at {now_ms}")
    told.warn(log, "b:2", 2_500, "another node")
    assert warnings == [
        "at 0",
        "at 1000 (9 more about a:1 since the last warning)",
        "at 2000 (9 more about a:1 since the last warning)",
        "another node",
    ]


def test_what_is_left_out_is_there_for_those_who_look(caplog: pytest.LogCaptureFixture) -> None:
    told = NodeWarnings()
    with caplog.at_level(logging.DEBUG, "kohort.client"):
        told.warn(log, "a:1", 0, "first")
        told.warn(log, "a:1", 1, "second")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "first"),
        ("DEBUG", "second"),
    ]


def test_what_lasts_is_told_again_and_again() -> None:
    lasting = LastingCondition(after_ms=200, every_ms=500)
    assert [ms for ms in range(0, 1_500, 100) if lasting.is_worth_a_warning(ms)] == [200, 700, 1_200]
    lasting.is_over()
    assert [ms for ms in range(2_000, 2_400, 100) if lasting.is_worth_a_warning(ms)] == [2_200]


def lose_everything(core: Core) -> None:
    for send in list(core.under_way):
        core.lose(send)


def test_a_broker_that_goes_away_takes_one_warning_with_it_not_one_a_batch(warnings: list[str]) -> None:
    core = Core(partitions=100, nodes=2, enable_idempotence=False)
    for partition in range(100):
        core.send(b"x", partition)
    core.tick()
    lose_everything(core)
    assert len(warnings) == 2  # two nodes
    assert sorted(text.split(":")[0] for text in warnings) == ["orders-0", "orders-1"]
    assert all(
        "a batch of 1 records was not written (NETWORK_EXCEPTION: gone); attempt 2" in w for w in warnings
    )
    warnings.clear()
    core.now_ms += 1_000
    for partition in range(100):
        core.send(b"y", partition)
    core.tick()
    for send in core.under_way:
        assert send.purpose == "sender.produce"
    core.now_ms += 100
    lose_everything(core)
    core.tick(5_000)
    lose_everything(core)
    assert warnings
    assert all("more about 127.0.0.1:909" in text for text in warnings)


def test_records_that_are_given_up_are_told_of_once_a_second_too(warnings: list[str]) -> None:
    core = Core(partitions=50, enable_idempotence=False, delivery_timeout_ms=30_000)
    for partition in range(50):
        core.send(b"x", partition)
    core.tick(30_000)
    assert len(warnings) == 1
    assert "were given up" in warnings[0]


def test_commits_of_a_coordinator_that_refuses_are_told_of_once_a_second(
    kafka: Kafka, warnings: list[str]
) -> None:
    kafka.create_topic("orders")
    began = time.monotonic()
    with quick(kafka.bootstrap_servers, "g", enable_auto_commit=False) as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit({("orders", 0): 0}, timeout=PATIENCE_S)
        kafka.fail("OffsetCommit", with_error="INVALID_COMMIT_OFFSET_SIZE", times=50)
        for offset in range(50):
            consumer.commit_async({("orders", 0): offset})
    assert 1 <= len(warnings) <= 2 + time.monotonic() - began
    assert "an asynchronous commit failed" in warnings[0]


def test_ten_restarts_of_a_broker_do_not_fill_the_log(kafka: Kafka, warnings: list[str]) -> None:
    kafka.create_topic("orders", partitions=40)
    began = time.monotonic()
    settings = {"linger.ms": 0, "reconnect.backoff.max.ms": 50, "retry.backoff.max.ms": 50}
    with Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings}) as producer:
        for _ in range(10):
            sent = [producer.send("orders", "x", partition=p) for p in range(40)]
            kafka.stop()
            sent += [producer.send("orders", "y", partition=p) for p in range(40)]
            kafka.start()
            for delivery in sent:
                delivery.result(PATIENCE_S)
    assert len(warnings) <= 2 + time.monotonic() - began


# --- a broker that stays away ------------------------------------------------------------------------------


class SteppedReactor(SelectorReactor):
    """Sockets are real, time is not."""

    def __init__(self) -> None:
        super().__init__()
        self.stepped_ms = 0
        self.now_ms = lambda: 1_000_000 + self.stepped_ms


def test_a_broker_that_stays_away_is_told_of_every_few_seconds(unused_port: int, warnings: list[str]) -> None:
    reactor = SteppedReactor()
    told_at_ms: list[int] = []
    with driven(f"127.0.0.1:{unused_port}", reactor=reactor) as client:
        for _ in range(600):
            before = len(warnings)
            client.run(lambda: False, timeout_ms=0)
            told_at_ms += [reactor.stepped_ms] * (len(warnings) - before)
            reactor.stepped_ms += 100
            if len(told_at_ms) == 5:
                break
    assert len(told_at_ms) == 5, f"{warnings} in a minute"
    gaps = [later - earlier for earlier, later in pairwise(told_at_ms)]
    assert all(AWAY_EVERY_MS <= gap <= 2 * AWAY_EVERY_MS for gap in gaps), gaps
    assert warnings[0] == f"cannot connect to 127.0.0.1:{unused_port}: Connection refused; trying again"
    assert "more attempts; trying again" in warnings[1]


def test_a_broker_that_does_not_answer_is_told_of_every_few_seconds(warnings: list[str]) -> None:
    told = Told()
    told.want("orders")
    for _ in range(40):
        told.fail(FailureKind.TIMED_OUT)
        told.now_ms += 1_500
    assert 8 <= len(warnings) <= 12  # in a minute
    assert warnings[0] == "no metadata (timed out: gone); asks again"


def test_a_node_that_cannot_be_reached_is_told_of_by_the_network_alone(warnings: list[str]) -> None:
    told = Told()
    told.want("orders")
    for _ in range(5):
        told.fail(FailureKind.DISCONNECTED)
        told.now_ms += 2_000
    assert warnings == []


# --- a topic that is being created -------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE])
def test_a_topic_that_is_being_created_is_nothing_to_warn_about(code: ErrorCode, warnings: list[str]) -> None:
    told = Told()
    told.want("orders", allow_auto_create=True)
    for _ in range(3):
        told.answer(topic(error_code=int(code), partitions=[]))
        told.now_ms += 500
    told.answer(topic(leader=-1))
    told.now_ms += 1_000
    told.answer(topic())
    assert told.metadata.cluster.topics
    assert warnings == []


def test_a_topic_that_does_not_come_is_told_of_and_not_too_often(warnings: list[str]) -> None:
    told = Told()
    told.want("ordres")
    for _ in range(130):
        told.answer(topic("ordres", error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), partitions=[]))
        told.now_ms += 1_500
    assert len(warnings) == 4  # in three minutes
    assert warnings[0] == "no metadata (ordres: UNKNOWN_TOPIC_OR_PARTITION); asks again"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_does_not_know_of_it_yet_is_asked_again_without_a_word(
    code: ErrorCode, warnings: list[str]
) -> None:
    core = Core(enable_idempotence=False)
    core.send(b"x", 0)
    for attempt in range(5):
        (send,) = core.tick(2_000)
        core.reply(send, code)
        assert len(warnings) == (attempt >= 3)
    assert f"({code.name}); attempt 5 follows" in warnings[0]


def test_the_first_record_to_a_new_topic_warns_about_nothing(kafka: Kafka, warnings: list[str]) -> None:
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        assert producer.send("new", "one").result(PATIENCE_S).offset == 0
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as reader:
        reader.subscribe(["new", "newer"])
        assert read(reader, 1) == [b"one"]
    assert warnings == []
