"""Spark at work: `python -m benchmarks.spark_load ADDRESS [NAME=VALUE …]`, a process with one Spark.

Reads one job after the other from stdin, a line of JSON each, and prints one line of JSON for each: seconds, CPU of the
whole family of processes (this one, the JVM, the Python workers), and the result, which whoever asked can check.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import outside, targets
from benchmarks.spark_ready_made import ready_made_source

_TICKS = os.sysconf("SC_CLK_TCK")
# The connector as someone tunes it who has read all about it.
TUNED = {
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "50000",
    "kafka.receive.buffer.bytes": str(1 << 20),
}
# Contender -> format and options.
CONTENDERS: dict[str, tuple[str, dict[str, str]]] = {
    "connector": ("kafka", {}),
    "connector-tuned": ("kafka", TUNED),
    "kohort": ("kohort", {}),
    "kohort-columns": ("kohort", {}),
    "ready-made": ("ready-made", {"tasks": "4"}),
}
# What a query needs, for those who say so.
NEEDED = {"count": "offset bigint", "sum": "value binary"}
CONFIGURATION = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.log.level": "OFF",
    # Room for the consumers that the connector keeps for five minutes: with 2 GB and large fetches it ran out of memory
    # in the third round. All of it is there from the start, in memory that was used before: while the heap grew,
    # whichever query ran then paid for new pages (up to 127,000 of them, 1.8 s instead of 0.6).
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-Xms4g -XX:+AlwaysPreTouch",
    # As docs/spark.md advises and `kohort pipeline` does; the connector has no Python workers to talk to.
    "spark.python.unix.domain.socket.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class Job:
    contender: str
    topic: str
    query: str  # noop, count, sum
    mode: str  # batch, available-now, micro
    note: str = ""
    """Comes back with the result."""
    rows: int = 0
    size: int = 0


def cpu_s() -> float:
    """Of this process and all below it, those that have ended already included."""
    used = 0
    for pid in targets.family(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used += sum(map(int, fields[11:15]))
    return used / _TICKS


def worker_memory() -> dict[str, float]:
    """The most that a Python worker below us has ever had in memory, and the limit that it was given; 0: none."""
    peak = limit = 0.0
    for pid in targets.family(os.getpid())[1:]:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            limits = Path(f"/proc/{pid}/limits").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if "java" in fields["Name"] or "VmHWM" not in fields:
            continue
        peak = max(peak, int(fields["VmHWM"].split()[0]) / 1024)
        found = re.search(r"Max address space\s+(\d+)", limits)
        limit = max(limit, int(found[1]) / (1 << 20) if found else 0.0)
    return {"peak_mb": peak, "limit_mb": limit}


class Bench:
    def __init__(self, address: str, **configuration: str) -> None:
        from kohort.spark.java import use_java

        use_java()
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        from pyspark.sql import SparkSession

        self.missing = ""
        builder = SparkSession.builder.master("local[2]").appName("kohort benchmark")
        for name, value in {**CONFIGURATION, **configuration}.items():
            builder = builder.config(name, value)
        try:
            jars = ",".join(map(str, outside.connector_jars()))
            builder = builder.config("spark.jars", jars)
        except outside.Missing as missing:
            self.missing = str(missing)
        self.spark = builder.getOrCreate()
        self.spark.dataSource.register(ready_made_source())
        self._address = address

    def do(self, job: Job) -> dict[str, Any]:
        if self.missing and CONTENDERS[job.contender][0] == "kafka":
            return {"missing": self.missing}
        if job.mode == "micro":
            return self._micro(job)
        cpu, began = cpu_s(), time.perf_counter()
        if job.mode == "batch":
            result = self._act(self._load(self.spark.read, job), job.query)
            seconds = time.perf_counter() - began
            return {"seconds": seconds, "cpu_s": cpu_s() - cpu, "result": result, **worker_memory()}
        result, seconds = self._stream(job)
        around_s = time.perf_counter() - began - seconds
        return {"seconds": seconds, "around_s": around_s, "cpu_s": cpu_s() - cpu, "result": result}

    def _load(self, reader: Any, job: Job, **more: str) -> Any:
        kind, options = CONTENDERS[job.contender]
        if kind == "ready-made":
            return reader.format(kind).options(rows=job.rows, size=job.size, **options).load()
        reader = reader.format(kind).option("kafka.bootstrap.servers", self._address)
        given = {"subscribe": job.topic, "startingOffsets": "earliest", **options, **more}
        if job.contender == "kohort-columns" and job.query in NEEDED:
            reader = reader.schema(NEEDED[job.query])
        return reader.options(**given).load()

    def _act(self, frame: Any, query: str) -> int | None:
        if query == "noop":
            frame.write.format("noop").mode("overwrite").save()
            return None
        if query == "count":
            return int(frame.count())
        return int(frame.selectExpr("sum(length(value)) AS total").collect()[0].total or 0)

    def _stream(self, job: Job) -> tuple[int | None, float]:
        """All that is there, in one micro-batch: the result, and how long that batch took."""
        results: list[int | None] = []
        with tempfile.TemporaryDirectory() as folder:
            stream = self._load(self.spark.readStream, job)
            writer = stream.writeStream.foreachBatch(
                lambda frame, _: results.append(self._act(frame, job.query))
            )
            query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
            assert query.awaitTermination(120), "the query does not end"
            took_ms = sum(report["durationMs"]["triggerExecution"] for report in query.recentProgress)
        return None if job.query == "noop" else sum(result or 0 for result in results), took_ms / 1000

    def _micro(self, job: Job) -> dict[str, Any]:
        """Micro-batches of 1,000 rows: how long one takes, from trigger to trigger."""
        with tempfile.TemporaryDirectory() as folder:
            stream = self._load(self.spark.readStream, job, maxOffsetsPerTrigger="1000")
            writer = stream.writeStream.format("noop").option("checkpointLocation", folder)
            cpu = cpu_s()
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(120), "the query does not end"
            cpu = cpu_s() - cpu
            reports = [report for report in query.recentProgress if report["numInputRows"]]
        took = [report["durationMs"]["triggerExecution"] for report in reports]
        rows = sum(report["numInputRows"] for report in reports)
        return {"batch_ms": took[3:], "cpu_s": cpu / max(1, len(reports)), "result": rows}


def main() -> int:
    address, given = sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:])
    bench = Bench(address, **given)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        try:
            done = bench.do(job)
        except Exception as error:
            done = {"failed": str(error)[-500:]}
        print(json.dumps({**asdict(job), **done}), flush=True)
    bench.spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
