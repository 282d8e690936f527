"""`python -m benchmarks.clients`: ours beside confluent-kafka, aiokafka and kafka-python, on one broker in one run.

Every measurement is a process of its own; clients take turns in every round. Writes its part of benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report, targets
from benchmarks.memory import use_once
from benchmarks.targets import Target
from kohort import Admin

SIZES, CODECS = (100, 1000), ("none", "lz4")
CLIENTS = ("kohort", "kohort-arrow", "kohort-views", "confluent", "aiokafka", "kafka-python", "ceiling")
PEERS = ("confluent", "aiokafka", "kafka-python")
READERS_ONLY = ("kohort-views", "ceiling")
SLOW = {
    "aiokafka": 5,
    "kafka-python": 5,
}  # these get so many times fewer records: it is a rate that is measured
SLOW_WITH_DEFAULTS = SLOW | {"kafka-python": 20}
UNABLE = {("kafka-python", "lz4")}  # it wants another package for that
# mode -> (ours, peer) -> at least so many times as fast
GOALS = {
    "consume": {
        ("kohort", "aiokafka"): 2.0,
        ("kohort", "confluent"): 1.0,
        ("kohort-arrow", "confluent"): 5.0,
    },
    "produce": {
        ("kohort", "aiokafka"): 2.0,
        ("kohort", "confluent"): 0.7,
        ("kohort-arrow", "confluent"): 3.0,
    },
}
# The same with nothing set but the broker's address; see `client_defaults`
GOALS_OF_DEFAULTS = {
    "consume-defaults": {("kohort", "aiokafka"): 2.0, ("kohort", "confluent"): 1.0},
    "produce-defaults": {("kohort", "aiokafka"): 2.0, ("kohort", "confluent"): 1.0},
}
ROWS = ("tuned", "defaults")


def row_name(mode: str, size: int, codec: str) -> str:
    verb, _, defaults = mode.partition("-")
    return f"{verb} {size} B {defaults or ('lz4' if codec == 'lz4' else 'plain')}"


@dataclass(slots=True)
class Measured:
    figures: dict[tuple[str, int, str, str, str], list[float]]
    trouble: list[str]

    def middle(self, mode: str, size: int, codec: str, client: str, figure: str = "per_s") -> float | None:
        found = self.figures.get((mode, size, codec, client, figure))
        return statistics.median(found) if found else None

    def first_s(self, client: str) -> float | None:
        found = [
            value
            for (mode, _, _, who, figure), values in self.figures.items()
            for value in values
            if (mode, who, figure) == ("first", client, "first_s")
        ]
        return statistics.median(found) if found else None


def work(target: Target, *words: str, timeout_s: float = 180) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.client_load", *words[:2], target.address, *words[2:]]
    # As installed packages have it: what is imported on the way to the first record is compiled already.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
    )
    if done.returncode or not done.stdout.strip():
        raise OSError(f"{' '.join(words)}: {(done.stderr or 'said nothing').strip().splitlines()[-1]}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def settle(target: Target, written: str | None = None) -> None:
    """Leaves no work of the last measurement to the next one.

    What was written is deleted: its memory serves the next topic. Else the page cache of a run grows by ten gigabytes,
    and appending took the broker six times the CPU after the first four, whoever produced (a virtual machine that gets
    its memory page by page, or writeback; which was not found out). What stays is written to disk now.
    """
    if written is not None:
        with Admin(bootstrap_servers=target.address) as admin:
            admin.delete_topics(written)
    os.sync()


def measure(
    records: int, rounds: int, only: tuple[str, ...], rows: tuple[str, ...], say: Callable[[str], None]
) -> Measured:
    measured = Measured({}, [])
    every_codec = CODECS if "tuned" in rows else CODECS[:1]

    def note(mode: str, size: int, codec: str, client: str, *words: str) -> None:
        try:
            result = work(broker, *words)
        except (OSError, subprocess.SubprocessError) as error:
            measured.trouble.append(str(error))
            say(f"FAILED {error}")
            return
        for figure, value in result.items():
            measured.figures.setdefault((mode, size, codec, client, figure), []).append(value)
        if mode == "first":
            say(f"first record, {client}: {result['first_s'] * 1000:.0f} ms")
        else:
            say(
                f"{row_name(mode, size, codec)} {client}: {result['per_s']:,.0f}/s, {result['cpu_us']:.2f} µs CPU"
            )

    with targets.workshop() as place:
        broker = targets.kohort(
            place / "broker", "durability=os", "group.initial.rebalance.delay.ms=0", name="kohort-os"
        )
        try:
            for size in SIZES:
                for codec in every_codec:
                    topic = f"read-{size}-{codec}"
                    work(broker, "produce", "confluent", topic, str(records), str(size), codec)
                    settle(broker)
                    for round_number in range(rounds):
                        for client in CLIENTS if "tuned" in rows else ():
                            if (only and client not in only) or (client, codec) in UNABLE:
                                continue
                            some = str(records // SLOW.get(client, 1))
                            note("consume", size, codec, client, "consume", client, topic, some)
                            if client in READERS_ONLY:
                                continue
                            made = f"made-{size}-{codec}-{client}-{round_number}"
                            note(
                                "produce",
                                size,
                                codec,
                                client,
                                "produce",
                                client,
                                made,
                                some,
                                str(size),
                                codec,
                            )
                            settle(broker, made)
                        for client in ("kohort", *PEERS) if codec == "none" and "defaults" in rows else ():
                            if only and client not in only:
                                continue
                            some = str(records // SLOW_WITH_DEFAULTS.get(client, 1))
                            made = f"made-defaults-{size}-{client}"
                            for mode, words in (
                                ("consume-defaults", (topic, some)),
                                ("produce-defaults", (f"{made}-{round_number}", some, str(size))),
                            ):
                                note(mode, size, codec, client, mode, client, *words)
                            settle(broker, f"{made}-{round_number}")
            for _ in range(rounds + 2 if "tuned" in rows else 0):
                for client in CLIENTS:
                    if client != "ceiling" and (not only or client in only):
                        note("first", 100, "none", client, "consume", client, "read-100-none", "1")
        finally:
            broker.kill()
    return measured


def verdicts(measured: Measured) -> list[list[str]]:
    rows = []
    for mode, goals in (GOALS | GOALS_OF_DEFAULTS).items():
        for (ours, peer), goal in goals.items():
            for size in SIZES:
                for codec in CODECS:
                    one, other = (measured.middle(mode, size, codec, who) for who in (ours, peer))
                    if one is None or other is None:
                        continue
                    ratio = one / other
                    what = f"{row_name(mode, size, codec)}: {ours} / {peer}"
                    rows.append([what, f"{ratio:.2f}×", f"≥ {goal:g}×", "met" if ratio >= goal else "MISSED"])
    mine = measured.first_s("kohort")
    for peer in PEERS:
        theirs = measured.first_s(peer)
        if mine is not None and theirs is not None:
            ratio = mine / theirs
            what = f"subscribe to first record: kohort / {peer}"
            rows.append([what, f"{ratio:.2f}×", "≤ 1×", "met" if ratio <= 1 else "MISSED"])
    return rows


def beside_the_ceiling(measured: Measured) -> list[list[str]]:
    rows = []
    for size in SIZES:
        for codec in CODECS:
            most = measured.middle("consume", size, codec, "ceiling")
            ours = [measured.middle("consume", size, codec, who) for who in CLIENTS[:3]]
            if most is None or None in ours:
                continue
            row = [f"consume {size} B {'lz4' if codec == 'lz4' else 'plain'}"]
            rows.append(row + [f"{rate / most:.2f}" for rate in ours if rate is not None])
    return rows


def table(rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]


def write(measured: Measured, records: int, rounds: int, command: str, took_s: float, busy: float) -> None:
    def cell(mode: str, size: int, codec: str, client: str) -> str:
        rate = measured.middle(mode, size, codec, client)
        cpu = measured.middle(mode, size, codec, client, "cpu_us")
        return "–" if rate is None or cpu is None else f"{rate / 1e6:.3g} M ({cpu:.2g})"

    rates = [["", *CLIENTS]]
    rates += [
        [row_name(mode, size, codec), *(cell(mode, size, codec, c) for c in CLIENTS)]
        for mode in (*GOALS, *GOALS_OF_DEFAULTS)
        for size in SIZES
        for codec in (CODECS if mode in GOALS else CODECS[:1])
    ]
    firsts = (measured.first_s(client) for client in CLIENTS)
    rates.append(
        ["subscribe to first record, ms", *("–" if s is None else f"{s * 1000:.0f}" for s in firsts)]
    )
    body = [
        "## Clients",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {took_s:.0f} s, {rounds} rounds, medians; "
        f"load average before the run {busy:.1f}.",
        f"One Kohort broker (`durability=os`), {records:,} records a measurement (a fifth of it for aiokafka and "
        "kafka-python, a twentieth for the latter with its defaults), one partition read, each client in a process of "
        "its own, after a warm-up (a fifth of what is read; 50,000 written). Millions of records a second, in brackets "
        "the client's CPU in µs per record.",
        "",
        *table(rates),
        "",
        *table([["ratio", "measured", "goal", ""], *verdicts(measured)]),
        "",
        "What the machine allows is the ceiling: a loop that receives the same answers into one buffer, decompresses "
        "them, and neither checks nor decodes anything. Ours as a part of it:",
        "",
        *table([["", *CLIENTS[:3]], *beside_the_ceiling(measured)]),
        "",
        "- confluent-kafka reads with `consume(10000)` and a queue that never pauses; every value is touched. "
        "kohort-arrow gives key, value, offset and timestamp as Arrow columns, and writes from batches of 50,000 rows. "
        "kohort-views is the same with `binary_view=True`: key and value are not copied.",
        "- Producers are idempotent with acks=all (kafka-python: acks=all), linger 20 ms, batches of up to 1 MB, one "
        "record at a time, lz4 at each client's default level; time ends when all are acknowledged. kafka-python has "
        "no lz4 without another package. What was written is deleted "
        "before the next measurement, so that no client pays for memory and disk that another one filled.",
        "",
        "- defaults: nothing is set but the broker's address (and a consumer's group, which starts at the beginning), "
        "plain, one record at a time: `send` or `produce` in a loop, `for record in consumer` or confluent-kafka's "
        "`poll`. Defaults promise different things: Kohort and kafka-python are idempotent with acks=all, "
        "confluent-kafka has acks=all, aiokafka acks=1. confluent-kafka's queue holds 100,000 records; when it is "
        "full, the loop waits in `poll`, as its documentation has it. Its consumer stops fetching for a second when "
        "its queue is full.",
        "",
        "![clients](results-clients.png)",
        "",
        *(f"- FAILED: {trouble}" for trouble in measured.trouble),
    ]
    report.replace_section("clients", body)
    draw(measured, report.HERE / "results-clients.png")


def draw(measured: Measured, path: Path) -> None:
    """Records a second of every client, ours in colour."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, panels = pyplot.subplots(1, 2, figsize=(10, 4.6), dpi=130, sharey=True)
    colours = ("#2a7f62", "#61b596", "#9fd6c1", "#56606b", "#8a94a0", "#c3c9d0", "#e8d9a8")
    for panel, mode in zip(panels, GOALS, strict=True):
        groups = [(size, codec) for size in SIZES for codec in CODECS]
        for place, client in enumerate(CLIENTS):
            rates = [(measured.middle(mode, size, codec, client) or 0) / 1e6 for size, codec in groups]
            at = [group + (place - 3) * 0.125 for group in range(len(groups))]
            bars = panel.bar(at, rates, width=0.12, color=colours[place], label=client)
            panel.bar_label(
                bars, [f"{rate:.2g}" if rate else "" for rate in rates], fontsize=6, rotation=90, padding=2
            )
        panel.set_xticks(range(len(groups)), [f"{size} B {codec}" for size, codec in groups], fontsize=8)
        panel.set_yscale("log")
        panel.set_title(f"{mode}, millions of records a second", fontsize=9)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[1].legend(fontsize=7, frameon=False)
    picture.tight_layout()
    picture.savefig(path)
    pyplot.close(picture)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="in one measurement (default 1,000,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="every figure is a median of so many (default 3)"
    )
    parser.add_argument("--only", nargs="*", default=(), choices=CLIENTS, help="some clients; writes nothing")
    parser.add_argument(
        "--rows",
        choices=ROWS,
        help="only those with chosen settings, or with each client's defaults; writes nothing",
    )
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    options = parser.parse_args()
    begun, busy = time.monotonic(), os.getloadavg()[0]

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    records, rounds = (100_000, 1) if options.quick else (options.records, options.rounds)
    if not options.quick:
        use_once(say)
    rows = ROWS if options.rows is None else (options.rows,)
    measured = measure(records, rounds, tuple(options.only), rows, say)
    for row in verdicts(measured):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, (60, 8, 8, 7), strict=True)).rstrip())
    if not options.quick and not options.only and options.rows is None:
        command = " ".join(["python -m benchmarks.clients", *sys.argv[1:]])
        write(measured, records, rounds, command, time.monotonic() - begun, busy)
        print(f"written: {report.HERE}/RESULTS.md, results-clients.png")
    return 1 if measured.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
