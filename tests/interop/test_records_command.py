"""`kohort produce`, `consume` and `topics` beside kcat and Kafka's console tools, on Kohort and on Apache Kafka."""

from __future__ import annotations

import json
import time

import pytest
from benchmarks import outside
from benchmarks.targets import Target

from tests.cli.command_line import Ran, run_kohort

from .apache_kafka import ApacheKafka
from .conftest import Run, run

pytestmark = pytest.mark.interop
FORMAT = r"%t|%p|%o|%k|%K|%s|%S|%T|%h|%%\t\x41\n"


@pytest.fixture(params=["kohort", "kafka"])
def address(request: pytest.FixtureRequest) -> str:
    """A broker of each kind."""
    if request.param == "kohort":
        target: Target = request.getfixturevalue("broker")
        return target.address
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap_servers


@pytest.fixture
def topic(address: str) -> str:
    name = f"records-{time.monotonic_ns()}"
    assert ours(address, "topics", "create", name, "--partitions", "1").code == 0
    return name


def ours(address: str, *arguments: str, stdin: bytes = b"") -> Ran:
    ran = run_kohort(*arguments, "--bootstrap", address, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


def kcat(address: str, *arguments: str, stdin: bytes = b"") -> str:
    return run([outside.program("kcat"), "-b", address, *arguments], stdin=stdin, timeout_s=40)


def test_what_kcat_writes_both_print_alike(address, topic):
    kcat(
        address,
        "-P",
        "-t",
        topic,
        "-K",
        ":",
        "-Z",
        "-H",
        "a=1",
        "-H",
        "b=",
        "-H",
        "c",
        stdin=b"k1:v1\n:v2\nv3\nk4:\n",
    )
    theirs = kcat(address, "-C", "-t", topic, "-e", "-q", "-f", FORMAT)
    assert len(theirs.splitlines()) == 4
    assert ours(address, "consume", topic, "-e", "-f", FORMAT).out.decode() == theirs
    for options in (["-o", "-2"], ["-o", "3"], ["-K", ":"], ["-K", ":", "-Z"], ["-D", ";"]):
        there = kcat(address, "-C", "-t", topic, "-e", "-q", *options)
        assert ours(address, "consume", topic, "-e", *options).out.decode() == there, options


def test_what_we_write_kcat_reads(address, topic):
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        options = ["-K", ":", "-H", "h=1", "-Z", "-z", codec, "-q"]
        ours(address, "produce", topic, *options, stdin=b"k1:v1\n:v2\nv3\nk4:\n")
    read = kcat(address, "-C", "-t", topic, "-e", "-q", "-X", "check.crcs=true", "-f", "%k|%K|%s|%S|%h\\n")
    assert read.splitlines() == ["k1|2|v1|2|h=1", "|-1|v2|2|h=1", "|-1|v3|2|h=1", "k4|2||-1|h=1"] * 5


def test_numbers_are_read_as_kcat_reads_them(address, topic):
    ours(address, "produce", topic, "-s", "int", "-q", stdin=b"1\n-2\n")
    theirs = kcat(address, "-C", "-t", topic, "-e", "-q", "-s", "value=>i$")
    assert ours(address, "consume", topic, "-e", "-s", "value=>i$").out.decode() == theirs == "1\n-2\n"


def test_a_group_of_ours(address, topic):
    ours(address, "produce", topic, "-q", stdin=b"a\nb\nc\n")
    group = f"group-of-{topic}"
    assert ours(address, "consume", topic, "-G", group, "-o", "beginning", "-c", "2").lines == ["a", "b"]
    assert ours(address, "consume", topic, "-G", group, "-e").lines == ["c"]


def test_fifty_megabytes(address, topic, tmp_path):
    file = tmp_path / "large"
    file.write_bytes(bytes(range(256)) * 4 * 1024 * 50)
    ours(address, "topics", "alter", topic, "--set", "max.message.bytes=60000000")
    large = ["-X", "max.request.size=60000000", "-X", "buffer.memory=200000000", "-q"]
    ours(address, "produce", topic, "--whole", str(file), *large)
    assert ours(address, "consume", topic, "-e", "--raw").out == file.read_bytes()


def test_topics_as_kafkas_tool_shows_them(address, topic, java: Run):
    ours(address, "topics", "alter", topic, "--set", "retention.ms=3600000", "--partitions", "2")
    tool = "org.apache.kafka.tools.TopicCommand"
    shown = java(tool, "--bootstrap-server", address, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in shown
    assert "retention.ms=3600000" in shown
    (described,) = json.loads(ours(address, "topics", "describe", topic, "--json").out)
    assert described["settings"]["retention.ms"] == "3600000"
    assert len(described["partitions"]) == 2
    ours(address, "topics", "delete", topic, "--yes")
    assert topic not in java(tool, "--bootstrap-server", address, "--list").split()


def test_the_console_tools_beside_ours(address, topic, java: Run):
    properties = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    producer = "org.apache.kafka.tools.ConsoleProducer"
    java(producer, "--bootstrap-server", address, "--topic", topic, *properties, stdin="k1:v1\nk2:v2\n")
    assert ours(address, "consume", topic, "-e", "-K", ":").lines == ["k1:v1", "k2:v2"]
    ours(address, "produce", topic, "-K", ":", "-q", stdin=b"k3:v3\n")
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    shown = java(
        consumer, "--bootstrap-server", address, "--topic", topic, "--from-beginning", "--max-messages", "3",
        "--formatter-property", "print.key=true", "--formatter-property", "key.separator=:",
    )  # fmt: skip
    assert shown.splitlines() == ["k1:v1", "k2:v2", "k3:v3"]
