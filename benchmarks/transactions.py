"""Transactions on Apache Kafka and on Kohort, in one run: `python -m benchmarks.transactions [--quick]`.

Transactions of ten records into one partition by one producer, and fetches at read_committed. The brokers take turns
under the same load, which runs on the same cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import load, outside, report, rows, targets
from benchmarks.targets import Target

HEAD = ["load", "unit", "Apache Kafka", "Kohort", "Kohort/Kafka", "goal", "", "Kohort, disk"]
_WHO = ("kafka", "kohort-os", "kohort")
# load, unit of the figure, unit in words, is more better
_ROWS = (
    ("by_hand", "per_s", "transactions/s", True),
    ("by_hand", "cpu_us", "CPU µs each", False),
    ("confluent", "per_s", "transactions/s", True),
    ("confluent", "cpu_us", "CPU µs each", False),
    ("fetch", "mb_per_s", "MB/s", True),
    ("fetch", "cpu_s_per_gb", "CPU s/GB", False),
)
_LABELS = {
    "by_hand": "transactions, by hand",
    "confluent": "transactions, confluent-kafka",
    "fetch": "fetch read_committed",
}
Figures = dict[tuple[str, str, str], list[float]]
"""By load, broker and unit, in each round."""


def measure(work: Path, rounds: int, seconds: float, fill_mb: int, say: Callable[[str], None]) -> Figures:
    found = Figures()
    with ExitStack() as stack:
        brokers = {name: rows.start(name, work / name) for name in _WHO}
        for target in brokers.values():
            stack.enter_context(rows.running(target))
            _driven("fill", target, "filled", seconds, fill_mb)
        for number in range(rounds + 1):
            for mode in _LABELS:
                for name in _WHO if number % 2 else reversed(_WHO):
                    topic = "filled" if mode == "fetch" else f"{mode}-{number}"
                    lasts_s = seconds if number or name != "kafka" else seconds * 3
                    figures = _driven(mode, brokers[name], topic, lasts_s, fill_mb)
                    if not number:  # a JVM compiles for a while
                        continue
                    for unit, figure in figures.items():
                        found.setdefault((mode, name, unit), []).append(figure)
                    text = ", ".join(f"{unit} {figure:.2f}" for unit, figure in figures.items())
                    say(f"round {number}/{rounds} {mode} {name}: {text}")
    return found


def _driven(mode: str, target: Target, topic: str, seconds: float, fill_mb: int) -> dict[str, float]:
    words = ["--topic", topic, "--seconds", str(seconds)]
    if mode == "fetch":
        return rows.loaded("benchmarks.load", mode, target, [*words, "--isolation", "1"], seconds + 90)
    words += ["--limit-mb", str(fill_mb), "--partitions", "8" if mode == "fill" else "1"]
    return rows.loaded("benchmarks.transaction_load", mode, target, words, seconds + 180)


def table(found: Figures) -> list[list[str]]:
    lines = []
    for mode, unit, word, more_is_better in _ROWS:
        kafka, kohort, disk = (statistics.median(found[mode, name, unit]) for name in _WHO)
        ratio = kohort / kafka
        verdict = ("met" if ratio >= 1 else "MISSED") if more_is_better else ""
        digits = 2 if unit == "cpu_s_per_gb" else 0
        lines.append(
            [_LABELS[mode], word, f"{kafka:.{digits}f}", f"{kohort:.{digits}f}", f"{ratio:.2f}×"]
            + ["≥ 1×" if more_is_better else "", verdict, f"{disk:.{digits}f}"]
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    parser.add_argument(
        "--rounds", type=int, default=5, help="every figure is a median of so many (default 5)"
    )
    options = parser.parse_args()
    begun, busy = time.monotonic(), os.getloadavg()[0]

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    rounds, seconds, fill_mb = (1, 1.0, 50) if options.quick else (options.rounds, 3.0, 400)
    try:
        with targets.workshop() as work:
            found = measure(work, rounds, seconds, fill_mb, say)
    except (outside.Missing, targets.DidNotStart, load.Refused) as trouble:
        print(f"benchmarks.transactions: {trouble}", file=sys.stderr)
        return 2
    lines = table(found)
    widths = [max(len(row[i]) for row in [HEAD, *lines]) for i in range(len(HEAD))]
    for row in [HEAD, *lines]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not options.quick:
        _write(lines, rounds, busy)
    return 0


def _write(lines: list[list[str]], rounds: int, busy: float) -> None:
    command = " ".join(["python -m benchmarks.transactions", *sys.argv[1:]])
    body = [
        "## Transactions",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, medians of {rounds} rounds in turns. "
        f"Machine: {report.machine()}; load average before the run {busy:.1f}.",
        "",
        *("| " + " | ".join(row) + " |" for row in [HEAD, ["---"] * len(HEAD), *lines]),
        "",
        "- transactions: one producer, one partition, ten records of 100 bytes in each, one after the other. By hand: "
        "Produce v12 and EndTxn v5 on one connection; the answer of EndTxn is all that is waited for. confluent-kafka "
        "adds the partition by a request of its own, and waits 20 ms when the transaction before is not complete.",
        "- fetch: Fetch v11 at read_committed, 8 connections, 1 MB a partition, of a log of transactions of 2 MB; one "
        "in ten is aborted.",
        "- Kohort has durability=os, as Kafka; in the last column its default, `disk`, where each answer waits for an "
        "fdatasync. CPU is the broker's own.",
    ]
    report.replace_section("transactions", body)
    print(f"written: {report.HERE}/RESULTS.md")


if __name__ == "__main__":
    sys.exit(main())
