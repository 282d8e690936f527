"""roundrobin: all partitions of all topics, dealt in turn."""

from __future__ import annotations

from kohort.client.group.assignors import RoundRobinAssignor, Subscription, TopicPartitions
from tests.client.assignor_groups import shown, wants


def divided(counts: dict[str, int], members: dict[str, Subscription]) -> dict[str, str]:
    return shown(RoundRobinAssignor().assign(TopicPartitions(counts), members))


def test_partitions_are_dealt_over_topics() -> None:
    members = {"m1": wants("a", "b"), "m2": wants("b", "a")}
    assert divided({"a": 3, "b": 3}, members) == {"m1": "a0 a2 b1", "m2": "a1 b0 b2"}


def test_who_does_not_subscribe_is_passed_over() -> None:
    members = {"m1": wants("a"), "m2": wants("a", "b"), "m3": wants("a", "b", "c")}
    division = divided({"a": 1, "b": 2, "c": 3}, members)
    assert division == {"m1": "a0", "m2": "b0", "m3": "b1 c0 c1 c2"}


def test_static_members_come_first_and_by_instance_id() -> None:
    members = {"a": wants("a"), "z": wants("a", instance="1"), "y": wants("a", instance="2")}
    assert divided({"a": 3}, members) == {"z": "a0", "y": "a1", "a": "a2"}


def test_nobody_and_nothing() -> None:
    assert divided({"a": 3}, {}) == {}
    assert divided({}, {"m1": wants("a"), "m2": wants()}) == {"m1": "", "m2": ""}
