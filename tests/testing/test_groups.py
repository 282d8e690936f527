"""Groups of real clients under a broker that kills, rebalances and lets time pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

from kohort import Consumer as OurConsumer
from kohort import ShareConsumer
from kohort.client.types import TopicPartition
from kohort.testing import Kafka

Join = Callable[..., Any]


@pytest.fixture
def join(kafka: Kafka) -> Iterator[Join]:
    """A consumer of the group `g` that has its first record; several at once share three partitions."""
    kafka.create_topic("orders", partitions=3)
    consumers = []

    def consumer(**options: object) -> Any:
        settings = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 50,
        }
        made = Consumer(settings | {name.replace("_", "."): value for name, value in options.items()})
        made.subscribe(["orders"])
        consumers.append(made)
        return made

    yield consumer
    for made in consumers:
        made.close()


def poll_until_stable(kafka: Kafka, *consumers: Any) -> None:
    """Clients join from within poll: whoever waits for them must let them."""
    deadline = time.monotonic() + 60
    while True:
        for consumer in consumers:
            consumer.poll(0.01)
        try:
            kafka.group("g").wait_stable(members=len(consumers), timeout=0)
            return
        except TimeoutError:
            if time.monotonic() > deadline:
                raise


def test_a_group_shows_its_members(kafka: Kafka, join: Join) -> None:
    one, two = join(client_id="one"), join(client_id="two", group_instance_id="the-second")
    poll_until_stable(kafka, one, two)
    group = kafka.group("g")
    assert (group.state, group.protocol) == ("Stable", "range")
    assert group.generation >= 1
    members = {member.client_id: member for member in group.members}
    assert group.leader in {member.id for member in members.values()}
    assert {members["one"].host, members["two"].host} == {"127.0.0.1"}
    assert members["two"].group_instance_id == "the-second"
    assert members["one"].id == one.memberid()
    assigned = [partition for member in members.values() for partition in member.assignment]
    assert sorted(assigned) == [("orders", 0), ("orders", 1), ("orders", 2)]
    assert [each.id for each in kafka.groups()] == ["g"]


def test_a_group_that_nobody_joined_is_dead(kafka: Kafka) -> None:
    group = kafka.group("nobody")
    assert (group.state, group.members, group.generation, group.leader) == ("Dead", [], -1, None)
    assert (group.committed(), group.lag(), group.why()) == ({}, {}, [])
    assert kafka.groups() == []
    group.wait_empty()


def test_commits_and_lag(kafka: Kafka, join: Join) -> None:
    kafka.produce("orders", [{"value": str(n), "partition": n % 3} for n in range(9)])
    consumer = join()
    messages = []
    while len(messages) < 9:
        messages += consumer.consume(9, timeout=0.1)
    first = next(message for message in messages if message.partition() == 1)
    consumer.commit(message=first, asynchronous=False)
    assert kafka.committed("g", "orders") == {1: 1}
    assert kafka.group("g").committed() == {TopicPartition("orders", 1): 1}
    assert kafka.group("g").lag() == {("orders", 1): 2}


def test_a_rebalance_on_demand(kafka: Kafka, join: Join) -> None:
    consumer = join()
    poll_until_stable(kafka, consumer)
    group = kafka.group("g")
    before = group.generation
    kafka.rebalance("g", reason="because the test says so")
    assert group.state == "PreparingRebalance"
    poll_until_stable(kafka, consumer)
    assert group.generation == before + 1
    assert group.why()[-1].reason == "because the test says so"
    assert group.why()[-1].outcome == "Stable"


def test_a_killed_member_comes_back_as_a_new_one(kafka: Kafka, join: Join) -> None:
    one, two = join(client_id="one"), join(client_id="two")
    poll_until_stable(kafka, one, two)
    old = one.memberid()
    kafka.kill_member(old)
    assert [member.client_id for member in kafka.group("g").members] == ["two"]
    poll_until_stable(kafka, one, two)
    assert one.memberid() != old
    reasons = [rebalance.reason for rebalance in kafka.group("g").why()]
    assert any(old in reason and "session expired" in reason for reason in reasons)


def test_a_member_is_killed_by_any_of_its_names(kafka: Kafka, join: Join) -> None:
    consumer = join(client_id="one", group_instance_id="static-one")
    poll_until_stable(kafka, consumer)
    for name in (kafka.group("g").members[0], "one", "static-one"):
        kafka.kill_member(name)
        assert kafka.group("g").members == []
        poll_until_stable(kafka, consumer)


def test_who_is_not_there_cannot_be_killed_or_rebalanced(kafka: Kafka, join: Join) -> None:
    one, two = join(client_id="twin"), join(client_id="twin")
    poll_until_stable(kafka, one, two)
    with pytest.raises(ValueError, match="2 members are called 'twin'; there is twin-"):
        kafka.kill_member("twin")
    with pytest.raises(ValueError, match="no member is called 'triplet'; there is twin-"):
        kafka.kill_member("triplet")
    with pytest.raises(ValueError, match="no group 'gg' with members"):
        kafka.rebalance("gg")


def test_time_ends_sessions_without_waiting(kafka: Kafka, join: Join) -> None:
    consumer = join(session_timeout_ms=60_000)
    poll_until_stable(kafka, consumer)
    old = consumer.memberid()
    # Or it would renew its session in between; an error to which it only asks again.
    with kafka.fail("Heartbeat", with_error="COORDINATOR_LOAD_IN_PROGRESS", times=None):
        kafka.advance(30_000)
        assert [member.id for member in kafka.group("g").members] == [old]
        kafka.advance(30_001)
        assert kafka.group("g").members == []
        assert kafka.group("g").state == "Empty"
    assert "session expired after 60" in kafka.group("g").why()[-1].reason


def test_time_ends_a_rebalance_that_waits_for_a_member(kafka: Kafka, join: Join) -> None:
    """As when a member does not poll: after its rebalance timeout the others go on without it."""
    settings = {"session_timeout_ms": 60_000, "max_poll_interval_ms": 70_000}
    one, two = join(client_id="one", **settings), join(client_id="two", **settings)
    poll_until_stable(kafka, one, two)
    with kafka.fail("JoinGroup", with_error="REBALANCE_IN_PROGRESS", times=None, client_id="two"):
        kafka.rebalance("g")
        joined = kafka.requests("JoinGroup")
        while not any(r.client_id == "one" for r in kafka.requests("JoinGroup")[len(joined) :]):
            one.poll(0.01)
            two.poll(0.01)
        assert kafka.group("g").state == "PreparingRebalance"
        kafka.advance(70_000)
        assert [member.client_id for member in kafka.group("g").members] == ["one"]
        one.poll(0.1)
        kafka.group("g").wait_stable(members=1)


def test_time_expires_offsets_of_an_empty_group(kafka: Kafka, join: Join) -> None:
    kafka.produce("orders", [{"value": "one", "partition": 0}])
    consumer = join()
    assert consumer.poll(60).value() == b"one"
    consumer.commit(asynchronous=False)
    consumer.close()
    group = kafka.group("g")
    group.wait_empty()
    kafka.advance(6 * 24 * 3_600_000)
    assert group.committed() == {("orders", 0): 1}
    kafka.advance(2 * 24 * 3_600_000)  # offsets.retention.minutes is seven days
    assert (group.committed(), group.state) == ({}, "Dead")


@pytest.mark.kafka(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
def test_a_long_time_passes_quickly_even_where_much_is_to_be_done(kafka: Kafka, join: Join) -> None:
    consumer = join()
    poll_until_stable(kafka, consumer)
    consumer.close()
    kafka.advance(365 * 24 * 3_600_000)
    assert kafka.group("g").state == "Dead"


def test_waiting_in_vain_tells_what_the_group_does(kafka: Kafka, join: Join) -> None:
    consumer = join(client_id="alone")
    poll_until_stable(kafka, consumer)
    with pytest.raises(TimeoutError) as failure:
        kafka.group("g").wait_stable(members=2, timeout=0.05)
    text = str(failure.value)
    assert "'g' is not Stable with 2 members: it is Stable with alone-" in text
    assert "generation 0 to 1: " in text
    with pytest.raises(TimeoutError, match="is not empty"):
        kafka.group("g").wait_empty(timeout=0.05)


def test_a_commit_that_fails_is_heard_of(kafka: Kafka, join: Join) -> None:
    kafka.produce("orders", ["one"])
    consumer = join()
    consumer.poll(60)
    fault = kafka.fail("OffsetCommit", with_error="GROUP_AUTHORIZATION_FAILED", group="g")
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        consumer.commit(asynchronous=False)
    assert fault.hits == 1
    assert kafka.committed("g", "orders") == {}


def test_a_group_of_the_new_protocol_is_a_group_like_any_other(kafka: Kafka) -> None:
    kafka.create_topic("orders", partitions=3)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "group.protocol": "consumer"}
    one, two = (OurConsumer(settings, client_id=name) for name in ("one", "two"))
    with one, two:
        for consumer in (one, two):
            consumer.subscribe(["orders"])
        poll_until_stable(kafka, one, two)
        group = kafka.group("g")
        assert (group.type, group.state, group.protocol, group.leader) == (
            "consumer",
            "Stable",
            "uniform",
            None,
        )
        assert [view.id for view in kafka.groups()] == ["g"]
        given = [partition for member in group.members for partition in member.assignment]
        assert sorted(given) == [TopicPartition("orders", n) for n in range(3)]
        before = group.generation
        kafka.kill_member("two")
        poll_until_stable(kafka, one, two)
        assert group.generation > before
        assert any("session expired" in rebalance.sentence() for rebalance in group.why())
    group.wait_empty(timeout=10)


def test_a_share_group_shows_its_members(kafka: Kafka) -> None:
    kafka.create_topic("jobs", partitions=1)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"}
    with ShareConsumer(settings, client_id="one") as one, ShareConsumer(settings, client_id="two") as two:
        for consumer in (one, two):
            consumer.subscribe(["jobs"])
        poll_until_stable(kafka, one, two)
        group = kafka.group("g")
        assert (group.type, group.state) == ("share", "Stable")
        assert {member.client_id for member in group.members} == {"one", "two"}
