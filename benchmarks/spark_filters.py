"""`python -m benchmarks.spark_filters`: an hour of a hundred, a count and a limit, beside Spark's own connector.

All contenders take turns in one Spark; every result is checked. Writes its part of benchmarks/RESULTS.md.
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
from dataclasses import dataclass, field
from typing import Any

from benchmarks import report, targets
from benchmarks.client_load import values
from benchmarks.memory import use_once
from benchmarks.spark_process import SparkProcess

TOPIC, PARTITIONS, HOURS, SIZE = "hours", 4, 100, 100
ROWS = 10_000_000
HOUR_MS = 3_600_000
WARM_UPS = 1
LIMIT_S = 1_500
GOAL = 1 / 20
LIMITED = 10
# What is asked -> who answers it, in the order of the table; the first is the measure.
CONTENDERS = {
    "hour": ("connector", "connector-tuned", "connector-time", "kohort-all", "kohort-where", "kohort-pushed"),
    "count": ("connector", "connector-tuned", "kohort", "kohort-headers", "kohort-offsets"),
    "limit": ("connector", "connector-tuned", "kohort"),
}
LABELS = {
    "hour": "the last hour of a hundred, sum(length(value))",
    "count": "count of all",
    "limit": f"limit({LIMITED})",
}


@dataclass(slots=True)
class Measured:
    """(question, contender) -> seconds of each round."""

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)

    def middle(self, question: str, contender: str) -> float | None:
        found = self.seconds.get((question, contender))
        return statistics.median(found) if found else None

    def ratio(self, question: str, contender: str) -> float | None:
        """Of the time to that of the connector with its defaults."""
        mine, theirs = self.middle(question, contender), self.middle(question, CONTENDERS[question][0])
        return None if mine is None or theirs is None else mine / theirs


# --- the topic ----------------------------------------------------------------------------------------


def fill(address: str, rows: int, begin_ms: int) -> None:
    """Records at even distances over a hundred hours, in all partitions alike."""
    import pyarrow as pa

    from kohort import Admin, Producer

    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(TOPIC, PARTITIONS, configs={"retention.ms": -1})
    made, at_once = values(SIZE, 1000), 20_000
    settings: dict[str, Any] = {"buffer_memory": 256 << 20, "max_request_size": 256 << 10}
    with Producer(bootstrap_servers=address, **settings) as producer:
        for begin in range(0, rows, at_once):
            numbers = range(begin, min(begin + at_once, rows))
            columns = {
                "value": pa.array([made[n % 1000] for n in numbers], pa.binary()),
                "partition": pa.array([n % PARTITIONS for n in numbers], pa.int32()),
                "timestamp": pa.array([begin_ms + n * HOURS * HOUR_MS // rows for n in numbers], pa.int64()),
            }
            producer.send_arrow(TOPIC, pa.table(columns)).result(60)


# --- Spark at work, in a process of its own -----------------------------------------------------------


def work(address: str, last_hour_ms: int, configuration: dict[str, str]) -> None:
    """Reads questions from stdin, a JSON list of question and contender each, and prints seconds and result."""
    from benchmarks.spark_load import Bench

    bench = Bench(address, **configuration, **{"spark.sql.python.filterPushdown.enabled": "true"})
    for line in sys.stdin:
        question, contender = json.loads(line)
        try:
            missing = contender.startswith("connector") and bench.missing
            done: dict[str, Any] = {"missing": bench.missing} if missing else {}
            if not missing:
                began = time.perf_counter()
                result = ask(bench.spark, address, last_hour_ms, question, contender)
                done = {"seconds": time.perf_counter() - began, "result": result}
        except Exception as error:
            done = {"failed": str(error)[-500:]}
        print(json.dumps({"question": question, "contender": contender, **done}), flush=True)
    bench.spark.stop()


def ask(spark: Any, address: str, last_hour_ms: int, question: str, contender: str) -> int:
    from benchmarks.spark_load import TUNED

    options = {"kafka.bootstrap.servers": address, "subscribe": TOPIC, "startingOffsets": "earliest"}
    if contender == "connector-tuned":
        options |= TUNED
    if contender == "connector-time":
        options["startingTimestamp"] = str(last_hour_ms)
    if contender == "kohort-where":
        options["where"] = f"timestamp >= {last_hour_ms}"
    if contender == "kohort-pushed":
        options["filterPushdown"] = "true"
    if contender in ("kohort-headers", "kohort-offsets"):
        from kohort.spark import count

        return count(spark, options, from_offsets=contender == "kohort-offsets")
    kind = "kafka" if contender.startswith("connector") else "kohort"
    frame = spark.read.format(kind).options(**options).load()
    if question == "count":
        return int(frame.count())
    if question == "limit":
        return len(frame.limit(LIMITED).collect())
    if contender != "kohort-where":
        frame = frame.where(f"timestamp >= timestamp_millis({last_hour_ms})")
    return int(frame.selectExpr("sum(length(value)) AS total").collect()[0].total or 0)


def turns(rounds: int) -> Iterator[tuple[int, str, str]]:
    for number in range(-WARM_UPS, rounds):
        for question, contenders in CONTENDERS.items():
            for contender in contenders:
                yield number, question, contender


def measure(rows: int, rounds: int, configuration: dict[str, str], say: Callable[[str], None]) -> Measured:
    measured = Measured()
    begin_ms = int(time.time() * 1000) - HOURS * HOUR_MS
    last_hour_ms = begin_ms + (HOURS - 1) * HOUR_MS
    in_last_hour = sum(
        begin_ms + n * HOURS * HOUR_MS // rows >= last_hour_ms for n in range(rows * 98 // 100, rows)
    )
    expected = {"hour": in_last_hour * SIZE, "count": rows, "limit": LIMITED}
    with targets.workshop() as place:
        broker = targets.kohort(place / "broker", "durability=os", name="kohort-os")
        spark: SparkProcess | None = None
        try:
            fill(broker.address, rows, begin_ms)
            say(f"topic written: {rows:,} rows of {SIZE} B over {HOURS} hours")
            given = [broker.address, str(last_hour_ms), json.dumps(configuration)]
            spark = SparkProcess(place, "benchmarks.spark_filters", "--work", *given)
            until = time.monotonic() + LIMIT_S
            for number, question, contender in turns(rounds):
                done = spark.ask([question, contender], max(1.0, until - time.monotonic()))
                what = f"{question} {contender}"
                if "seconds" not in done:
                    words = f"{what}: {done.get('missing') or done.get('failed')}"
                    if words not in measured.trouble:
                        measured.trouble.append(words)
                        say(f"FAILED {words}")
                    continue
                if done["result"] != expected[question]:
                    measured.trouble.append(f"{what}: {done['result']}, not {expected[question]}")
                say(f"{'warm-up ' if number < 0 else ''}{what}: {done['seconds']:.2f} s")
                if number >= 0:
                    measured.seconds.setdefault((question, contender), []).append(done["seconds"])
        finally:
            if spark is not None:
                spark.close()
            broker.kill()
    return measured


# --- what came out ------------------------------------------------------------------------------------


def table(measured: Measured, topic_is_whole: bool = True) -> list[list[str]]:
    """The goal is for the whole topic: what planning a query takes does not shrink with it."""
    rows = [["question", "answered by", "s", "of the connector's time", "goal", ""]]
    for question, contenders in CONTENDERS.items():
        for contender in contenders:
            seconds, ratio = measured.middle(question, contender), measured.ratio(question, contender)
            if seconds is None:
                continue
            cells = [LABELS[question], contender, f"{seconds:.2f}", "–" if ratio is None else f"{ratio:.3f}×"]
            has_goal = topic_is_whole and question == "hour"
            if ratio is not None and has_goal and contender in ("kohort-where", "kohort-pushed"):
                cells += [f"≤ 1/{1 / GOAL:.0f}", "met" if ratio <= GOAL else "MISSED"]
            rows.append([*cells, *[""] * (6 - len(cells))])
    return rows


def write(measured: Measured, rows: int, rounds: int, command: str, took_s: float, busy: float) -> None:
    lines = table(measured, rows >= ROWS)
    body = [
        "## Spark reads less",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {took_s:.0f} s, {rounds} rounds after "
        f"{WARM_UPS} to get warm, medians; load average before the run {busy:.1f}. Machine: {report.machine()}.",
        f"One Kohort broker (`durability=os`) and one Spark 4.2.0 (`local[2]`) for all, who take turns; {PARTITIONS} "
        f"partitions, {rows:,} rows of {SIZE} B whose timestamps are spread over {HOURS} hours. Seconds from `load()` "
        "to the result; every result was checked.",
        "",
        *["| " + " | ".join(row) + " |" for row in (lines[0], ["---"] * len(lines[0]), *lines[1:])],
        "",
        "- connector: spark-sql-kafka-0-10 4.2.0 with its defaults and `where` on the timestamp; connector-tuned: with "
        "the settings of the section above; connector-time: with `startingTimestamp` besides, which a user must know.",
        "- kohort-all: `where` on the frame, without pushing it; kohort-where: the option `where`; kohort-pushed: "
        "`filterPushdown=true` and `where` on the frame.",
        "- kohort-headers, kohort-offsets: `kohort.spark.count`; kohort: `count()` of the frame.",
        "",
        *(f"- FAILED: {trouble}" for trouble in measured.trouble),
    ]
    report.replace_section("spark-filters", body)


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_filters", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows (default 1)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="every figure is a median of so many (default 3)"
    )
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of what ends the broker and Spark
    begun, busy = time.monotonic(), os.getloadavg()[0]

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    scale, rounds = (0.1, 1) if options.quick else (options.scale, options.rounds)
    small = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Xms1g"}
    if not options.quick:
        use_once(say)
    rows = int(ROWS * scale)
    measured = measure(rows, rounds, small if options.quick else {}, say)
    lines = table(measured, rows >= ROWS)
    widths = [max(len(row[column]) for row in lines) for column in range(len(lines[0]))]
    for row in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not options.quick:
        command = " ".join(["python -m benchmarks.spark_filters", *sys.argv[1:]])
        write(measured, rows, rounds, command, time.monotonic() - begun, busy)
        print(f"written: {report.HERE}/RESULTS.md")
    return 1 if measured.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
