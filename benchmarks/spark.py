"""`python -m benchmarks.spark`: format("kohort") beside Spark's own format("kafka"), on one broker.

Each has a Spark of its own, as its users have; contenders take turns in every round, and every count and sum is
checked. Writes its part of benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import report, targets
from benchmarks.client_load import values
from benchmarks.memory import use_once
from benchmarks.spark_load import CONTENDERS, Job
from benchmarks.spark_process import SparkProcess

SIZES, CODECS = (100, 1000), ("none", "lz4")
QUERIES, MODES = ("noop", "count", "sum"), ("batch", "available-now")
PARTITIONS = 4
MICRO_ROWS = 30_000
BIG_MB = 1536
WARM_UPS = 2
LOAD = "benchmarks.spark_load"
LIMIT_S = 1_500
LIMIT_MB = 1024
"""The address space that a Python worker gets for the big topic."""
GOALS = {"connector": 2.0, "connector-tuned": 1.5}


@dataclass(slots=True)
class Measured:
    """(mode, query, size, codec, contender) -> figure -> values."""

    figures: dict[tuple[str, str, int, str, str], dict[str, list[float]]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)

    def add(self, key: tuple[str, str, int, str, str], **given: float) -> None:
        for name, value in given.items():
            self.figures.setdefault(key, {}).setdefault(name, []).append(value)

    def middle(self, mode: str, query: str, size: int, codec: str, contender: str, name: str) -> float | None:
        if contender == "ready-made":
            codec = "none"  # nothing is decompressed there
        found = self.figures.get((mode, query, size, codec, contender), {}).get(name)
        return statistics.median(found) if found else None


def topic_of(size: int, codec: str) -> str:
    return f"rows-{size}-{codec}"


def rows_of(size: int, scale: float) -> int:
    return int((1_000_000 if size == 100 else 250_000) * scale)


def fill(address: str, topic: str, rows: int, size: int, codec: str, partitions: int = PARTITIONS) -> None:
    import pyarrow as pa

    from kohort import Admin, Producer

    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(topic, partitions)
    made = values(size, 1000)
    settings: dict[str, Any] = {"compression_type": codec, "buffer_memory": 256 << 20}
    settings["max_request_size"] = 256 << 10  # it bounds the batches; without it they have a megabyte
    with Producer(bootstrap_servers=address, **settings) as producer:
        for begin in range(0, rows, 20_000):
            count = min(20_000, rows - begin)
            columns = {
                "value": pa.array([made[(begin + n) % 1000] for n in range(count)], pa.binary()),
                "key": pa.array([b"%d" % (begin + n) for n in range(count)], pa.binary()),
                "partition": pa.array([(begin + n) * partitions // rows for n in range(count)], pa.int32()),
            }
            producer.send_arrow(topic, pa.table(columns)).result(60)


def jobs(rounds: int, contenders: tuple[str, ...], scale: float) -> Iterator[Job]:
    """Rounds that do not count, in which Java gets warm; then the others."""

    def turns(query: str, mode: str, codec: str) -> Iterator[str]:
        for contender in contenders:
            if contender == "kohort-columns" and (query == "noop" or mode != "batch"):
                continue
            if contender != "ready-made" or codec == "none":
                yield contender

    for number in range(-WARM_UPS, rounds):
        for size in SIZES:
            for codec in CODECS:
                for mode in MODES:
                    for query in QUERIES:
                        for contender in turns(query, mode, codec):
                            note, rows = json.dumps([number, size, codec]), rows_of(size, scale)
                            yield Job(contender, topic_of(size, codec), query, mode, note, rows, size)
        for contender in contenders:
            if contender not in ("kohort-columns", "ready-made"):
                yield Job(contender, "micro", "noop", "micro", json.dumps([number, 100, "none"]))


def home_of(contender: str) -> str:
    """Whose Spark it works in."""
    return "kohort" if contender == "ready-made" else contender.removesuffix("-columns")


def measure(scale: float, rounds: int, only: tuple[str, ...], say: Callable[[str], None]) -> Measured:
    measured = Measured()
    contenders = only or tuple(CONTENDERS)
    with targets.workshop() as place:
        broker = targets.kohort(place / "broker", "durability=os", name="kohort-os")
        sparks: dict[str, SparkProcess] = {}
        try:
            for size in SIZES:
                for codec in CODECS:
                    fill(broker.address, topic_of(size, codec), rows_of(size, scale), size, codec)
            fill(broker.address, "micro", MICRO_ROWS, 100, "none", partitions=1)
            say(f"topics written: {rows_of(100, scale):,} rows of 100 B, {rows_of(1000, scale):,} of 1 KB")
            for home in dict.fromkeys(map(home_of, contenders)):
                sparks[home] = SparkProcess(place / home, LOAD, broker.address)
            until = time.monotonic() + LIMIT_S
            for job in jobs(rounds, contenders, scale):
                left_s = max(1.0, until - time.monotonic())
                done = sparks[home_of(job.contender)].ask(asdict(job), left_s)
                note_result(measured, {**asdict(job), **done}, scale, say)
            while sparks:
                sparks.popitem()[1].close()
            memory(measured, broker.address, place, BIG_MB * min(1.0, scale), say)
        finally:
            for work in sparks.values():
                work.close()
            broker.kill()
    return measured


def note_result(measured: Measured, result: dict[str, Any], scale: float, say: Callable[[str], None]) -> None:
    if "missing" in result:
        if result["missing"] not in measured.trouble:
            measured.trouble.append(result["missing"])
            say(result["missing"])
        return
    if "failed" in result:
        what = f"{result.get('contender', '')} {result.get('mode', '')} {result.get('query', '')}".strip()
        measured.trouble.append(f"{what}: {result['failed']}")
        say(f"FAILED {what}: {result['failed']}")
        return
    number, size, codec = json.loads(result["note"])
    mode, query, contender = result["mode"], result["query"], result["contender"]
    rows = MICRO_ROWS if mode == "micro" else rows_of(size, scale)
    expected = {"noop": None, "count": rows, "sum": rows * size}[query] if mode != "micro" else rows
    if result["result"] != expected:
        measured.trouble.append(
            f"{contender} {mode} {query} {size} B {codec}: {result['result']}, not {expected}"
        )
    key = (mode, query, size, codec, contender)
    if mode == "micro":
        took = statistics.median(result["batch_ms"])
        say(f"{'warm-up ' if number < 0 else ''}micro-batch of 1,000 rows {contender}: {took:.0f} ms")
        if number >= 0:
            measured.add(key, batch_ms=took, batch_cpu_ms=result["cpu_s"] * 1000)
        return
    rate, cpu_us = rows / result["seconds"], result["cpu_s"] / rows * 1e6
    warm = "warm-up " if number < 0 else ""
    say(f"{warm}{mode} {query} {size} B {codec} {contender}: {rate:,.0f} rows/s, {cpu_us:.2f} µs CPU")
    if number >= 0:
        measured.add(key, per_s=rate, cpu_us=cpu_us)
        if "around_s" in result:
            measured.add(("start", "noop", 100, "none", contender), around_s=result["around_s"])


def memory(
    measured: Measured, address: str, place: Path, megabytes: float, say: Callable[[str], None]
) -> None:
    """A topic that is larger than what a worker may have: Spark's own limit on the address space, and the peak seen."""
    rows = int(megabytes * (1 << 20) / 1000)
    fill(address, "big", rows, 1000, "lz4", partitions=1)
    job = Job("kohort", "big", "sum", "batch")
    work = SparkProcess(place / "memory", LOAD, address, f"spark.executor.pyspark.memory={LIMIT_MB}m")
    try:
        result = work.ask(asdict(job), 180)
    finally:
        work.close()
    if "failed" in result or result.get("result") != rows * 1000:
        measured.trouble.append(f"memory: {result.get('failed') or result}")
        say(f"FAILED memory: {result}")
        return
    size = rows * 1000 / (1 << 20)
    measured.memory = {"topic_mb": size, "peak_mb": result["peak_mb"], "limit_mb": result["limit_mb"]}
    say(
        f"one partition of {size:,.0f} MB: a worker had {result['peak_mb']:.0f} MB at most, "
        f"its limit was {result['limit_mb']:.0f} MB"
    )


# --- what came out ------------------------------------------------------------------------------------


def cases() -> Iterator[tuple[str, str, int, str]]:
    for mode in MODES:
        for query in QUERIES:
            for size in SIZES:
                for codec in CODECS:
                    yield mode, query, size, codec


def name_of(mode: str, query: str, size: int, codec: str) -> str:
    what = "sum(length)" if query == "sum" else query
    return f"{mode} {what} {size} B {'lz4' if codec == 'lz4' else 'plain'}"


def ratio(
    measured: Measured, case: tuple[str, str, int, str], ours: str, theirs: str, name: str = "per_s"
) -> float | None:
    one, other = (measured.middle(*case, who, name) for who in (ours, theirs))
    return None if one is None or other is None else one / other


def table(measured: Measured) -> list[list[str]]:
    headings = [*CONTENDERS, "kohort / connector", "kohort / tuned", "kohort / ready-made"]
    rows = [["rows a second (CPU µs a row)", *headings]]
    for case in cases():
        cells = []
        for who in CONTENDERS:
            rate, cpu = (measured.middle(*case, who, name) for name in ("per_s", "cpu_us"))
            cells.append("" if rate is None or cpu is None else f"{rate / 1e6:.3g} M ({cpu:.2g})")
        for peer in (*GOALS, "ready-made"):
            found = ratio(measured, case, "kohort", peer)
            cells.append("" if found is None else f"{found:.2f}×")
        rows.append([name_of(*case), *cells])
    return rows


def verdicts(measured: Measured) -> list[list[str]]:
    rows = [["goal", "median over the table", "lowest", "goal", ""]]
    for ours in ("kohort", "kohort-columns"):
        for peer, goal in GOALS.items():
            found = [r for case in cases() if (r := ratio(measured, case, ours, peer)) is not None]
            cpu = [r for case in cases() if (r := ratio(measured, case, ours, peer, "cpu_us")) is not None]
            if found:
                middle = statistics.median(found)
                verdict = "met" if middle >= goal else "MISSED"
                met = f"{sum(r >= goal for r in found)} of {len(found)}"
                rows.append(
                    [
                        f"{ours} / {peer}, rows a second",
                        f"{middle:.2f}×",
                        f"{min(found):.2f}×",
                        f"≥ {goal:g}×",
                        f"{verdict} ({met})",
                    ]
                )
                texts = [f"{statistics.median(cpu):.2f}×", f"{min(cpu):.2f}×", "", ""]
                rows.append([f"{ours} / {peer}, CPU a row", *texts])
    micro = ("micro", "noop", 100, "none")
    for name, label in (("batch_ms", "micro-batch of 1,000 rows, ms"), ("batch_cpu_ms", "… CPU ms")):
        mine = measured.middle(*micro, "kohort", name)
        for peer in GOALS:
            theirs = measured.middle(*micro, peer, name)
            if mine is not None and theirs is not None:
                goal_text, verdict = (
                    ("≤ 1×", "met" if mine <= theirs else "MISSED") if name == "batch_ms" else ("", "")
                )
                texts = [f"{mine / theirs:.2f}× ({mine:.0f} / {theirs:.0f})", "", goal_text, verdict]
                rows.append([f"kohort / {peer}, {label}", *texts])
    for peer in GOALS:
        mine, theirs = (
            measured.middle("start", "noop", 100, "none", who, "around_s") for who in ("kohort", peer)
        )
        if mine is not None and theirs is not None:
            text = f"{mine / theirs:.2f}× ({mine:.2f} / {theirs:.2f})"
            rows.append([f"kohort / {peer}, start and end of a streaming query, s", text, "", "", ""])
    if measured.memory:
        peak, limit = measured.memory["peak_mb"], measured.memory["limit_mb"]
        words = [f"{peak:.0f} MB", "", f"≤ {limit:.0f} MB", "met" if peak <= limit else "MISSED"]
        rows.append(
            [f"memory of a worker that reads a partition of {measured.memory['topic_mb']:,.0f} MB", *words]
        )
    return rows


def markdown(rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:])]


def write(measured: Measured, scale: float, rounds: int, command: str, took_s: float, busy: float) -> None:
    body = [
        "## Spark",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {took_s:.0f} s, {rounds} rounds "
        f"after {WARM_UPS} to get warm, medians; load average before the run {busy:.1f}. Machine: {report.machine()}.",
        "One Kohort broker (`durability=os`) and Spark 4.2.0 (`local[2]`, heap of 4 GB, one for each of the connector, "
        "its tuned form and Kohort, which take turns); "
        f"{PARTITIONS} partitions, {rows_of(100, scale):,} rows of 100 B, {rows_of(1000, scale):,} rows of 1 KB, "
        "batches of 256 KB. Millions of rows a second from `load()` to the result, in brackets the CPU of JVM and "
        "Python together in µs per row. Every count and sum was checked; noop has none.",
        "",
        *markdown(table(measured)),
        "",
        *markdown(verdicts(measured)),
        "",
        "- connector: spark-sql-kafka-0-10 4.2.0 with its defaults. connector-tuned: larger fetches and polls and a "
        "short wait (`kafka.max.partition.fetch.bytes` 8 MB, `kafka.max.poll.records` 50,000, "
        "`kafka.fetch.max.wait.ms` 10).",
        "- kohort: the same program with one word changed; the session has "
        "`spark.python.unix.domain.socket.enabled`, as docs/spark.md advises. kohort-columns: with a `.schema(…)` that "
        "names the column which the query needs; the others are not decoded.",
        "- ready-made: a Python source that reads nothing and yields Arrow batches of the same columns, which are made "
        "already: the most that a source in Python can reach with this Spark.",
        "- available-now: one micro-batch, `foreachBatch` with the same action; Spark's triggerExecution. What the "
        "query takes before and after that is a row of its own: ours has a Python process for the driver's "
        "side, which is forked from one that has loaded the modules (docs/spark.md, Speed). CPU has all of it.",
        f"- micro-batch: {MICRO_ROWS:,} rows with `maxOffsetsPerTrigger` 1,000 into the noop sink; Spark's "
        "triggerExecution.",
        f"- memory: Python workers had a limit of {LIMIT_MB} MB (`spark.executor.pyspark.memory`, of the address "
        "space); the figure is the most that one had resident. The topic is compressed with lz4; its size is that of "
        "the values.",
        "",
        "![spark](results-spark.png)",
        "",
        *(f"- FAILED: {trouble}" for trouble in measured.trouble),
    ]
    report.replace_section("spark", body)
    draw(measured, report.HERE / "results-spark.png")


def draw(measured: Measured, path: Path) -> None:
    """Rows a second of every contender, ours in colour."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, panels = pyplot.subplots(2, 1, figsize=(11, 8), dpi=130)
    colours = ("#c3c9d0", "#8a94a0", "#2a7f62", "#61b596", "#e8ebee")
    for panel, mode in zip(panels, MODES, strict=True):
        groups = [case for case in cases() if case[0] == mode]
        for place, who in enumerate(CONTENDERS):
            rates = [(measured.middle(*case, who, "per_s") or 0) / 1e6 for case in groups]
            bars = panel.bar(
                [n + (place - 2) * 0.17 for n in range(len(groups))],
                rates,
                width=0.16,
                color=colours[place],
                label=who,
            )
            panel.bar_label(bars, [f"{rate:.2g}" if rate else "" for rate in rates], fontsize=6, padding=1)
        panel.set_xticks(
            range(len(groups)), [name_of(*case).partition(" ")[2] for case in groups], fontsize=7, rotation=12
        )
        panel.set_title(f"{mode}, millions of rows a second", fontsize=9)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[0].legend(fontsize=8, frameon=False)
    picture.tight_layout()
    picture.savefig(path)
    pyplot.close(picture)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of rows (default 1)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="every figure is a median of so many (default 3)"
    )
    parser.add_argument(
        "--only", nargs="*", default=(), choices=CONTENDERS, help="some contenders; writes nothing"
    )
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of what ends the broker and Spark
    begun, busy = time.monotonic(), os.getloadavg()[0]

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    scale, rounds = (0.2, 1) if options.quick else (options.scale, options.rounds)
    if not options.quick:
        use_once(say)
    measured = measure(scale, rounds, tuple(options.only), say)
    for rows in (table(measured), verdicts(measured)):
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not options.quick and not options.only:
        command = " ".join(["python -m benchmarks.spark", *sys.argv[1:]])
        write(measured, scale, rounds, command, time.monotonic() - begun, busy)
        print(f"written: {report.HERE}/RESULTS.md, results-spark.png")
    return 1 if measured.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
