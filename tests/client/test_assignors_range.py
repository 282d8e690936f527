"""range: each topic by itself, in ranges; co-partitioned topics alike; static members in their order; racks."""

from __future__ import annotations

from kohort.client.group.assignors import RangeAssignor, TopicPartitions
from tests.client.assignor_groups import parts, shown, wants


def divided(cluster: TopicPartitions, **members: object) -> dict[str, str]:
    return shown(RangeAssignor().assign(cluster, members))  # type: ignore[arg-type]


def test_each_topic_is_cut_into_ranges_and_the_first_members_get_one_more() -> None:
    cluster = TopicPartitions({"a": 3, "b": 3})
    assert divided(cluster, m1=wants("a", "b"), m2=wants("a", "b")) == {"m1": "a0 a1 b0 b1", "m2": "a2 b2"}


def test_more_members_than_partitions_leaves_the_last_without() -> None:
    assert divided(TopicPartitions({"a": 1}), m1=wants("a"), m2=wants("a")) == {"m1": "a0", "m2": ""}


def test_a_topic_goes_only_to_its_subscribers() -> None:
    cluster = TopicPartitions({"a": 3, "b": 2})
    assert divided(cluster, m1=wants("a"), m2=wants("a", "b")) == {"m1": "a0 a1", "m2": "a2 b0 b1"}


def test_topics_that_do_not_exist_are_left_out() -> None:
    assert divided(TopicPartitions({"a": 1, "e": 0}), m1=wants("a", "e", "nowhere")) == {"m1": "a0"}


def test_static_members_come_first_and_by_instance_id() -> None:
    members = {"z": wants("a", instance="1"), "b": wants("a"), "y": wants("a", instance="2"), "a": wants("a")}
    division = divided(TopicPartitions({"a": 4}), **members)
    assert division == {"z": "a0", "y": "a1", "a": "a2", "b": "a3"}


def test_a_static_member_gets_the_same_range_under_a_new_member_id() -> None:
    cluster = TopicPartitions({"a": 6})
    before = divided(cluster, m1=wants("a", instance="one"), m2=wants("a", instance="two"))
    after = divided(cluster, restarted=wants("a", instance="two"), m1=wants("a", instance="one"))
    assert after["restarted"] == before["m2"]


def test_partitions_go_to_members_in_the_rack_of_a_replica() -> None:
    racks = dict(zip(parts("a0 a1 a2"), map(frozenset, ("1", "2", "3")), strict=True))
    members = {"m1": wants("a", rack="3"), "m2": wants("a", rack="1"), "m3": wants("a", rack="2")}
    assert divided(TopicPartitions({"a": 3}, racks), **members) == {"m1": "a2", "m2": "a0", "m3": "a1"}


def test_equal_shares_weigh_more_than_racks() -> None:
    racks = dict.fromkeys(parts("a0 a1 a2"), frozenset("1")) | dict.fromkeys(parts("a3"), frozenset("2"))
    division = divided(TopicPartitions({"a": 4}, racks), m1=wants("a", rack="2"), m2=wants("a", rack="1"))
    assert division == {"m1": "a2 a3", "m2": "a0 a1"}


def test_racks_count_for_nothing_where_all_partitions_are_in_the_same_ones() -> None:
    racks = dict.fromkeys(parts("a0 a1"), frozenset("12"))
    division = divided(TopicPartitions({"a": 2}, racks), m1=wants("a", rack="2"), m2=wants("a", rack="1"))
    assert division == {"m1": "a0", "m2": "a1"}


def test_co_partitioned_topics_stay_together_also_with_racks() -> None:
    near = [frozenset("1"), frozenset("2"), frozenset("1"), frozenset("2")]
    racks = dict(zip(parts("a0 a1 a2 a3 b0 b1 b2 b3"), near * 2, strict=True))
    both = {"m1": wants("a", "b", rack="2"), "m2": wants("a", "b", rack="1")}
    division = divided(TopicPartitions({"a": 4, "b": 4}, racks), **both)
    assert division == {"m1": "a1 a3 b1 b3", "m2": "a0 a2 b0 b2"}


def test_co_partitioned_topics_without_a_common_rack_stay_together_too() -> None:
    racks = dict(zip(parts("a0 a1 b0 b1"), map(frozenset, ("1", "2", "2", "1")), strict=True))
    both = {"m1": wants("a", "b", rack="2"), "m2": wants("a", "b", rack="1")}
    division = divided(TopicPartitions({"a": 2, "b": 2}, racks), **both)
    assert division == {"m1": "a0 b0", "m2": "a1 b1"}
