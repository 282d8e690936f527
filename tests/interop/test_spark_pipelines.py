"""Pipelines with what comes from outside: PostgreSQL (Debian), from_avro (Maven), the groups of an Apache Kafka.

Each runs as `kohort pipeline run …`, in a process of its own.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from benchmarks import outside, targets

from kohort import Consumer, Producer
from tests.clients.process import KOHORT, eventually
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.postgres import Postgres

pytestmark = pytest.mark.interop

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
PSYCOPG = "psycopg[binary]==3.3.8"
AVRO = ("org.apache.spark", "spark-avro_2.13", "4.1.1")  # works with Spark 4.2
ORDERS = 400


def run_pipeline(folder: Path, name: str, address: str, *words: str, **environ: str) -> subprocess.Popen[str]:
    command = [
        str(KOHORT), "pipeline", "run", name, "--bootstrap", address, "--once", "--master", "local[2]",
        "--state", str(folder / "state"), *words,
    ]  # fmt: skip
    with (folder / "run.log").open("a") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, text=True, env={**os.environ, **environ})


def finished(process: subprocess.Popen[str], folder: Path) -> None:
    try:
        assert process.wait(200) == 0, (folder / "run.log").read_text()[-4000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(20)


def send(address: str, topic: str, values: list[bytes]) -> None:
    with Producer(bootstrap_servers=address) as producer:
        for value in values:
            producer.send(topic, value=value)


# --- PostgreSQL -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def psycopg() -> Path:
    """The folder with the driver; it is no dependency of ours."""
    folder = outside.cache() / PSYCOPG
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=outside.cache()) as work:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{work}/it", PSYCOPG]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode:
                raise outside.Missing(f"pip could not get {PSYCOPG}: {done.stderr[-400:]}")
            Path(work, "it").rename(folder)
    return folder


def test_orders_are_in_postgresql_exactly_once_though_the_pipeline_is_killed(
    tmp_path: Path, start_broker: Callable[..., targets.Target], postgres: Postgres, psycopg: Path
) -> None:
    address = start_broker().address
    orders = [json.dumps({"id": n, "customer": f"c{n % 5}", "amount": n / 2}).encode() for n in range(ORDERS)]
    send(address, "orders", orders)
    example, path = str(EXAMPLES / "orders_postgres.py"), str(psycopg)
    words = ("--set", f"dsn={postgres.dsn}", "--set", "maxOffsetsPerTrigger=20")

    def rows() -> int:
        answer = postgres.ask("SELECT count(*) FROM orders")
        return int(answer[0]) if answer else 0

    first = run_pipeline(tmp_path, example, address, *words, PYTHONPATH=path)
    eventually(lambda: rows() > 0 or first.poll() is not None, "the first rows are there", timeout_s=300)
    first.kill()
    first.wait(20)
    assert 0 < rows() < ORDERS, (tmp_path / "run.log").read_text()[-4000:]
    finished(run_pipeline(tmp_path, example, address, *words, PYTHONPATH=path), tmp_path)
    assert postgres.ask("SELECT count(*), count(DISTINCT id), sum(id) FROM orders") == [
        f"{ORDERS}|{ORDERS}|{ORDERS * (ORDERS - 1) // 2}"
    ]
    assert postgres.ask("SELECT sum(next_offset) FROM orders_offsets") == [str(ORDERS)]


# --- Avro -----------------------------------------------------------------------------------------------


def zigzag(number: int) -> bytes:
    """An Avro long."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def test_orders_as_avro_without_a_registry(
    tmp_path: Path, start_broker: Callable[..., targets.Target]
) -> None:
    jars = outside._maven("spark-avro-4.1.1", (AVRO,), "spark-avro*.jar", "from_avro", alone=True)
    address = start_broker().address
    orders = [zigzag(n) + zigzag(4) + b"anna" + struct.pack("<d", n / 2) for n in range(100)]
    send(address, "orders-avro", [*orders, b"\xff"])
    out = tmp_path / "out"
    words = ("--set", f"out={out}", "--set", f"spark.jars={','.join(map(str, jars.glob('*.jar')))}")
    finished(run_pipeline(tmp_path, str(EXAMPLES / "orders_avro.py"), address, *words), tmp_path)
    rows = rows_of(out)
    assert sorted((row["id"], row["amount"]) for row in rows if row["id"] is not None) == [
        (n, n / 2) for n in range(100)
    ]
    assert [row["customer"] for row in rows].count("anna") == 100
    assert len(rows) == 101  # what is no Avro is a row of nulls


def rows_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        pyarrow.dataset.dataset(str(folder), format="parquet").to_table().to_pylist()
    )
    return found


# --- group-history --------------------------------------------------------------------------------------


def test_the_history_of_an_apache_kafkas_groups(tmp_path: Path, apache_kafka: ApacheKafka) -> None:
    address = apache_kafka.target.address
    send(address, "history", [b"%d" % n for n in range(30)])
    for client_id, count in (("first", 10), ("second", 10)):
        settings = {"group.id": "historians", "auto.offset.reset": "earliest", "client.id": client_id}
        with Consumer({"bootstrap.servers": address, **settings}) as consumer:
            consumer.subscribe(["history"])
            left = count
            while left:
                left -= sum(len(records) for records in consumer.poll(10, max_records=left).values())
            consumer.commit()
    out = tmp_path / "out"
    finished(run_pipeline(tmp_path, "group-history", address, "--out", str(out)), tmp_path)
    commits = [row for row in rows_of(out / "commits") if row["group_id"] == "historians"]
    assert max(row["committed_offset"] for row in commits if row["topic"] == "history") == 20
    members = [row for row in rows_of(out / "memberships") if row["group_id"] == "historians"]
    assert {row["client_id"] for row in members} == {"first", "second"}
    assert all(row["topic"] == "history" for row in members)
    rebalances = [row for row in rows_of(out / "rebalances") if row["group_id"] == "historians"]
    assert {len(row["came"]) for row in rebalances if row["members"]} == {1}
    lag = [row for row in rows_of(out / "lag") if row["group_id"] == "historians"]
    last = max(row["at"] for row in lag)
    assert sum(row["lag"] for row in lag if row["at"] == last) == 10  # in whichever partition they are
    assert "historians" in (out / "report" / "index.html").read_text()
