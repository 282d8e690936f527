"""The bytes of subscriptions and assignments, versions 0 to 3, as any Kafka client reads and writes them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.group.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kohort.client.types import TopicPartition
from kohort.wire.consumer_protocol import BadConsumerProtocol
from kohort.wire.errors import BadFrame

TOPICS = "00000002 0001 61 0002 6262 "  # a, bb
USER_DATA = "00000002 7564 "
OWNED = "00000002 0001 61 00000002 00000000 00000003 0002 6262 00000001 00000001 "
WHOLE = Subscription(
    ("a", "bb"),
    b"ud",
    (TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("bb", 1)),
    generation_id=5,
    rack_id="r",
)
BYTES = [
    bytes.fromhex("0000" + TOPICS + USER_DATA),
    bytes.fromhex("0001" + TOPICS + USER_DATA + OWNED),
    bytes.fromhex("0002" + TOPICS + USER_DATA + OWNED + "00000005"),
    bytes.fromhex("0003" + TOPICS + USER_DATA + OWNED + "00000005 0001 72"),
]


def as_of(version: int) -> Subscription:
    """WHOLE, as far as a version can say it."""
    return Subscription(
        WHOLE.topics,
        WHOLE.user_data,
        WHOLE.owned_partitions if version >= 1 else (),
        WHOLE.generation_id if version >= 2 else -1,
        WHOLE.rack_id if version >= 3 else None,
    )


@pytest.mark.parametrize("version", range(4))
def test_each_version_of_a_subscription(version: int) -> None:
    assert encode_subscription(WHOLE, version) == BYTES[version]
    assert decode_subscription(BYTES[version]) == as_of(version)


@pytest.mark.parametrize("version", range(4))
def test_an_assignment_is_the_same_in_every_version(version: int) -> None:
    data = version.to_bytes(2, "big") + bytes.fromhex(OWNED + USER_DATA)
    assignment = Assignment(WHOLE.owned_partitions, b"ud")
    assert encode_assignment(assignment, version) == data
    assert decode_assignment(data) == assignment


def test_topics_and_owned_partitions_are_written_in_order() -> None:
    mixed = Subscription(("bb", "a"), b"ud", WHOLE.owned_partitions[::-1], 5, "r")
    assert encode_subscription(mixed, 3) == BYTES[3]


def test_an_assignment_keeps_topics_as_they_come() -> None:
    partitions = tuple(TopicPartition(topic, p) for topic, p in [("b", 1), ("a", 2), ("b", 0)])
    read = decode_assignment(encode_assignment(Assignment(partitions))).partitions
    assert read == (TopicPartition("b", 1), TopicPartition("b", 0), TopicPartition("a", 2))


def test_a_newer_version_is_read_as_the_highest_known_one_and_its_new_fields_left_alone() -> None:
    assert decode_subscription(b"\x00\x04" + BYTES[3][2:] + b"new fields") == WHOLE
    newer = b"\x7f\xff" + encode_assignment(Assignment(WHOLE.owned_partitions))[2:] + b"\x01"
    assert decode_assignment(newer) == Assignment(WHOLE.owned_partitions)


def test_a_newer_version_is_written_as_the_highest_known_one() -> None:
    assert encode_subscription(WHOLE, 9) == BYTES[3]
    assert encode_assignment(Assignment(), 9) == encode_assignment(Assignment(), 3)


def test_no_user_data_is_not_the_same_as_empty() -> None:
    for user_data in (None, b""):
        subscription = Subscription(("a",), user_data)
        assert decode_subscription(encode_subscription(subscription, 3)).user_data == user_data
        assert decode_assignment(encode_assignment(Assignment((), user_data))).user_data == user_data


def test_an_empty_rack_is_no_rack_and_a_negative_generation_none() -> None:
    data = bytes.fromhex("0003 00000000 ffffffff 00000000 80000000 0000")
    assert decode_subscription(data) == Subscription(())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a subscription of Kafka's consumer protocol: it has only 0 bytes"),
        (b"\xff\xff", "version -1 of a subscription does not exist"),
        (
            bytes.fromhex("0000 00000001 0005 61"),
            "topics is longer than the ConsumerProtocolSubscription (9 bytes)",
        ),
        (bytes.fromhex("0000 00000001 ffff ffffffff"), "topics is null"),
        (bytes.fromhex("0000 00000001 0001 ff ffffffff"), "a string is not UTF-8"),
        (bytes.fromhex("0000 ffffffff ffffffff"), "topics is null"),
        (bytes.fromhex("0000 fffffffe ffffffff"), "topics has a negative length"),
        (bytes.fromhex("0000 7fffffff ffffffff"), "topics has more elements than bytes"),
        (
            bytes.fromhex("0000 00000000 00000009 61"),
            "user_data is longer than the ConsumerProtocolSubscription",
        ),
        (
            bytes.fromhex("0001 00000000 ffffffff"),
            "the ConsumerProtocolSubscription ends too early (10 bytes)",
        ),
        (
            bytes.fromhex("0001 00000000 ffffffff 00000001 0001 61 00000009 00000001"),
            "partitions has more elements than bytes",
        ),
    ],
)
def test_what_is_no_subscription_is_refused_with_the_field(data: bytes, why: str) -> None:
    with pytest.raises(BadConsumerProtocol) as refused:
        decode_subscription(data)
    assert why in str(refused.value)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, BadFrame)


@pytest.mark.parametrize(
    "subscription",
    [
        Subscription(("x" * 40_000,)),
        Subscription((), owned_partitions=(TopicPartition("a", 2**31),)),
        Subscription((), generation_id=2**31),
    ],
    ids=["topic", "partition", "generation"],
)
def test_what_does_not_fit_is_refused(subscription: Subscription) -> None:
    with pytest.raises(BadConsumerProtocol, match=r"more than 32767|does not fit 32 bits"):
        encode_subscription(subscription, 3)
    with pytest.raises(BadConsumerProtocol, match="version -1 of an assignment does not exist"):
        encode_assignment(Assignment(), -1)


@given(data=st.binary(max_size=80), version=st.integers(0, 4))
def test_garbage_is_read_or_refused_but_never_worse(data: bytes, version: int) -> None:
    for decode in (decode_subscription, decode_assignment):
        with suppress(BadConsumerProtocol):
            decode(version.to_bytes(2, "big") + data)


@given(cut=st.integers(0, len(BYTES[3]) - 1))
def test_a_subscription_that_was_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(BadConsumerProtocol):
        decode_subscription(BYTES[3][:cut])


NAMES = st.text(min_size=1, max_size=8)
PARTITIONS = st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), unique=True)


@given(
    subscription=st.builds(
        Subscription,
        st.lists(NAMES, unique=True).map(lambda names: tuple(sorted(names))),
        st.none() | st.binary(),
        PARTITIONS.map(lambda partitions: tuple(sorted(partitions))),
        st.integers(-1, 2**31 - 1),
        st.none() | NAMES,
    )
)
def test_a_subscription_comes_back_as_it_was(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription, 3)) == subscription
