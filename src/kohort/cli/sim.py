"""`kohort sim`: runs the coordinator, and on request the client, under virtual time, seed after seed."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kohort.settings import SettingError
from kohort.sim import Broken, FaultRates, Report, run, run_consumers


def sim(options: argparse.Namespace) -> int:
    try:
        faults = FaultRates.named(options.faults)
    except ValueError as error:
        raise SettingError(f"--faults: {error}") from None
    if options.members < 1 or options.minutes <= 0 or options.seeds < 1:
        raise SettingError("--members and --seeds are at least 1, --minutes is above 0")
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


def _run_seeds(options: argparse.Namespace, faults: FaultRates) -> int:
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


def _run(options: argparse.Namespace, seed: int, faults: FaultRates) -> Report:
    if options.consumers:
        return run_consumers(seed, options.members, options.minutes, faults)
    return run(seed, options.members, options.minutes, faults)
