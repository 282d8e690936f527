"""`kohort produce` on a real broker: what becomes of lines, files and JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort import Consumer, Producer, Record
from kohort.broker.running import running
from kohort.cli.records.writing import RecordWriter
from tests.cli.command_line import PATIENCE_S, Ran, kohort_process, run_kohort


@pytest.fixture(scope="module")
def broker() -> Iterator[running]:
    with running(num_partitions=1) as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "t-" + "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]


def records_of(broker: running, topic: str) -> list[Record]:
    """All records of a topic, partition by partition."""
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        partitions = consumer.partitions_for(topic)
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        found: list[Record] = []
        while any(consumer.position(each) < ends[each] for each in partitions):
            for records in consumer.poll(1.0).values():
                found += records
        return sorted(found)


def produce(broker: running, *arguments: str, stdin: bytes = b"") -> Ran:
    return run_kohort("produce", *arguments, "--bootstrap", broker.bootstrap_servers, stdin=stdin)


def test_each_line_is_a_record(broker, topic):
    ran = produce(broker, topic, stdin=b"one\n\ntwo \xff\nthree")
    assert (ran.code, ran.out) == (0, b"")
    assert ran.err.startswith(f"kohort: 4 records written to {topic} in ")
    assert [each.value for each in records_of(broker, topic)] == [b"one", b"", b"two \xff", b"three"]


def test_keys_headers_nulls_and_partition(broker, topic):
    run_kohort("topics", "create", topic, "-p", "3", "--bootstrap", broker.bootstrap_servers)
    ran = produce(
        broker, topic, "-K", ":", "-k", "fixed", "-Z", "-H", "a=1=2", "-H", "b=", "-H", "c", "-p", "2", "-q",
        stdin=b"k1:v1\n:v2\nnone\nk3:\n",
    )  # fmt: skip
    assert ran == Ran(0, b"", "")
    found = records_of(broker, topic)
    assert [(each.key, each.value) for each in found] == [
        (b"k1", b"v1"), (None, b"v2"), (b"fixed", b"none"), (b"k3", None),
    ]  # fmt: skip
    assert {each.partition for each in found} == {2}
    assert found[0].headers == [("a", b"1=2"), ("b", b""), ("c", None)]


def test_delimiters_and_a_text_for_null(broker, topic):
    produce(broker, topic, "-D", r"\0;", "-K", r"\t", "--null", "NIL", stdin=b"a\t1\0;NIL\tNIL\0;b\t\n\0;")
    assert [(each.key, each.value) for each in records_of(broker, topic)] == [
        (b"a", b"1"), (None, None), (b"b", b"\n"),
    ]  # fmt: skip


def test_files_by_line_and_whole(broker, topic, tmp_path):
    one, two = tmp_path / "first file", tmp_path / "two"
    one.write_bytes(b"1\n2\n")
    two.write_bytes(b"3\r\n4")
    assert produce(broker, topic, str(one), str(two), "-z", "zstd").code == 0
    assert produce(broker, topic, "--whole", "-k", "file", str(one), str(two)).code == 0
    assert produce(broker, topic, str(one), "-", "-c", "3", "--tee", stdin=b"5\n6\n").out == b"1\n2\n5\n"
    found = [each.value for each in records_of(broker, topic)]
    assert found == [b"1", b"2", b"3\r", b"4", b"1\n2\n", b"3\r\n4", b"1", b"2", b"5"]


def test_json_lines(broker, topic):
    run_kohort("topics", "create", topic, "-p", "2", "--bootstrap", broker.bootstrap_servers)
    lines = [
        {"key": "k", "value": "grün", "partition": 1, "timestamp": 1_700_000_000_000},
        {"key_base64": "/w==", "value": None, "headers": {"h": "1"}, "partition": 0},
        {
            "value": {"a": [1, None]},
            "headers": [{"name": "h"}, {"name": "h", "value_base64": "AA=="}],
            "partition": 0,
        },
    ]
    stdin = "\n".join(map(json.dumps, lines)).encode()
    assert produce(broker, topic, "--json", stdin=stdin).code == 0
    second, third, first = records_of(broker, topic)
    assert (first.key, first.value, first.timestamp) == (b"k", "grün".encode(), 1_700_000_000_000)
    assert (second.key, second.value, second.headers) == (b"\xff", None, [("h", b"1")])
    assert (third.value, third.headers) == (b'{"a":[1,null]}', [("h", None), ("h", b"\0")])
    produce(broker, topic, "--json", "-p", "0", stdin=stdin)
    assert sum(each.partition for each in records_of(broker, topic)) == 1
    assert produce(broker, topic, "--json", "-p", "any", stdin=b'{"partition": 99, "value": ""}').code == 0


@pytest.mark.parametrize(
    ("name", "typed", "written"),
    [
        ("int", "-2", b"\xff\xff\xff\xfe"),
        ("long", "1", b"\0\0\0\0\0\0\0\1"),
        ("double", "0.5", b"\x3f\xe0\0\0\0\0\0\0"),
        ("hex", "00ff", b"\0\xff"),
        ("base64", "AP8=", b"\0\xff"),
        ("json", '{"a": 1}', b'{"a": 1}'),
        ("uuid", "12345678123456781234567812345678", b"12345678-1234-5678-1234-567812345678"),
    ],
)
def test_serializers(broker, topic, name, typed, written):
    assert produce(broker, topic, "-K", "|", "-s", name, stdin=f"{typed}|{typed}\n".encode()).code == 0
    assert [(each.key, each.value) for each in records_of(broker, topic)] == [(written, written)]


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["--json"], b'{"value": "a"}\n{"value": \n', "stdin: line 2: this is no JSON"),
        (["--json"], b'{"value": "a"}\n[1]\n', "stdin: line 2: a record is a JSON object"),
        (["--json"], b'{"value": "a"}\n{"val": 1}\n', "stdin: line 2: a record has no field 'val'"),
        (["--json"], b'{"value": "a"}\n{"value_base64": "!"}\n', "stdin: line 2: this is no base64"),
        (["--json"], b'{"value": "a"}\n{"value": "x", "value_base64": ""}\n', "one is enough"),
        (["--json"], b'{"value": "a"}\n{"partition": "x"}\n', "partition is a whole number"),
        (["--json"], b'{"value": "a"}\n{"headers": 3}\n', "headers are written"),
        (["--json"], b'{"value": "a"}\n{"value": "\\ud800"}\n', "half of a surrogate pair"),
        (["--json"], b'{"value": "a"}\n' + b"[" * 100_000 + b"\n", "stdin: line 2"),
        (["--json"], b'{"value": "a"}\n{"partition": 7}\n', "record 2 was not written"),
        (["-s", "int", "-D", ","], b"1,x,2", "stdin: record 2 cannot be made"),
        (["-s", "int", "-D", ","], b"1,5000000000,2", "does not fit into int"),
    ],
)
def test_what_was_read_before_a_bad_line_is_written(broker, topic, arguments, stdin, words):
    ran = produce(broker, topic, *arguments, stdin=stdin)
    assert ran.code == 1
    assert words in ran.err
    assert len(records_of(broker, topic)) == (0 if "int" in arguments else 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--whole", "--json"], "contradict"),
        (["--json", "-K", ":"], "-K is for plain text"),
        (["-D", ""], "-D is empty"),
        (["-D", "\\"], "ends with a backslash"),
        (["-p", "x"], "a partition is a number"),
        (["-p", "5"], "there is no partition 5"),
        (["-s", "avro"], "needs --registry"),
        (["-s", "nonsense"], "no way to read or write"),
        (["-s", "header=int"], "-s key=NAME"),
        (["-s", ">i"], "does not write them"),
        (["-X", "linger"], "NAME=VALUE"),
        (["nowhere/file"], "does not exist"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_written(broker, topic, arguments, words):
    ran = produce(broker, topic, *arguments, stdin=b"x\n")
    assert (ran.code, words in ran.err) == (2, True), ran.err


def test_a_wrong_setting_is_named(broker, topic):
    ran = produce(broker, topic, "-X", "lingr.ms=1", stdin=b"x\n")
    assert (ran.code, "linger.ms" in ran.err) == (1, True), ran.err


def test_records_that_are_refused_are_named_and_the_others_are_written(broker, topic):
    lines = [b"small", b"x" * 2_000_000, b"small too"]
    ran = produce(broker, topic, stdin=b"\n".join(lines))
    assert ran.code == 1
    assert "kohort: stdin: record 2 was not written: MESSAGE_TOO_LARGE" in ran.err
    assert "2 records written" in ran.err
    assert "; 1 not written" in ran.err
    assert len(records_of(broker, topic)) == 2
    run_kohort(
        "topics",
        "create",
        topic + "2",
        "--set",
        "max.message.bytes=50000",
        "--bootstrap",
        broker.bootstrap_servers,
    )
    refused = produce(broker, topic + "2", stdin=b"ok\n" + b"y" * 60_000)  # by the broker this time
    assert refused.code == 1
    assert "stdin: record 2 was not written" in refused.err
    assert len(records_of(broker, topic + "2")) == 1


def test_a_record_of_many_megabytes(broker, topic, tmp_path):
    file = tmp_path / "large"
    data = bytes(range(256)) * 4 * 1024 * 12
    file.write_bytes(data)
    run_kohort(
        "topics",
        "create",
        topic,
        "--set",
        "max.message.bytes=100000000",
        "--bootstrap",
        broker.bootstrap_servers,
    )
    large = ["-X", "max.request.size=100000000", "-X", "buffer.memory=200000000"]
    assert produce(broker, topic, "--whole", str(file), *large).code == 0
    read = run_kohort("consume", topic, "-e", "--raw", "--bootstrap", broker.bootstrap_servers)
    assert read.code == 0
    assert read.out == data


def test_no_broker(tmp_path):
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    ran = run_kohort("produce", "t", "--bootstrap", "127.0.0.1:1", "--config", str(config), stdin=b"x")
    assert ran.code == 4
    assert "no broker answers at 127.0.0.1:1" in ran.err


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_writes_what_was_read(broker, topic):
    process = kohort_process(
        "produce", topic, "-X", "linger.ms=20000", "--tee", "--bootstrap", broker.bootstrap_servers,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"one\ntwo\nhalf of")
    process.stdin.flush()
    assert process.stdout.read(8) == b"one\ntwo\n"  # they are sent, and linger
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"2 records written" in err
    assert [each.value for each in records_of(broker, topic)] == [b"one", b"two"]


def test_a_line_is_written_when_it_is_there(broker, topic):
    process = kohort_process(
        "produce",
        topic,
        "--bootstrap",
        broker.bootstrap_servers,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"now\n")
    process.stdin.flush()
    deadline = time.monotonic() + PATIENCE_S
    found: list[Any] = []
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign((topic, 0))
        while not found and time.monotonic() < deadline:
            found += consumer.poll(1.0).values()
    assert found[0][0].value == b"now"
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


pairs = st.lists(
    st.tuples(st.none() | st.binary(max_size=5), st.none() | st.binary(max_size=20)), min_size=1, max_size=40
)


@settings(max_examples=8)
@given(rows=pairs, keyed=st.booleans(), partition=st.none() | st.integers(0, 2))
def test_columns_write_what_single_records_write(broker, rows, keyed, partition):
    """The fast path for many records beside the ordinary one."""
    topics = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, partitioner="murmur2") as producer:
        for few in (0, 10**9):
            name = f"two-ways-{time.monotonic_ns()}"
            run_kohort("topics", "create", name, "-p", "3", "--bootstrap", broker.bootstrap_servers)
            many = rows * 300
            writer = RecordWriter(producer, name, partition=partition, few=few)
            keys = [key for key, _ in many] if keyed else None
            writer.send_all("test", 1, [value for _, value in many], keys)
            writer.finish()
            assert (writer.written, writer.failed) == (len(many), 0)
            topics.append([(each.key, each.value) for each in records_of(broker, name) if keyed and each.key])
            placed = [each.partition for each in records_of(broker, name) if partition is not None]
            assert set(placed) <= {partition}
    assert topics[0] == topics[1]


def test_a_failure_among_columns_names_the_range(broker, topic, capsys):
    run_kohort(
        "topics", "create", topic, "--set", "max.message.bytes=50000", "--bootstrap", broker.bootstrap_servers
    )
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        writer = RecordWriter(producer, topic, few=0)
        writer.send_all("file", 1001, [b"x"] * 300 + [b"y" * 60_000], None)
        writer.finish()
    assert writer.failed == 301
    assert "file: some of records 1001 to 1301 were not written" in capsys.readouterr().err
