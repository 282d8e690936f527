"""sticky and cooperative-sticky: even, and moving as little as possible."""

from __future__ import annotations

import struct
from dataclasses import replace
from time import process_time

import pytest

from kohort.client.group.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    StickyAssignor,
    Subscription,
    TopicPartitions,
)
from kohort.client.group.assignors.claims import Claim
from kohort.client.group.assignors.sticky import claim_in_user_data, encode_claim
from tests.client.assignor_groups import Group, parts, shown, wants


def claims(topics: str, owned: str, generation_id: int = 3) -> Subscription:
    """A member of a sticky group with what it had."""
    return Subscription(
        tuple(topics), encode_claim(Claim(parts(owned), generation_id)), generation_id=generation_id
    )


def owns(topics: str, owned: str, generation_id: int = 3, rack: str | None = None) -> Subscription:
    """A member of a cooperative group with what it has."""
    return Subscription(tuple(topics), None, parts(owned), generation_id, rack)


def sticky(counts: dict[str, int], **members: Subscription) -> dict[str, str]:
    return shown(StickyAssignor().assign(TopicPartitions(counts), members))


def cooperative(counts: dict[str, int], **members: Subscription) -> dict[str, str]:
    return shown(CooperativeStickyAssignor().assign(TopicPartitions(counts), members))


def test_a_new_group_is_divided_evenly() -> None:
    all_of = wants("a", "b", "c", "d")
    division = sticky(dict.fromkeys("abcd", 2), m1=all_of, m2=all_of, m3=all_of)
    assert division == {"m1": "a0 b1 d0", "m2": "a1 c0 d1", "m3": "b0 c1"}


def test_what_a_member_leaves_is_divided_and_the_others_keep_what_they_have() -> None:
    division = sticky(dict.fromkeys("abcd", 2), m1=claims("abcd", "a0 b1 d0"), m3=claims("abcd", "b0 c1"))
    assert division == {"m1": "a0 a1 b1 d0", "m3": "b0 c0 c1 d1"}


def test_a_new_member_gets_its_share_and_nobody_else_gets_anything_new() -> None:
    division = sticky({"a": 6}, m1=claims("a", "a0 a1 a2"), m2=claims("a", "a3 a4 a5"), m3=wants("a"))
    assert division == {"m1": "a0 a1", "m2": "a3 a4", "m3": "a2 a5"}


def test_with_different_subscriptions_it_is_as_even_as_they_allow() -> None:
    members = {"m1": wants("a"), "m2": wants("a", "b"), "m3": wants("a", "b", "c")}
    division = sticky({"a": 1, "b": 2, "c": 3}, **members)
    assert division == {"m1": "a0", "m2": "b0 b1", "m3": "c0 c1 c2"}


def test_with_different_subscriptions_survivors_keep_what_they_have_too() -> None:
    division = sticky({"a": 1, "b": 2, "c": 3}, m2=claims("ab", "b0 b1"), m3=claims("abc", "c0 c1 c2"))
    assert division == {"m2": "a0 b0 b1", "m3": "c0 c1 c2"}


def test_a_member_that_subscribes_to_nothing_gets_nothing() -> None:
    assert sticky({"a": 3}, m1=wants(), m2=wants("a")) == {"m1": "", "m2": "a0 a1 a2"}


def test_partitions_that_are_gone_are_forgotten() -> None:
    division = sticky({"a": 2}, m1=claims("a", "a0 a7 b0"), m2=claims("a", "a-1"))
    assert division == {"m1": "a0", "m2": "a1"}


def test_the_newer_of_two_claims_counts() -> None:
    division = sticky({"a": 2}, m1=claims("a", "a0 a1", 2), m2=claims("a", "a1", 3))
    assert division == {"m1": "a0", "m2": "a1"}
    assert sticky({"a": 2}, m1=claims("a", "a1", 3), m2=claims("a", "a0 a1", 2)) == {"m1": "a1", "m2": "a0"}


def test_an_older_owner_gets_a_partition_back_only_if_it_still_wants_it() -> None:
    """Kafka's own gives it to a member that does not subscribe to the topic."""
    counts = {"a": 4, "b": 1}
    division = sticky(counts, m1=claims("b", "a0", 2), m2=claims("a", "a0 a1 a2 a3"), m3=wants("a"))
    assert division == {"m1": "b0", "m2": "a2 a3", "m3": "a0 a1"}


@pytest.mark.parametrize(
    "junk", [b"\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00\x09x"]
)
def test_user_data_that_cannot_be_read_makes_a_new_member(junk: bytes) -> None:
    assert claim_in_user_data(Subscription(("a",), junk)) == Claim(())


def test_user_data_of_version_0_has_no_generation() -> None:
    data = encode_claim(Claim(parts("a0 a1 b4"), 8))
    assert claim_in_user_data(Subscription((), data)) == Claim(parts("a0 a1 b4"), 8)
    assert claim_in_user_data(Subscription((), data[:-4])) == Claim(parts("a0 a1 b4"), -1)


def test_sticky_members_tell_what_they_got_last() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(frozenset("a")) is None
    assignor.on_assignment(Assignment(parts("a1 a2")), 6)
    data = assignor.subscription_user_data(frozenset("a"))
    assert claim_in_user_data(Subscription(("a",), data)) == Claim(parts("a1 a2"), 6)


def test_cooperative_members_tell_their_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription_user_data(frozenset()) == struct.pack(">i", -1)
    assignor.on_assignment(Assignment(parts("a1")), 6)
    assert assignor.subscription_user_data(frozenset()) == struct.pack(">i", 6)


def test_a_partition_that_changes_hands_is_withheld_for_a_round() -> None:
    first = cooperative({"a": 4}, m1=owns("a", "a0 a1 a2 a3"), m2=wants("a"))
    assert first == {"m1": "a0 a1", "m2": ""}
    second = cooperative({"a": 4}, m1=owns("a", "a0 a1", 4), m2=owns("a", "", 4))
    assert second == {"m1": "a0 a1", "m2": "a2 a3"}


def test_with_different_subscriptions_it_is_withheld_too() -> None:
    members = {"m1": owns("ab", "a0 a1 a2 a3 b0"), "m2": wants("a")}
    assert cooperative({"a": 4, "b": 1}, **members) == {"m1": "a2 a3 b0", "m2": ""}


def test_what_nobody_owned_is_given_at_once() -> None:
    division = cooperative({"a": 4}, m1=owns("a", "a0 a1"), m2=wants("a"))
    assert division == {"m1": "a0 a1", "m2": "a2 a3"}


def test_what_two_members_claim_in_one_generation_is_withheld_from_both() -> None:
    division = cooperative({"a": 3}, m1=owns("a", "a0 a1"), m2=owns("a", "a1 a2"))
    assert division == {"m1": "a0", "m2": "a2"}


def test_the_generation_of_an_old_subscription_is_in_its_user_data() -> None:
    def version_1(owned: str, generation_id: int) -> Subscription:
        return replace(owns("a", owned, -1), user_data=struct.pack(">i", generation_id))

    assert cooperative({"a": 2}, m1=owns("a", "a0", 3), m2=version_1("a0 a1", 2))["m1"] == "a0"
    assert cooperative({"a": 2}, m1=owns("a", "a0", 3), m2=version_1("a0", 4)) == {"m1": "a1", "m2": "a0"}
    unreadable = replace(owns("a", "a0", -1), user_data=b"?")
    assert cooperative({"a": 2}, m1=owns("a", "a0", 3), m2=unreadable) == {"m1": "a0", "m2": "a1"}


def test_racks_weigh_more_than_stickiness_and_less_than_equal_shares() -> None:
    racks = dict(zip(parts("a0 a1 a2 a3"), map(frozenset, "1221"), strict=True))
    members = {"m1": owns("a", "a1", rack="1"), "m2": owns("a", "a0 a2 a3", rack="2")}
    other = {"m3": wants("b", rack="1")}  # makes subscriptions different, which is divided in another way
    for group in (members, members | other):
        division = shown(CooperativeStickyAssignor().assign(TopicPartitions({"a": 4, "b": 1}, racks), group))
        assert (division["m1"], division["m2"]) == ("", "a2")  # the others change hands
        free = {member_id: replace(one, owned_partitions=()) for member_id, one in group.items()}
        division = shown(CooperativeStickyAssignor().assign(TopicPartitions({"a": 4, "b": 1}, racks), free))
        assert (division["m1"], division["m2"]) == ("a0 a3", "a1 a2")


def test_nobody_to_divide_among() -> None:
    assert sticky({"a": 1}) == {}
    assert cooperative({"a": 1}) == {}


@pytest.mark.parametrize("share_of_topics", [100, 2], ids=["all the same topics", "two topics each"])
def test_a_thousand_members_and_ten_thousand_partitions_take_no_more_than_seconds(
    share_of_topics: int,
) -> None:
    topics = [f"topic-{number:02}" for number in range(100)]
    members = {
        f"member-{number}": wants(*sorted((topics[number % 100 :] + topics)[:share_of_topics]))
        for number in range(1000)
    }
    group = Group(TopicPartitions(dict.fromkeys(topics, 100)), members)
    started = process_time()
    division = CooperativeStickyAssignor().assign(*group)
    again = group.owning({member_id: one.partitions for member_id, one in division.items()})
    for member_id in list(members)[:100]:
        del again.members[member_id]
    after = CooperativeStickyAssignor().assign(*again)
    assert process_time() - started < 5
    assert {len(one.partitions) for one in division.values()} <= {9, 10, 11}
    assert sum(len(one.partitions) for one in after.values()) == 10_000
