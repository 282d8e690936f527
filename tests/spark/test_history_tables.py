"""What `group-history` makes of records, without Spark: against the coordinator's own codec, and on bad bytes."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from kohort.client.group.consumer_protocol import Assignment, encode_assignment
from kohort.client.types import TopicPartition
from kohort.coordinator import records
from kohort.spark.history.tables import (
    BAD,
    COMMIT,
    COMMIT_DELETED,
    GENERATION,
    GROUP_DELETED,
    UNKNOWN,
    Generation,
    GroupMember,
    LagRow,
    as_fields,
    commits_by_partition,
    decode_event,
    lag_rows,
    ownerships,
    rebalances,
    sample_times,
)
from kohort.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

names = st.text(max_size=20)
times = st.integers(0, 1 << 50)
owned = st.lists(
    st.tuples(names, st.integers(0, 99)).map(lambda p: TopicPartition(*p)), unique=True, max_size=4
)


def assignment(*partitions: TopicPartition) -> bytes:
    return encode_assignment(Assignment(tuple(partitions)))


# --- records --------------------------------------------------------------------------------------------


@given(
    names, names, st.integers(0, 1 << 30), st.integers(0, 1 << 60), st.integers(-1, 99), names, times, times
)
def test_a_commit_is_read_as_the_coordinator_wrote_it(
    group_id: str,
    topic: str,
    partition: int,
    offset: int,
    epoch: int,
    metadata: str,
    at_ms: int,
    expires_ms: int,
) -> None:
    for expires in (-1, expires_ms):
        committed = records.CommittedOffset(offset, epoch if expires == -1 else -1, metadata, at_ms, expires)
        event = decode_event(*records.offset_record(group_id, topic, partition, committed))
        assert (event.kind, event.group_id, event.topic, event.partition) == (
            COMMIT,
            group_id,
            topic,
            partition,
        )
        assert (event.committed_offset, event.metadata, event.committed_ms) == (offset, metadata, at_ms)
        assert event.leader_epoch == (epoch if epoch >= 0 and expires == -1 else None)
        assert event.expires_ms == (None if expires == -1 else expires)


@given(names, st.lists(st.tuples(names, st.none() | names, owned), max_size=3), st.integers(0, 99), times)
def test_a_generation_is_read_as_the_coordinator_wrote_it(
    group_id: str, members: list[tuple[str, str | None, list[TopicPartition]]], generation: int, since_ms: int
) -> None:
    written = tuple(
        MemberMetadata(
            name, instance, "client", "/127.0.0.1", 300_000, 45_000, b"subscription", assignment(*own)
        )
        for name, instance, own in members
    )
    group = GroupMetadataValue("consumer", generation, "range", "leader", since_ms, written)
    event = decode_event(*records.group_record(group_id, group))
    assert (event.kind, event.group_id, event.generation) == (GENERATION, group_id, generation)
    assert (event.protocol, event.leader, event.state_since_ms) == ("range", "leader", since_ms)
    assert event.members is not None
    assert [(m.member_id, m.group_instance_id, sorted(m.assigned)) for m in event.members] == [
        (name, instance, sorted(own)) for name, instance, own in members
    ]


def test_old_and_flexible_value_versions_are_read_as_the_coordinator_reads_them() -> None:
    key = records.offset_key("g", "t", 3)
    values = [
        struct.pack(">hqh2sq", 0, 7, 2, b"me", 99),
        struct.pack(">hqh2sqq", 1, 7, 2, b"me", 99, 1000),
        struct.pack(">hqh2sq", 2, 7, 2, b"me", 99),
        struct.pack(">hqih2sq", 3, 7, 5, 2, b"me", 99),
        struct.pack(">hqib2sqb", 4, 7, 5, 3, b"me", 99, 0),
    ]
    for value in values:
        event, known = decode_event(key, value), records.decode_offset(value)
        assert event.kind == COMMIT
        assert (
            (event.committed_offset, event.metadata, event.committed_ms)
            == known[0:1] + known[2:4]
            == (7, "me", 99)
        )
        assert (event.leader_epoch if event.leader_epoch is not None else -1) == known.leader_epoch
        assert (event.expires_ms or -1) == known.expire_timestamp_ms


def test_tombstones_end_commits_and_groups() -> None:
    assert decode_event(*records.offset_tombstone("g", "t", 1)).kind == COMMIT_DELETED
    gone = decode_event(*records.group_tombstone("g"))
    assert (gone.kind, gone.group_id, gone.members) == (GROUP_DELETED, "g", ())


def test_records_of_other_kinds_of_groups_are_unknown_with_their_name() -> None:
    event = decode_event(struct.pack(">hh1s", 3, 1, b"g"), b"\0\0whatever")
    assert (event.kind, event.group_id, event.key_version) == (UNKNOWN, "g", 3)
    assert event.problem is not None
    assert "KIP-848" in event.problem
    assert decode_event(struct.pack(">h", 99), b"").problem == "key version 99 is not known"


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=80))
def test_no_bytes_are_fatal(key: bytes | None, value: bytes | None) -> None:
    event = decode_event(key, value)
    assert event.problem or event.kind not in (BAD, UNKNOWN)


@given(st.integers(0, 200), st.binary(max_size=3))
def test_a_damaged_group_record_is_bad_or_read_but_never_fatal(at: int, damage: bytes) -> None:
    member = MemberMetadata(
        "m", None, "c", "h", 1, 1, b"", assignment(TopicPartition("t", 0), TopicPartition("t", 1))
    )
    key, value = records.group_record("g", GroupMetadataValue("consumer", 1, "range", "m", 5, (member,)))
    assert value is not None
    assert decode_event(key, value[:at] + damage + value[at + len(damage) :]).kind in (GENERATION, BAD)
    assert decode_event(key, value[: min(at, len(value) - 1)]).kind == BAD


def test_an_event_becomes_plain_fields() -> None:
    member = MemberMetadata("m", None, "c", "h", 1, 2, b"", assignment(TopicPartition("t", 4)))
    group = GroupMetadataValue("consumer", 1, "range", "m", 5, (member,))
    fields = as_fields(decode_event(*records.group_record("g", group)))
    assert fields["members"][0]["assigned"] == [{"topic": "t", "partition": 4}]
    assert fields["generation"] == 1


# --- what follows from them -----------------------------------------------------------------------------

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def member(member_id: str, *assigned: TopicPartition) -> GroupMember:
    return GroupMember(member_id, None, "client", "host", 1, 1, assigned)


ONE = Generation(1_000, 1, "range", "one", 990, (member("one", A, B),))
TWO = Generation(2_000, 2, "range", "one", 1_950, (member("one", A), member("two", B)))
TWO_AGAIN = Generation(2_500, 2, "range", "one", 1_950, (member("one", A), member("two", B)))
EMPTY = Generation(3_000, 3, None, None, 3_000, ())
DELETED = Generation(4_000, None)


def test_who_owned_what_when() -> None:
    told = [
        (
            own.member.member_id,
            own.partition,
            own.from_ms,
            own.until_ms,
            own.first_generation,
            own.last_generation,
        )
        for own in ownerships([ONE, TWO, TWO_AGAIN, EMPTY, DELETED])
    ]
    assert told == [
        ("one", A, 1_000, 3_000, 1, 2),
        ("one", B, 1_000, 2_000, 1, 1),
        ("two", B, 2_000, 3_000, 2, 2),
    ]


def test_what_is_still_owned_has_no_end_and_a_member_without_partitions_is_told_too() -> None:
    (own, idle) = ownerships([Generation(1_000, 1, members=(member("busy", A), member("idle")))])[::-1]
    assert (own.partition, own.until_ms) == (A, None)
    assert (idle.member.member_id, idle.partition, idle.until_ms) == ("idle", None, None)


def test_a_rebalance_is_a_new_generation_with_what_it_changed() -> None:
    first, second, third = rebalances([ONE, TWO, TWO_AGAIN, EMPTY, DELETED])
    assert (first.generation_before, first.generation, first.sync_ms, first.came) == (None, 1, 10, ("one",))
    assert first.moved == (A, B)
    assert (second.generation_before, second.generation, second.completed_ms) == (1, 2, 2_000)
    assert (second.sync_ms, second.came, second.went, second.moved) == (50, ("two",), (), (B,))
    assert (third.generation, third.sync_ms, third.members, third.went) == (3, None, 0, ("one", "two"))


def test_a_group_that_is_just_made_has_not_rebalanced() -> None:
    made = Generation(500, 0, None, None, 500, ())
    assert [each.generation for each in rebalances([made, ONE, DELETED, made, ONE])] == [1, 1]


def test_lag_is_the_end_of_the_log_then_less_what_was_committed_then() -> None:
    commits = commits_by_partition(
        [
            ("g", "t", 0, 1_000, 10),
            ("g", "t", 0, 2_000, 30),
            ("g", "t", 0, 3_000, None),
            ("g", "t", 1, 2_000, 5),
        ]
    )
    ends = {500: {A: 8, B: 8}, 1_500: {A: 25, B: 9}, 2_000: {A: 28, B: 9}, 3_500: {A: 40}}
    assert list(lag_rows(commits, ends)) == [
        LagRow("g", A, 1_500, 10, 25, 15),
        LagRow("g", A, 2_000, 30, 28, 0),
        LagRow("g", B, 2_000, 5, 9, 4),
    ]


def test_a_clock_that_goes_back_does_not_hide_a_later_commit() -> None:
    commits = commits_by_partition([("g", "t", 0, 2_000, 10), ("g", "t", 0, 1_000, 20)])
    assert commits["g", A].at(2_000) == 20
    assert commits["g", A].at(1_999) is None


def test_sample_times_hold_both_ends() -> None:
    assert sample_times(0, 100, 5) == [0, 25, 50, 75, 100]
    assert sample_times(7, 7, 60) == [7]
    assert sample_times(7, 9, 60) == [7, 8, 9]
