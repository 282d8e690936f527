"""`kohort sim`: runs the coordinator, and on request the client, under virtual time, seed after seed."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from kohort.settings import SettingError
from kohort.sim import Broken, FaultRates, Report, run, run_consumers, run_share, run_transactions


@dataclass(frozen=True, slots=True)
class SimOptions:
    """What the user wants simulated."""

    seed: int
    members: int
    consumers: bool
    transactions: bool
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
    if options.transactions and (options.consumers or options.rebalances is not None):
        raise SettingError("--transactions has neither --consumers nor --rebalances; leave one of them out")
    if options.shares and (options.transactions or options.consumers or options.rebalances is not None):
        raise SettingError("--shares stands alone; leave --transactions, --consumers and --rebalances out")
    if options.shares:
        return _run_shares(options)
    if options.transactions:
        return _run_transactions(options, faults)
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


def _run_transactions(options: SimOptions, faults: FaultRates) -> int:
    began, total = time.perf_counter(), 0
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            report = run_transactions(seed, options.members, options.minutes, faults)
        except Broken as broken:
            again = f"kohort sim --transactions --seed {seed} --members {options.members}"
            again += f" --minutes {options.minutes:g} --faults {options.faults}"
            print(f"{broken}\nrun it again: {again}", file=sys.stderr)
            return 1
        total += report.transactions
        print(report, flush=True)
    seconds = time.perf_counter() - began
    print(f"{options.seeds} seeds, {total:,} transactions in {seconds:.1f} s, every invariant held")
    return 0


def _run_shares(options: SimOptions) -> int:
    began, total = time.perf_counter(), 0
    steps = max(int(options.minutes * _SHARE_STEPS_A_MINUTE), 1)
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            report = run_share(seed, steps)
        except Broken as broken:
            again = f"kohort sim --shares --seed {seed} --minutes {options.minutes:g}"
            print(f"{broken}\nrun it again: {again}", file=sys.stderr)
            return 1
        total += report.deliveries
        print(report, flush=True)
    seconds = time.perf_counter() - began
    print(f"{options.seeds} seeds, {total:,} deliveries in {seconds:.1f} s, every invariant held")
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
