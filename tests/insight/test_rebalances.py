"""The rebalances of a group: from Kohort's history, and from the records that any Kafka keeps of a group."""

from __future__ import annotations

import time

import pytest

from kohort import Admin, ErrorCode, KafkaError
from kohort.coordinator.history import Rebalance
from kohort.insight import offsets_log, rebalances
from kohort.insight.offsets_log import LogReading
from kohort.insight.rebalances import RebalanceFeed, rebalances_of
from kohort.testing import Kafka
from kohort.wire.compiler.compile import data_codec
from kohort.wire.consumer_protocol import encode_subscription
from kohort.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from kohort.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kohort.wire.messages.group_metadata_key import GroupMetadataKey
from kohort.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from tests.client.scripted import ScriptedCluster
from tests.clients.process import eventually
from tests.insight.groups import member, poll_all, settle


@pytest.fixture
def lively(kafka: Kafka) -> Kafka:
    """A group that one member founded, a second joined, and the first left."""
    kafka.create_topic("t", partitions=4)
    first = member(kafka.bootstrap_servers, "g", "t", client_id="first")
    settle(first, partitions=4)
    second = member(kafka.bootstrap_servers, "g", "t", client_id="second")
    settle(first, second, partitions=4)
    first.close()
    settle(second, partitions=4)
    second.close()
    return kafka


def settings(kafka: Kafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers}


def test_kohort_tells_reasons_and_times(lively: Kafka) -> None:
    with Admin(settings(lively)) as admin:
        # The history is written a moment later.
        eventually(lambda: len(rebalances_of(admin, settings(lively), "g").rebalances) == 4, "all are told")
        eventually(
            lambda: rebalances_of(admin, settings(lively), "g").rebalances[-1].outcome == "Empty", "it ended"
        )
        found = rebalances_of(admin, settings(lively), "g")
    assert (found.source, found.unknown) == ("kohort", ())
    assert [each.size for each in found.rebalances] == [1, 2, 1, 0]
    assert "joined" in found.rebalances[1].reason
    assert found.rebalances[1].join_ms is not None
    assert all(each.began_ms > 0 for each in found.rebalances)


def test_the_records_of_a_group_tell_who_came_and_went(lively: Kafka) -> None:
    """Kohort writes the same records as Apache Kafka."""
    with Admin(settings(lively)) as admin:
        found = rebalances._from_offsets_log(admin, settings(lively), "g")
    assert found.source == "__consumer_offsets"
    assert [(each.generation_after, each.size, each.outcome) for each in found.rebalances] == [
        (1, 1, "Stable"),
        (2, 2, "Stable"),
        (3, 1, "Stable"),
        (4, 0, "Empty"),
    ]
    born, joined, left, empty = found.rebalances
    assert born.reason == "1 member came: first at 127.0.0.1"
    assert joined.reason == "1 member came: second at 127.0.0.1"
    assert joined.came[0].startswith("second-")
    assert left.reason == "1 member went: first at 127.0.0.1"
    assert left.went[0][0].startswith("first-")
    assert left.moved == joined.came
    assert empty.reason == "the last member went"
    assert {each.join_ms for each in found.rebalances} == {None}
    assert any(sentence.startswith("Why a member went") for sentence in found.unknown)
    assert abs(born.began_ms - time.time() * 1000) < 600_000


def test_a_reader_goes_further_back_until_it_has_enough(
    lively: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_log, "FIRST_RECORDS", 1)
    monkeypatch.setattr(offsets_log, "FURTHER", 2)
    with Admin(settings(lively)) as admin:
        found = rebalances._from_offsets_log(admin, settings(lively), "g")
        assert len(found.rebalances) == 4
        monkeypatch.setattr(offsets_log, "ENOUGH", 2)
        found = rebalances._from_offsets_log(admin, settings(lively), "g")
    assert [each.generation_after for each in found.rebalances] == [3, 4]
    assert any("only the end of the partition was read" in sentence for sentence in found.unknown)
    assert any("compaction" in sentence for sentence in found.unknown)


def test_a_group_that_does_not_exist_is_named(kafka: Kafka) -> None:
    kafka.create_topic("t")
    with Admin(settings(kafka)) as admin:
        admin.alter_group_offsets("other", {("t", 0): 0})
        with pytest.raises(KafkaError, match="there is no group nobody") as refused:
            rebalances_of(admin, settings(kafka), "nobody")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_client_that_may_not_read_the_topic_is_told_what_it_needs() -> None:
    with ScriptedCluster(1) as cluster:
        cluster.errors["__consumer_offsets"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        own = {"bootstrap.servers": cluster.bootstrap_servers}
        with Admin(own) as admin, pytest.raises(KafkaError, match="DESCRIBE and READ for that topic"):
            rebalances._from_offsets_log(admin, own, "g")


@pytest.mark.parametrize("group_id", ["g", None])
def test_a_feed_tells_of_rebalances_as_they_happen(kafka: Kafka, group_id: str | None) -> None:
    kafka.create_topic("t", partitions=2)
    with Admin(settings(kafka)) as admin:
        admin.alter_group_offsets("g", {("t", 0): 0})  # makes the topics of the coordinator
        with RebalanceFeed(admin, settings(kafka), group_id) as feed:
            assert feed.source == "kohort"
            told: list[tuple[str, Rebalance]] = []

            def is_stable() -> bool:
                told.extend(feed.poll(0.05))
                return any(each.outcome == "Stable" for _, each in told)

            with member(kafka.bootstrap_servers, "g", "t") as consumer:
                poll_all(consumer, until=is_stable)
    assert {name for name, _ in told} == {"g"}
    assert told[-1][1].size == 1


# --- what records tell ----------------------------------------------------------------------------------


def record(generation: int, *members: MemberMetadata, protocol: str = "range") -> tuple[bytes, bytes]:
    key = data_codec("group_metadata_key", 0).encode(GroupMetadataKey("g"))
    value = GroupMetadataValue("consumer", generation, protocol, "leader", 0, members)
    return key, data_codec("group_metadata_value", 3).encode(value)


def one(name: str, client_id: str = "c", *, instance: str | None = None, topic: str = "t") -> MemberMetadata:
    subscription = encode_subscription(ConsumerProtocolSubscription((topic,)), 0)
    return MemberMetadata(name, instance, client_id, "/10.0.0.1", 60_000, 45_000, subscription, name.encode())


def reasons(*records: tuple[bytes, bytes | None]) -> list[str]:
    reading = LogReading("g")
    for number, (key, value) in enumerate(records):
        reading.take(key, value, 1000 * number)
    assert [each.number for each in reading.rebalances] == list(range(len(reading.rebalances)))
    return [each.reason for each in reading.rebalances]


def test_a_member_that_restarts_is_recognised_by_client_id_and_host() -> None:
    first, second = reasons(
        record(1, one("a-1", "a"), one("b-1", "b")), record(2, one("a-2", "a"), one("b-1", "b"))
    )
    assert first == "the first generation on record, with 2 members"
    assert second.startswith("a at 10.0.0.1 came anew in place of 1 member of the same client.id and host")


def test_a_static_member_that_comes_back_is_no_new_member() -> None:
    told = reasons(record(1, one("a-1", instance="i")), record(1, one("a-2", instance="i")))
    assert told[1] == "i at 10.0.0.1 came back as a static member without a rebalance"


def test_a_gap_in_the_generations_is_told() -> None:
    told = reasons(record(4, one("a")), record(8, one("a")))
    assert told[1].endswith("3 generations before this one got no assignment: they were interrupted")


def test_a_change_of_assignor_and_of_subscription_is_told() -> None:
    told = reasons(
        record(1, one("a")),
        record(2, one("a", topic="other")),
        record(3, one("a", topic="other"), protocol="cooperative-sticky"),
        record(4, one("a", topic="other"), protocol="cooperative-sticky"),
    )
    assert told[1] == "c at 10.0.0.1 changed the subscription"
    assert told[2] == "the assignor changed from range to cooperative-sticky"
    assert told[3].startswith("the same members joined again")


def test_a_deleted_group_is_told_and_what_is_of_others_is_not() -> None:
    key, value = record(1, one("a"))
    other = data_codec("group_metadata_key", 0).encode(GroupMetadataKey("h"))
    assert reasons((other, value), (b"\x00\x01junk", b""), (key, value), (key, None))[1:] == [
        "the group was deleted, or it expired"
    ]


def test_records_that_cannot_be_read_are_counted() -> None:
    key, value = record(1, one("a"))
    reading = LogReading("g")
    reading.take(key, b"\x00\x63" + value, 0)
    reading.take(key[:3], value, 0)
    assert (reading.unreadable, reading.rebalances) == (2, [])


# --- consumer groups (KIP-848) --------------------------------------------------------------------------


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def test_the_epochs_of_a_consumer_group_are_rebalances() -> None:
    def member_record(name: str) -> tuple[bytes, bytes]:
        member = ConsumerGroupMemberMetadataValue(None, None, "c", "/10.0.0.1", classic_member_metadata=None)
        value = data_codec("consumer_group_member_metadata_value", 0).encode(member)
        return b"\x00\x05" + text("g") + text(name), value

    def epoch(number: int) -> tuple[bytes, bytes]:
        return b"\x00\x03" + text("g"), b"\x00\x00" + number.to_bytes(4, "big") + b"\x00"

    def target(name: str) -> tuple[bytes, bytes]:
        return b"\x00\x07" + text("g") + text(name), b"\x00\x00\x01\x00"

    reading = LogReading("g")
    gone = (member_record("m1")[0], None)
    story = [member_record("m1"), epoch(1), target("m1"), member_record("m2"), epoch(2), target("m1"), target("m2"),
             gone, epoch(3), target("m2"), epoch(4)]  # fmt: skip
    for key, value in story:
        reading.take(key, value, 5)
    assert [(each.generation_before, each.generation_after, each.size) for each in reading.rebalances] == [
        (0, 1, 1), (1, 2, 2), (2, 3, 1), (3, 4, 1),
    ]  # fmt: skip
    assert reading.rebalances[1].came == ("m2",)
    assert reading.rebalances[1].moved == ("m1", "m2")
    assert reading.rebalances[2].reason == "1 member went: c at /10.0.0.1"
    assert reading.rebalances[3].reason.startswith("nobody came and nobody went")
