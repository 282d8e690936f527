"""`valueFormat=avro` gives the types and the values of Spark's own from_avro, which comes from Maven."""

from __future__ import annotations

import datetime
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest
from benchmarks import outside

from kohort import Admin, Producer
from tests.clients.process import BrokerProcess, fixed_port

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = {
    "type": "record",
    "name": "All",
    "namespace": "shop",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "s", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "fix", "type": {"type": "fixed", "name": "F4", "size": 4}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "m", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "maybe", "type": ["null", "string"]},
        {"name": "either", "type": ["int", "string", "null"]},
        {"name": "number", "type": ["int", "long"]},
        {"name": "list", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "map", "type": {"type": "map", "values": "int"}},
        {
            "name": "inner",
            "type": ["null", {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}],
        },
    ],
}


def rows() -> list[dict[str, object]]:
    time = datetime.datetime(2024, 5, 17, 12, 0, 0, 123000, datetime.UTC)
    common: dict[str, object] = {
        "b": True,
        "i": -5,
        "l": 1 << 40,
        "f": 0.5,
        "d": 1e300,
        "s": "ü",
        "raw": b"\xff\x00",
        "fix": b"abcd",
        "color": "BLUE",
        "day": datetime.date(1969, 1, 2),
        "ms": time,
        "us": time,
        "local": time.replace(tzinfo=None),
        "m": Decimal("-12.34"),
        "id": "7b0bd3f0-6a52-4a3c-9d3f-0f0ffab6a1a1",
        "map": {"k": 1},
    }
    return [
        {**common, "maybe": None, "either": 5, "number": 1, "list": [1, None], "inner": None},
        {**common, "maybe": "x", "either": "five", "number": 1 << 40, "list": [], "inner": {"x": 1}},
        {**common, "maybe": "", "either": None, "number": 2, "list": [3], "inner": {"x": 2}},
    ]


def test_types_and_values_are_those_of_from_avro(tmp_path: Path) -> None:
    jars = ",".join(map(str, outside.avro_jars()))
    schema = fastavro.parse_schema(SCHEMA)
    with BrokerProcess(tmp_path / "broker", "durability=os", port=fixed_port()) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("all", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for row in rows():
                out = io.BytesIO()
                fastavro.schemaless_writer(out, schema, row)
                producer.send("all", value=out.getvalue())
        words = [broker.bootstrap_servers, "all", json.dumps(SCHEMA), jars]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        command = [sys.executable, "-m", "tests.interop.spark_formats_job", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=400, check=False, cwd=ROOT, env=environment
        )
    assert done.returncode == 0, done.stderr[-3000:]
    ours, theirs = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
