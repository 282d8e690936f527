"""`python -m benchmarks.spark_formats`: typed records beside from_json, from_avro and from_protobuf, on one broker.

The connector, tuned, with Spark's function after it; our source with the same function after it; our source with
`valueFormat`. Each source has a Spark of its own; contenders take turns in every round, and every sum is checked.
Writes its part of benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import outside, report, targets
from benchmarks.memory import use_once
from benchmarks.spark import markdown
from benchmarks.spark_load import CONFIGURATION, TUNED, cpu_s
from benchmarks.spark_process import SparkProcess

FORMATS = ("json", "avro", "protobuf")
CONTENDERS = ("connector", "kohort-after", "kohort")
PARTITIONS = 4
ROWS = 600_000
WARM_UPS = 2
GOAL = 1.0
LIMIT_S = 1_200
DDL = "id bigint, customer string, amount double, quantity int, paid boolean, note string"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "amount", "type": "double"},
            {"name": "quantity", "type": "int"},
            {"name": "paid", "type": "boolean"},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)
PROTO = (
    'syntax = "proto3"; message Order { int64 id = 1; string customer = 2; double amount = 3; int32 quantity = 4; '
    "bool paid = 5; optional string note = 6; }"
)
# All fields are used: Spark leaves out of from_json what a query does not use, and so could .schema(…) with us.
SUMS = (
    "sum(v.id) AS id", "sum(length(v.customer)) AS customer", "sum(v.amount) AS amount", "sum(v.quantity) AS quantity",
    "count_if(v.paid) AS paid", "count(v.note) AS note",
)  # fmt: skip


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"customer-{number % 1000}",
        "amount": number * 0.25,
        "quantity": number % 7,
        "paid": number % 2 == 0,
        "note": None if number % 3 else "a gift, please wrap it",
    }


def expected(rows: int) -> dict[str, float]:
    made = [order(number) for number in range(rows)]
    return {
        "id": sum(row["id"] for row in made),
        "customer": sum(len(row["customer"]) for row in made),
        "amount": sum(row["amount"] for row in made),
        "quantity": sum(row["quantity"] for row in made),
        "paid": sum(row["paid"] for row in made),
        "note": sum(row["note"] is not None for row in made),
    }


def descriptors() -> bytes:
    from kohort.spark.formats.protobuf_schema import find_message

    return find_message(PROTO, {}, "Order", "messageName").descriptors


def encoder(name: str) -> Callable[[dict[str, Any]], bytes]:
    if name == "json":
        return lambda row: json.dumps(row).encode()
    if name == "avro":
        import fastavro

        schema = fastavro.parse_schema(json.loads(AVRO))

        def encode(row: dict[str, Any]) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, row)
            return out.getvalue()

        return encode
    from kohort.spark.formats.protobuf_decoder import message_class

    made = message_class(descriptors(), "Order")
    return lambda row: bytes(
        made(**{key: value for key, value in row.items() if value is not None}).SerializeToString()
    )


def fill(address: str, name: str, rows: int) -> float:
    """Writes a topic; returns the bytes of a value."""
    import pyarrow as pa

    from kohort import Admin, Producer

    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic(name, PARTITIONS)
    encode, total = encoder(name), 0
    with Producer(bootstrap_servers=address, max_request_size=256 << 10) as producer:
        for begin in range(0, rows, 20_000):
            numbers = range(begin, min(begin + 20_000, rows))
            values = [encode(order(number)) for number in numbers]
            total += sum(map(len, values))
            columns = {
                "value": pa.array(values, pa.binary()),
                "partition": pa.array([number * PARTITIONS // rows for number in numbers], pa.int32()),
            }
            producer.send_arrow(name, pa.table(columns)).result(60)
    return total / rows


# --- a process with one Spark ---------------------------------------------------------------------------------


class Bench:
    def __init__(self, address: str, home: str) -> None:
        from kohort.spark.java import use_java

        use_java()
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("kohort benchmark")
        jars = [*outside.avro_jars(), *(outside.connector_jars() if home == "connector" else ())]
        self._missing = ""
        try:
            jars += outside.protobuf_jars()
        except outside.Missing as missing:
            self._missing = str(missing)
        for name, value in {**CONFIGURATION, "spark.jars": ",".join(map(str, jars))}.items():
            builder = builder.config(name, value)
        self.spark, self._address = builder.getOrCreate(), address
        self._descriptors = Path(tempfile.mkdtemp(), "order.desc")
        self._descriptors.write_bytes(descriptors())

    def do(self, contender: str, name: str) -> dict[str, Any]:
        if self._missing and name == "protobuf" and contender != "kohort":
            return {"missing": self._missing}
        cpu, began = cpu_s(), time.perf_counter()
        row = self._frame(contender, name).selectExpr(*SUMS).collect()[0].asDict()
        return {"seconds": time.perf_counter() - began, "cpu_s": cpu_s() - cpu, "result": row}

    def _frame(self, contender: str, name: str) -> Any:
        reader = self.spark.read.format("kafka" if contender == "connector" else "kohort")
        reader = reader.option("kafka.bootstrap.servers", self._address).option("subscribe", name)
        if contender == "connector":
            return self._decoded(reader.options(**TUNED).load(), name)
        if contender == "kohort-after":
            return self._decoded(reader.schema("value binary").load(), name)
        schema = {"json": DDL, "avro": AVRO, "protobuf": PROTO}[name]
        reader = reader.option("valueFormat", name).option("valueSchema", schema)
        fields = DDL.replace(" ", ":").replace(",:", ",")
        return reader.schema(f"value struct<{fields}>").load().withColumnRenamed("value", "v")

    def _decoded(self, frame: Any, name: str) -> Any:
        from pyspark.sql.avro.functions import from_avro
        from pyspark.sql.functions import col, from_json
        from pyspark.sql.protobuf.functions import from_protobuf

        if name == "json":
            made = from_json(col("value").cast("string"), DDL)
        elif name == "avro":
            made = from_avro(col("value"), AVRO)
        else:
            made = from_protobuf(col("value"), "Order", descFilePath=str(self._descriptors))
        return frame.select(made.alias("v"))


def work(address: str, home: str) -> int:
    try:
        bench = Bench(address, home)
    except outside.Missing as missing:
        print(json.dumps({"failed": str(missing)}), flush=True)
        return 1
    for line in sys.stdin:
        contender, name = json.loads(line)
        try:
            done = bench.do(contender, name)
        except Exception as error:
            done = {"failed": str(error)[-500:]}
        print(json.dumps(done), flush=True)
    bench.spark.stop()
    return 0


# --- rounds -----------------------------------------------------------------------------------------------------

Figures = dict[tuple[str, str], dict[str, list[float]]]
"""(format, contender) -> figure -> values."""


def turns(rounds: int) -> Iterator[tuple[int, str, str]]:
    for number in range(-WARM_UPS, rounds):
        for name in FORMATS:
            for contender in CONTENDERS:
                yield number, name, contender


def measure(
    rows: int, rounds: int, say: Callable[[str], None]
) -> tuple[Figures, dict[str, float], list[str], list[str]]:
    """The figures, the sizes of the records, what went wrong, and which peers could not be had."""
    figures: Figures = {}
    trouble: list[str] = []
    missing: list[str] = []
    right = expected(rows)
    with targets.workshop() as place:
        broker = targets.kohort(place / "broker", "durability=os", name="kohort-os")
        workers: dict[str, SparkProcess] = {}
        try:
            sizes = {name: fill(broker.address, name, rows) for name in FORMATS}
            say(
                f"topics of {rows:,} rows: {', '.join(f'{name} {size:.0f} B' for name, size in sizes.items())}"
            )
            for home in ("connector", "kohort"):
                given = ["--work", broker.address, home]
                workers[home] = SparkProcess(place / home, "benchmarks.spark_formats", *given)
            until = time.monotonic() + LIMIT_S
            for number, name, contender in turns(rounds):
                worker = workers["connector" if contender == "connector" else "kohort"]
                done = worker.ask([contender, name], max(1.0, until - time.monotonic()))
                what = f"{'warm-up ' if number < 0 else ''}{name} {contender}"
                if "missing" in done:
                    if done["missing"] not in missing:
                        missing.append(done["missing"])
                        say(done["missing"])
                    continue
                if "failed" in done or done["result"] != right:
                    trouble.append(f"{what}: {done.get('failed') or done['result']}")
                    say(f"FAILED {trouble[-1]}")
                    continue
                rate, cpu_us = rows / done["seconds"], done["cpu_s"] / rows * 1e6
                say(f"{what}: {rate:,.0f} rows/s, {cpu_us:.2f} µs CPU")
                if number >= 0:
                    for key, value in (("per_s", rate), ("cpu_us", cpu_us)):
                        figures.setdefault((name, contender), {}).setdefault(key, []).append(value)
        finally:
            for worker in workers.values():
                worker.close()
            broker.kill()
    return figures, sizes, trouble, missing


def middle(figures: Figures, name: str, contender: str, key: str) -> float | None:
    found = figures.get((name, contender), {}).get(key)
    return statistics.median(found) if found else None


def table(figures: Figures) -> list[list[str]]:
    rows = [
        [
            "rows a second (CPU µs a row)",
            *CONTENDERS,
            "kohort / connector",
            "kohort / kohort-after",
            "goal",
            "",
        ]
    ]
    for name in FORMATS:
        cells, rates = [], {}
        for contender in CONTENDERS:
            rate, cpu = (middle(figures, name, contender, key) for key in ("per_s", "cpu_us"))
            rates[contender] = rate
            cells.append("" if rate is None or cpu is None else f"{rate / 1e6:.3g} M ({cpu:.2g})")
        ratios = []
        for peer in CONTENDERS[:2]:
            ours, theirs = rates["kohort"], rates[peer]
            ratios.append(None if ours is None or theirs is None else ours / theirs)
        met = [ratio > GOAL for ratio in ratios if ratio is not None]
        texts = ["" if ratio is None else f"{ratio:.2f}×" for ratio in ratios]
        rows.append(
            [name, *cells, *texts, f"> {GOAL:g}×", ("met" if all(met) else "MISSED") if met else "no peer"]
        )
    return rows


def sizes_of(sizes: dict[str, float]) -> str:
    return ", ".join(f"{name} {size:.0f} B" for name, size in sizes.items())


def write(figures: Figures, sizes: dict[str, float], notes: list[str], words: str, rows: int) -> None:
    body = [
        "## Spark: typed records",
        "",
        words,
        f"One Kohort broker (`durability=os`), Spark (`local[2]`, heap of 4 GB), {PARTITIONS} partitions, {rows:,} "
        f"orders of six fields in each format ({sizes_of(sizes)}). From "
        "`load()` to sums over all six fields, which were checked.",
        "",
        *markdown(table(figures)),
        "",
        "- connector: spark-sql-kafka-0-10, tuned as in the table of Spark, with `from_json`, `from_avro` or "
        "`from_protobuf` after it. kohort-after: our source with the column `value` and the same functions. "
        "kohort: `valueFormat`.",
        "",
        *(f"- {each}" for each in notes),
    ]
    report.replace_section("spark-formats", body)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_formats", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="every figure is a median of so many (default 3)"
    )
    parser.add_argument("--quick", action="store_true", help="one short round; writes nothing")
    parser.add_argument("--work", nargs=2, metavar=("ADDRESS", "HOME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(*options.work)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of what ends the broker and Spark
    begun, busy = time.monotonic(), os.getloadavg()[0]

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:4.0f} s] {text}", file=sys.stderr, flush=True)

    rows, rounds = (ROWS // 6, 1) if options.quick else (ROWS, options.rounds)
    if not options.quick:
        use_once(say)
    figures, sizes, trouble, missing = measure(rows, rounds, say)
    made = table(figures)
    widths = [max(len(row[column]) for row in made) for column in range(len(made[0]))]
    for row in made:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not options.quick:
        command = " ".join(["python -m benchmarks.spark_formats", *sys.argv[1:]])
        words = (
            f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {time.monotonic() - begun:.0f} s, "
            f"{rounds} rounds after {WARM_UPS} to get warm, medians; load average before the run {busy:.1f}. "
            f"Machine: {report.machine()}."
        )
        notes = [*(f"not measured: {each}" for each in missing), *(f"FAILED: {each}" for each in trouble)]
        write(figures, sizes, notes, words, rows)
        print(f"written: {report.HERE}/RESULTS.md")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
