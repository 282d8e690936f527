"""Resets of committed offsets: what a user writes, and what the plan says; with a broker, what is committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.admin import Admin
from kohort.client.errors import WrongArgument
from kohort.client.types import TopicPartition
from kohort.insight.resets import (
    PartitionReset,
    ResetKind,
    ResetTarget,
    execute_reset,
    look_up_reset,
    parse_datetime,
    parse_duration,
    parse_target,
    parse_topics,
    plan_reset,
    read_csv,
    write_csv,
)
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode, KafkaError

AT = TopicPartition("orders", 0)


def reset_of(
    text: str, old: int | None, *, begin: int = 10, end: int = 100, by_time: int | None = None
) -> PartitionReset:
    plan = plan_reset(
        "billing",
        parse_target(text),
        [AT],
        committed={} if old is None else {AT: old},
        begins={AT: begin},
        ends={AT: end},
        by_time={AT: by_time},
    )
    return plan.partitions[0]


@pytest.mark.parametrize(
    ("target", "old", "new", "skipped", "again"),
    [
        ("earliest", 50, 10, 0, 40),
        ("latest", 50, 100, 50, 0),
        ("current", 50, 50, 0, 0),
        ("current", None, 100, 0, 0),
        ("offset:60", 50, 60, 10, 0),
        ("offset:5", 50, 10, 0, 40),
        ("offset:500", 50, 100, 50, 0),
        ("shift:-20", 50, 30, 0, 20),
        ("shift:+20", 50, 70, 20, 0),
        ("shift:-100", 50, 10, 0, 40),
        ("earliest", 5, 10, 0, 0),  # what lay between is deleted: nobody could have read it
    ],
)
def test_a_target_says_what_is_committed_and_what_is_skipped_or_read_again(target, old, new, skipped, again):
    reset = reset_of(target, old)
    assert (reset.new, reset.skipped, reset.again) == (new, skipped, again)
    assert reset.changes == (old != new)


def test_times_go_to_the_first_record_at_or_after_them_or_to_the_end():
    assert reset_of("datetime:2026-01-31T12:00:00Z", 50, by_time=33).new == 33
    late = reset_of("duration:PT1S", 50, by_time=None)
    assert late.new == 100
    assert "end of the log" in late.note


def test_an_offset_outside_of_the_log_is_explained():
    assert reset_of("offset:500", 50).note == "offset 500 is not in the log, which has 10 to 100"


def test_a_shift_without_a_committed_offset_has_nothing_to_start_from():
    with pytest.raises(WrongArgument, match="has committed nothing"):
        reset_of("shift:-1", None)


def test_explicit_offsets_must_name_each_partition():
    with pytest.raises(WrongArgument, match="no offset is named for orders-0"):
        plan_reset(
            "g", ResetTarget(ResetKind.EXPLICIT), [AT], committed={}, begins={AT: 0}, ends={AT: 1}, by_time={}
        )


@pytest.mark.parametrize(
    "text",
    ["", "begin", "earliest:1", "offset", "offset:-1", "offset:x", "offset:1e3", "shift:", "datetime:yesterday",
     "duration:1h", "duration:P", "duration:PT", "offset:99999999999999999999", "duration:" + "9" * 100 + "D"],
)  # fmt: skip
def test_a_wrong_target_is_refused_with_an_example(text):
    with pytest.raises(WrongArgument, match="write"):
        parse_target(text)


def test_datetimes_and_durations_are_those_of_iso_8601():
    assert parse_datetime("1970-01-01T00:00:01.500") == 1_500
    assert parse_datetime("1970-01-01T01:00:00+01:00") == 0
    assert parse_duration("PT1H30M") == 5_400_000
    assert parse_duration("P1DT12H") == 129_600_000
    assert parse_duration("PT0.25S") == 250
    assert ResetTarget(ResetKind.DURATION, 250).time_ms(1_000) == 750


def test_topics_are_named_as_in_kafkas_tool():
    assert parse_topics(["a", "b:0,2", "b:5"]) == {"a": None, "b": (0, 2, 5)}
    with pytest.raises(WrongArgument, match="partition"):
        parse_topics(["a:x"])


@given(
    st.dictionaries(
        st.tuples(st.text("a,\"'\n", min_size=1), st.integers(0, 9)), st.integers(0, 2**62), min_size=1
    )
)
def test_a_file_of_resets_is_read_as_it_was_written(offsets):
    explicit = {
        TopicPartition(topic.strip() or "t", number): offset for (topic, number), offset in offsets.items()
    }
    plan = plan_reset(
        "g",
        ResetTarget(ResetKind.EXPLICIT, explicit=explicit),
        list(explicit),
        committed={},
        begins=dict.fromkeys(explicit, 0),
        ends=dict.fromkeys(explicit, 2**63 - 1),
    )
    assert read_csv(write_csv([plan])) == {None: explicit}
    assert read_csv(write_csv([plan, plan])) == {"g": explicit}


@pytest.mark.parametrize("text", ["", "orders,0", "orders,x,1", "orders,0,-1", "a,b,c,d,e"])
def test_a_wrong_file_of_resets_is_refused(text):
    with pytest.raises(WrongArgument, match="write"):
        read_csv(text)


def test_a_plan_is_looked_up_and_carried_out():
    with Kafka() as kafka, Admin({"bootstrap.servers": kafka.bootstrap_servers}) as admin:
        kafka.create_topic("orders", 2)
        kafka.produce("orders", [b"one", b"two", b"three"])
        ends = kafka.end_offsets("orders")
        plan = look_up_reset(admin, "billing", parse_target("latest"), {"orders": None}, 0)
        assert plan.offsets == {TopicPartition("orders", number): end for number, end in ends.items()}
        execute_reset(admin, plan)
        again = look_up_reset(admin, "billing", parse_target("earliest"), None, 0)
        assert (again.again, again.skipped) == (3, 0)
        with pytest.raises(WrongArgument, match="has no partition 7"):
            look_up_reset(admin, "billing", parse_target("latest"), {"orders": [7]}, 0)
        with pytest.raises(KafkaError) as gone:
            look_up_reset(admin, "billing", parse_target("latest"), {"nothing": None}, 0)
        assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
