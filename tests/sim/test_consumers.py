"""The real client against the real coordinator: what a group's consumers promise holds under every fault."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from kohort.sim import FaultRates, run_consumers

SEEDS = range(14)


def test_every_record_is_processed_and_no_clean_hand_over_repeats_one_under_all_faults() -> None:
    """Spec "Rebalance callbacks", "Staying", "Committing": the checks are in sim/consumer.py and sim/witness.py."""
    callbacks: Counter[str] = Counter()
    rebalances = records = repeated = handovers = restarts = moves = short_ways = 0
    for seed in SEEDS:
        report = run_consumers(seed, members=(3, 5, 8)[seed % 3], minutes=2)
        callbacks.update(report.callbacks)
        rebalances += report.rebalances
        records += report.records
        repeated += report.repeated
        handovers += report.clean_handovers
        restarts += report.restarts
        moves += report.leader_moves
        short_ways += report.short_ways
    # The faults did happen, and the groups did work in spite of them.
    assert rebalances > 200
    assert records > 10_000
    assert 0 < repeated < records // 4
    assert handovers > 100
    assert restarts > 2
    assert moves > 20
    assert short_ways > 1_000
    assert min(callbacks["assigned"], callbacks["revoked"], callbacks["lost"]) > 20


def test_without_faults_no_record_is_read_twice_and_nothing_is_lost() -> None:
    for seed in range(3):
        report = run_consumers(seed, members=4, minutes=1, faults=FaultRates.none())
        assert report.records == report.produced
        assert report.repeated == 0
        assert "lost" not in report.callbacks


@pytest.mark.parametrize(
    "fault",
    [
        "crash=0.05",
        "resign=0.1",
        "failed_write=0.2",
        "lost=0.1",
        "disconnected=0.2",
        "duplicated=0.2",
        "delayed=0.3",
    ],
)
def test_each_fault_alone_and_often(fault: str) -> None:
    report = run_consumers(3, members=4, minutes=1, faults=FaultRates.named(fault + ",churn=0.05"))
    assert report.records >= report.produced > 100


def test_who_offers_an_assignor_that_the_log_does_not_tell_of_is_refused_and_joins_later() -> None:
    """Found with other rates of faults: as in Kafka, the log has only the assignor in use of each member."""
    faults = FaultRates.named("crash=0.05,churn=0.3")
    report = run_consumers(45, members=2, minutes=1, faults=faults, short_ways=0)
    assert report.records >= report.produced > 100


def test_the_same_seed_is_the_same_run() -> None:
    one, other = run_consumers(7, 4, 1), run_consumers(7, 4, 1)
    one.cpu_seconds = other.cpu_seconds = 0
    assert one == other
    assert run_consumers(8, 4, 1).messages != one.messages


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    """Sets of strings are in another order there."""
    program = "from kohort.sim import run_consumers; r = run_consumers(7, 4, 1); r.cpu_seconds = 0; print(r)"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=400,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_very_many_seeds_of_consumers_keep_the_invariants() -> None:
    wanted = int(os.environ.get("KOHORT_CHAOS_CONSUMER_REBALANCES", "20000"))
    done = records = 0
    seed = 100_000
    while done < wanted:
        report = run_consumers(seed, members=(3, 5, 8, 12)[seed % 4], minutes=5)
        done, records, seed = done + report.rebalances, records + report.records, seed + 1
        if seed % 50 == 0:
            print(f"{seed - 100_000} seeds, {done} rebalances, {records} records; {report}", flush=True)
