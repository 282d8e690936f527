"""`kohort sim`: runs the coordinator, and on request the client, under virtual time, seed after seed."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from kohort.settings import SettingError
from kohort.sim import (
    Broken,
    FaultRates,
    Report,
    run,
    run_consumer_groups,
    run_consumers,
    run_share,
    run_transactions,
)


@dataclass(frozen=True, slots=True)
class SimOptions:
    """What the user wants simulated."""

    seed: int
    members: int
    consumers: bool
    transactions: bool
    consumer_groups: bool
    shares: bool
    minutes: float
    faults: str
    seeds: int
    rebalances: int | None


_SHARE_STEPS_A_MINUTE = 100


@click.command(epilog="Example: kohort sim --seed 7 --members 20 --minutes 30 --faults lost,crash=0.01")
@click.option("--seed", type=int, default=0, help="The first seed; a failure names its own.")
@click.option("--members", type=int, default=12, show_default=True, help="How many members the group has.")
@click.option(
    "--consumers",
    is_flag=True,
    help="Members are consumers of the real client, with users, brokers and topics; 5 of them are enough.",
)
@click.option(
    "--transactions",
    is_flag=True,
    help="Members are transactional producers, and the transaction coordinator is simulated; 4 are enough.",
)
@click.option(
    "--consumer-groups",
    is_flag=True,
    help="Members are of two groups of KIP-848, whose topics come and grow; 6 are enough.",
)
@click.option(
    "--shares",
    is_flag=True,
    help="A share partition and the share coordinator are simulated, with three members; 100 steps a minute.",
)
@click.option("--minutes", type=float, default=10, show_default=True, help="Of virtual time, for each seed.")
@click.option(
    "--faults",
    default="all",
    show_default=True,
    metavar="NAMES",
    help="all, none, or names with or without a rate.",
)
@click.option("--seeds", type=int, default=1, show_default=True, help="How many seeds, one after the other.")
@click.option("--rebalances", type=int, help="Go on with further seeds until there were this many.")
def command(**given: Any) -> int:
    """Run the coordinator's own code, and with --consumers the client's too, with a network and a disk that fail."""
    return sim(SimOptions(**given))


def sim(options: SimOptions) -> int:
    try:
        faults = FaultRates.named(options.faults)
    except ValueError as error:
        raise SettingError(f"--faults: {error}") from None
    if options.members < 1 or options.minutes <= 0 or options.seeds < 1:
        raise SettingError("--members and --seeds are at least 1, --minutes is above 0")
    members, minutes = options.members, options.minutes
    kinds: dict[str, tuple[bool, str, Callable[[int], Any]]] = {
        "--transactions": (
            options.transactions,
            "transactions",
            lambda seed: run_transactions(seed, members, minutes, faults),
        ),
        "--consumer-groups": (
            options.consumer_groups,
            "epochs",
            lambda seed: run_consumer_groups(seed, members=members, minutes=minutes, faults=faults),
        ),
        "--shares": (
            options.shares,
            "deliveries",
            lambda seed: run_share(seed, max(int(minutes * _SHARE_STEPS_A_MINUTE), 1)),
        ),
    }
    chosen = [flag for flag, (is_chosen, _, _) in kinds.items() if is_chosen]
    if len(chosen) > 1 or (chosen and (options.consumers or options.rebalances is not None)):
        others = ", ".join(flag for flag in (*kinds, "--consumers", "--rebalances") if flag != chosen[0])
        raise SettingError(f"{chosen[0]} stands alone; leave {others} out")
    for flag in chosen:
        return _run_kind(options, flag, *kinds[flag][1:])
    with _quiet_client():
        return _run_seeds(options, faults)


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Silences the client's log, which would report every fault."""
    logger = logging.getLogger("kohort.client")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _run_kind(options: SimOptions, flag: str, counted: str, run_one: Callable[[int], Any]) -> int:
    """Runs the seeds of a simulation that has a flag of its own; `counted` is a field of its reports."""
    began, total = time.perf_counter(), 0
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            report = run_one(seed)
        except Broken as broken:
            again = f"kohort sim {flag} --seed {seed} --members {options.members}"
            again += f" --minutes {options.minutes:g} --faults {options.faults}"
            print(f"{broken}\nrun it again: {again}", file=sys.stderr)
            return 1
        total += getattr(report, counted)
        print(report, flush=True)
    seconds = time.perf_counter() - began
    print(f"{options.seeds} seeds, {total:,} {counted} in {seconds:.1f} s, every invariant held")
    return 0


def _run_seeds(options: SimOptions, faults: FaultRates) -> int:
    began = time.perf_counter()
    total = runs = 0
    seed = options.seed
    while runs < options.seeds if options.rebalances is None else total < options.rebalances:
        try:
            report = _run(options, seed, faults)
        except Broken as broken:
            which = "kohort sim --consumers" if options.consumers else "kohort sim"
            again = f"{which} --seed {seed} --members {options.members} --minutes {options.minutes:g}"
            print(f"seed {seed}: {broken}\nrun it again: {again} --faults {options.faults}", file=sys.stderr)
            return 1
        runs, seed, total = runs + 1, seed + 1, total + report.rebalances
        if options.rebalances is None:
            print(report, flush=True)
        elif runs % 10 == 0:
            rate = total / (time.perf_counter() - began)
            print(f"{runs} seeds, {total:,} of {options.rebalances:,} rebalances, {rate:,.0f}/s", flush=True)
    seconds = time.perf_counter() - began
    print(f"{runs} seeds, {total:,} rebalances in {seconds:.1f} s, every invariant held")
    return 0


def _run(options: SimOptions, seed: int, faults: FaultRates) -> Report:
    if options.consumers:
        return run_consumers(seed, options.members, options.minutes, faults)
    return run(seed, options.members, options.minutes, faults)
