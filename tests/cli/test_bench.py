"""`kohort bench` on a real broker: its figures add up, and it leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import Admin
from kohort.broker.running import running
from kohort.cli.bench.measures import percentile, picture, summary_of
from tests.cli.command_line import run_kohort


@pytest.fixture(scope="module")
def broker() -> Iterator[running]:
    with running() as broker:
        yield broker


@pytest.mark.parametrize(
    ("arguments", "figures", "latencies"),
    [
        (
            ["produce", "--records", "300", "--size", "10", "--warm-up", "10", "--rate", "100000"],
            {"records": 300, "bytes": 3000},
            {"latency_ms": 300},
        ),
        (
            ["consume", "--records", "300", "--size", "10", "--partitions", "2"],
            {"records": 300, "bytes": 3000},
            {},
        ),
        (
            ["commit", "--commits", "20", "--partitions", "2"],
            {"commits": 20, "partitions": 2},
            {"commit_ms": 20},
        ),
        (
            ["rebalance", "--members", "2", "--rounds", "1", "-X", "heartbeat.interval.ms=50"],
            {"members": 2, "partitions": 6},
            {"join_ms": 1, "leave_ms": 1},
        ),
    ],
)
def test_it_measures_and_cleans_up(broker, arguments, figures, latencies):
    ran = run_kohort("bench", *arguments, "--json", "--bootstrap", broker.bootstrap_servers)
    assert ran.code == 0, ran.err
    assert ran.err == ""
    measured = json.loads(ran.out)
    assert measured["bench"] == arguments[0]
    assert {name: measured[name] for name in figures} == figures
    assert {name: measured[name]["count"] for name in latencies} == latencies
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_topics() == []
        assert admin.list_groups() == []


def test_what_people_see(broker):
    ran = run_kohort("bench", "commit", "--commits", "5", "--bootstrap", broker.bootstrap_servers)
    assert ran.lines[0].split() == ["commits", "5"]
    assert any(line.startswith("commit in ms, of 5: mean ") for line in ran.lines)
    assert any("█" in line for line in ran.lines)


def test_a_wrong_setting_leaves_no_topic(broker):
    ran = run_kohort("bench", "produce", "-X", "ack=1", "--bootstrap", broker.bootstrap_servers)
    assert (ran.code, "acks" in ran.err) == (1, True)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.list_topics() == []


times = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


@given(times, st.sampled_from([50.0, 90.0, 99.0, 99.9]))
def test_a_percentile_is_a_time_that_enough_do_not_exceed(samples, share):
    ordered = sorted(samples)
    found = percentile(ordered, share)
    assert sum(each <= found for each in ordered) >= len(ordered) * share / 100
    assert sum(each < found for each in ordered) < len(ordered) * share / 100
    assert summary_of(samples)["max"] == round(ordered[-1], 3)


@given(times)
def test_the_picture_has_all_times(samples):
    assert sum(int(line.split()[-1].replace(",", "")) for line in picture(samples)) == len(samples)
