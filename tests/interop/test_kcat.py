"""kcat (Debian; librdkafka) on a broker process."""

from __future__ import annotations

import json
import time

import pytest
from benchmarks import outside
from benchmarks.targets import Target

from .conftest import run

pytestmark = pytest.mark.interop
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def kcat(broker: Target, arguments: str, stdin: str = "") -> str:
    return run([outside.program("kcat"), "-b", broker.address, *arguments.split()], stdin=stdin, timeout_s=40)


@pytest.mark.parametrize("idempotent", ["true", "false"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_it_produces_it_consumes(broker: Target, codec: str, idempotent: str) -> None:
    topic = f"kcat-{codec}-{idempotent}"
    lines = [f"key-{i}:value-{i}" for i in range(2000)]
    kcat(broker, f"-P -t {topic} -K : -z {codec} -X enable.idempotence={idempotent}", "\n".join(lines) + "\n")
    # librdkafka's own check of every batch's CRC is on
    said = kcat(broker, f"-C -t {topic} -e -q -o beginning -X check.crcs=true -f %k:%s:%o\\n")
    assert said.splitlines() == [f"{line}:{i}" for i, line in enumerate(lines)]
    assert kcat(broker, f"-C -t {topic} -e -q -o -3 -f %o\\n").split() == ["1997", "1998", "1999"]
    assert kcat(broker, f"-C -t {topic} -q -o 77 -c 2 -f %o\\n").split() == ["77", "78"]


def test_headers_null_values_and_several_partitions(broker: Target) -> None:
    kcat(broker, "-P -t kcat-more -K : -Z -H a=1 -H b=2", "k:\n")
    assert kcat(broker, "-C -t kcat-more -e -q -f %k|%S|%h\\n").strip() == "k|-1|a=1,b=2"


def test_metadata(broker: Target) -> None:
    kcat(broker, "-P -t kcat-listed", "x\n")
    listed = json.loads(kcat(broker, "-L -J"))
    assert [f"{node['name']}" for node in listed["brokers"]] == [broker.address]
    (topic,) = [topic for topic in listed["topics"] if topic["topic"] == "kcat-listed"]
    node = listed["brokers"][0]["id"]
    assert topic["partitions"] == [
        {"partition": 0, "leader": node, "replicas": [{"id": node}], "isrs": [{"id": node}]},
    ]


def test_offsets_by_time(broker: Target) -> None:
    before = int(time.time() * 1000)
    kcat(broker, "-P -t kcat-timed", "a\nb\n")
    after = int(time.time() * 1000) + 60_000
    for at, offset in ((before - 1, 0), (-2, 0), (-1, 2), (after, -1)):
        assert kcat(broker, f"-Q -t kcat-timed:0:{at}").strip() == f"kcat-timed [0] offset {offset}", at
