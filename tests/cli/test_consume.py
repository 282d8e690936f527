"""`kohort consume` on a real broker: where it begins and ends, what it prints, what it commits."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort import Admin, Producer
from kohort.broker.running import running
from kohort.cli.records.escapes import SHOWN_CHARACTERS, for_terminal, json_for_terminal
from kohort.serde import AvroSerializer, JsonSerializer
from tests.cli.command_line import PATIENCE_S, Ran, kohort_process, run_kohort
from tests.cli.test_produce import records_of
from tests.serde.registry_server import running_registry

T0 = 1_700_000_000_000
"""The time of the first record: 2023-11-14T22:13:20Z."""


@pytest.fixture(scope="module")
def broker() -> Iterator[running]:
    with running(num_partitions=1, log_retention_ms=-1) as broker:  # the records are of 2023
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("ten", 2)
            admin.create_topic("empty")
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(20):
                producer.send(
                    "ten",
                    b"v%d" % number,
                    b"k%d" % number,
                    [("h", b"%d" % number)],
                    number % 2,
                    T0 + number * 1000,
                )
        yield broker


def consume(broker: running, *arguments: str) -> Ran:
    return run_kohort("consume", *arguments, "--bootstrap", broker.bootstrap_servers)


def numbers(ran: Ran) -> list[int]:
    """The numbers of the records that were printed, in their order."""
    assert ran.code == 0, ran.err
    return sorted(int(line.removeprefix("v")) for line in ran.lines)


# --- where it begins and ends -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], range(20)),
        (["-o", "beginning"], range(20)),
        (["-o", "end"], []),
        (["-o", "-2"], [16, 17, 18, 19]),
        (["-o", "-99"], range(20)),
        (["-o", "8"], [16, 17, 18, 19]),
        (["-p", "1", "-o", "7"], [15, 17, 19]),
        (["-p", "0", "-p", "1", "-o", "9"], [18, 19]),
        (["-o", f"@{T0 + 17_000}"], [17, 18, 19]),
        (["-o", f"s@{T0 + 2_000}", "-o", f"e@{T0 + 5_000}"], [2, 3, 4]),
        (["-o", "2023-11-14T22:13:38"], [18, 19]),
        (["-o", "2023-11-14T23:13:38+01:00"], [18, 19]),
        (["-o", "@-1s"], []),
        (["--until", "2"], [0, 1, 2, 3]),
        (["--until", "-9"], [0, 1]),
        (["--until", "2023-11-14T22:13:22Z"], [0, 1]),
        (["-o", "4", "--until", "4"], []),
        (["--grep", "[13]$"], [1, 3, 11, 13]),
        (["--grep", "^k1[89]"], [18, 19]),
    ],
)
def test_from_where_to_where(broker, arguments, expected):
    assert numbers(consume(broker, "ten", "-e", *arguments)) == list(expected)


def test_a_count_ends_it_without_the_end(broker):
    assert consume(broker, "ten", "-p", "0", "-c", "3").lines == ["v0", "v2", "v4"]
    assert consume(broker, "ten", "-p", "0", "-c", "2", "--grep", "v1.").lines == ["v10", "v12"]


def test_until_an_offset_ends_it_without_the_end(broker):
    assert consume(broker, "ten", "-p", "0", "--until", "1").lines == ["v0"]


def test_nothing_for_a_time_ends_it(broker):
    assert consume(broker, "empty", "--timeout", "0.1") == Ran(0, b"", "")


def test_several_topics_and_patterns(broker):
    run_kohort("produce", "ten-more", "--bootstrap", broker.bootstrap_servers, stdin=b"v20\n")
    assert numbers(consume(broker, "ten", "ten-more", "empty", "-e")) == list(range(21))
    assert numbers(consume(broker, "^ten(-more)?$", "-e")) == list(range(21))
    assert numbers(consume(broker, "^ten-", "-e")) == [20]


def test_an_offset_that_is_not_there_is_said(broker):
    ran = consume(broker, "ten", "-p", "1", "-e", "-o", "99")
    assert ran == Ran(0, b"", "kohort: ten-1 has no offset 99; it is read from 10\n")


def test_an_end_without_records_is_reached(broker):
    """By position: no record tells of it."""
    run_kohort("produce", "cut", "--bootstrap", broker.bootstrap_servers, stdin=b"a\nb\n")
    run_kohort("topics", "delete-records", "cut", "--all", "--yes", "--bootstrap", broker.bootstrap_servers)
    assert consume(broker, "cut", "-e", "--isolation", "read_committed") == Ran(0, b"", "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nix"], 3, "there is no topic nix"),
        (["^nix"], 2, "no topic matches ^nix"),
        (["^("], 2, "no regular expression"),
        (["ten", "-p", "2"], 3, "there is no partition 2"),
        (["ten", "-o", "yesterday"], 2, "no offset and no time"),
        (["ten", "-o", "1", "-o", "2"], 2, "begins at one place"),
        (["ten", "-o", "stored"], 2, "needs --group"),
        (["ten", "--until", "stored"], 2, "an end is an offset or a time"),
        (["ten", "--until", "2999-01-01"], 2, "a time that has been"),
        (["ten", "-G", "g", "-o", "5"], 2, "kohort groups reset"),
        (["ten", "--share", "g", "-G", "g"], 2, "--group does not go with --share"),
        (["ten", "--share", "g", "-o", "end"], 2, "-o does not go with --share"),
        (["^ten", "--share", "g"], 2, "not by a pattern"),
        (["nix", "--share", "g"], 3, "there is no topic nix"),
        (["ten", "-f", "%z"], 2, "%z, which is no field"),
        (["ten", "-f", "%"], 2, "which is no field"),
        (["ten", "-f", "%s", "--json"], 2, "contradict each other"),
        (["ten", "--raw", "-D", ","], 2, "-D is for plain text"),
        (["ten", "--grep", "("], 2, "no regular expression"),
        (["ten", "-s", "avro"], 2, "needs --registry"),
        (["ten", "-X", "fetch.min.byte=1"], 1, "fetch.min.bytes"),
    ],
)
def test_what_is_wrong_is_said(broker, arguments, code, words):
    ran = consume(broker, *arguments)
    assert (ran.code, words in ran.err) == (code, True), ran.err


# --- what it prints -----------------------------------------------------------------------------------


def test_formats(broker):
    last = ["ten", "-p", "1", "-o", "-1", "-e"]
    shown = consume(broker, *last, "-f", r"%t %p %o %k %s %T %h %K %S %I %% \x41\t\\|").out
    assert shown == b"ten 1 9 k19 v19 1700000019000 h=19 3 3 2023-11-14T22:13:39.000Z % A\t\\|"
    assert consume(broker, *last, "-f", "%R%s").out == b"\0\0\0\x03v19"
    assert consume(broker, *last, "-f", "x").out == b"x"
    assert consume(broker, *last, "-K", ":", "-D", ";").out == b"k19:v19;"
    assert consume(broker, *last, "--raw").out == b"v19"
    assert json.loads(consume(broker, *last, "--json").out) == {
        "topic": "ten", "partition": 1, "offset": 9, "timestamp": T0 + 19_000, "timestamp_type": "create",
        "key": "k19", "value": "v19", "headers": [{"name": "h", "value": "19"}],
    }  # fmt: skip


def test_nulls(broker):
    run_kohort("produce", "nulls", "-Z", "-H", "h", "--bootstrap", broker.bootstrap_servers, stdin=b"\nx\n")
    assert consume(broker, "nulls", "-e").out == b"\nx\n"
    assert consume(broker, "nulls", "-e", "-Z", "-K", "=").out == b"NULL=NULL\nNULL=x\n"
    assert consume(broker, "nulls", "-e", "-f", "%S %K %h|").out == b"-1 -1 h=NULL|1 -1 h=NULL|"


def test_to_a_file(broker, tmp_path):
    file = tmp_path / "out"
    assert consume(broker, "ten", "-e", "-p", "0", "--output", str(file)) == Ran(0, b"", "")
    assert file.read_bytes().split() == [b"v%d" % number for number in range(0, 20, 2)]


@pytest.mark.parametrize(
    ("name", "data", "text", "in_json"),
    [
        ("int", b"\xff\xff\xff\xfe", "-2", -2),
        ("long", b"\0\0\0\0\0\0\0\1", "1", 1),
        ("double", b"\x3f\xe0\0\0\0\0\0\0", "0.5", 0.5),
        ("hex", b"\0\xff", "00ff", "00ff"),
        ("base64", b"\0\xff", "AP8=", "AP8="),
        ("json", b'{"a":[1]}', '{\n  "a": [\n    1\n  ]\n}', {"a": [1]}),
        (">hB$", b"\0\1\2", "1 2", "1 2"),
        ("<is", b"\1\0\0\0text", "1 text", "1 text"),
    ],
)
def test_deserializers(broker, name, data, text, in_json):
    topic = f"of-{re.sub('[^a-z]', '-', name)}"
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, data, key=b"key")
    assert consume(broker, topic, "-e", "-s", f"value={name}").out.decode() == text + "\n"
    read = json.loads(consume(broker, topic, "-e", "-s", f"value={name}", "--json").out)
    assert (read["key"], read["value"]) == ("key", in_json)


def test_data_that_is_not_what_was_said_is_shown_as_it_is_and_counted(broker):
    run_kohort("produce", "mixed", "--bootstrap", broker.bootstrap_servers, stdin=b"\0\0\0\1\nno number\n")
    ran = consume(broker, "mixed", "-e", "-s", "value=int")
    assert (ran.code, ran.out) == (1, b"1\nno number\n")
    assert (
        "kohort: the value of mixed-0 at offset 1 is shown as it is: an IntegerDeserializer reads 4 bytes"
        in ran.err
    )
    second = json.loads(consume(broker, "mixed", "-e", "-s", "value=int", "--json").lines[1])
    assert second["value"] == "no number"
    assert "reads 4 bytes" in second["value_error"]


def test_schemas_of_a_registry(broker, tmp_path):
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
    file = tmp_path / "order.avsc"
    file.write_text(schema)
    with running_registry() as registry:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("avro", AvroSerializer(schema=schema, registry=registry.url)("avro", {"id": 7}))
            json_schema = '{"type": "object", "properties": {"id": {"type": "integer"}}}'
            producer.send("js", JsonSerializer(schema=json_schema, registry=registry.url)("js", {"id": 8}))
        registered = ["--registry", registry.url, "--bootstrap", broker.bootstrap_servers]
        written = run_kohort("produce", "avro", "-s", "value=avro", *registered, stdin=b'{"id": 9}\n')
        assert written.code == 0, written.err  # with the latest schema
        other = ["-s", "value=avro", "--value-schema", str(file)]
        assert run_kohort("produce", "avro2", *other, *registered, stdin=b'{"id": 10}\n').code == 0
        wrong = run_kohort("produce", "avro", "-s", "value=avro", *registered, stdin=b'{"no": 9}\n')
        assert (wrong.code, "record 1 cannot be made" in wrong.err) == (1, True)
        avro = consume(broker, "avro", "avro2", "-e", "-s", "value=avro", "--registry", registry.url)
        assert sorted(avro.lines) == ['{"id":10}', '{"id":7}', '{"id":9}']
        read = consume(broker, "js", "-e", "-s", "value=json-schema", "--registry", registry.url, "--json")
        assert json.loads(read.out)["value"] == {"id": 8}


# --- on a terminal ------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str) -> bytes:
    """What a command writes to a terminal until it ends."""
    ours, theirs = pty.openpty()
    process = kohort_process(*arguments, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:
        pass  # nobody holds the other side any more
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    return said


def test_a_terminal_gets_nothing_to_act_upon(broker):
    nasty = b"\x1b[2J\x9b31m\xff grun \xc2\x9b \xe2\x80\xae\n"
    run_kohort(
        "produce", "nasty", "-H", "h=\x1b]0;x\x07", "--bootstrap", broker.bootstrap_servers, stdin=nasty
    )
    where = ["nasty", "-e", "--bootstrap", broker.bootstrap_servers]
    said = on_a_terminal("consume", *where, "-f", r"%s %h\n")
    assert said == rb"\x1b[2J\x9b31m\xff grun \x9b \u202e h=\x1b]0;x\x07" + b"\r\n"
    assert b"could upset the terminal" in on_a_terminal("consume", *where, "--raw")


@given(st.binary(max_size=40))
def test_no_control_character_reaches_a_terminal(data):
    shown = for_terminal(data).decode()
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not {each for each in shown if unicodedata.category(each) == "Cc"} - set("\n\t")
    assert not {unicodedata.bidirectional(each) for each in shown} & turning
    if data.isascii() and data.decode().isprintable():
        assert shown.encode() == data


def test_a_terminal_gets_the_beginning_of_a_large_value():
    shown = for_terminal(b"x" * 50_000_000).decode()
    assert len(shown) < SHOWN_CHARACTERS + 100
    assert "50000000 bytes" in shown


@given(st.text(max_size=20))
def test_json_for_a_terminal_is_the_same_json(text):
    line = json.dumps(text, ensure_ascii=False)
    shown = json_for_terminal(line)
    assert json.loads(shown) == text
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", shown)


# --- groups -------------------------------------------------------------------------------------------


def committed(broker: running, group: str) -> dict[tuple[str, int], int]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return {tuple(where): at.offset for where, at in admin.group_offsets(group).items()}


def test_a_group_goes_on_after_what_was_printed(broker):
    assert numbers(consume(broker, "ten", "-G", "g1", "-o", "end", "-e")) == []
    assert committed(broker, "g1") == {("ten", 0): 10, ("ten", 1): 10}
    first = consume(broker, "ten", "-G", "g2", "-c", "7")  # a new group begins at the beginning
    assert len(first.lines) == 7
    assert sum(committed(broker, "g2").values()) == 7
    rest = consume(broker, "ten", "-G", "g2", "-e")
    assert sorted(numbers(first) + numbers(rest)) == list(range(20))
    assert committed(broker, "g2") == {("ten", 0): 10, ("ten", 1): 10}


def test_a_group_without_membership(broker):
    assert consume(broker, "ten", "-G", "g3", "-p", "1", "-o", "6", "-c", "2").lines == ["v13", "v15"]
    assert committed(broker, "g3") == {("ten", 1): 8}
    assert consume(broker, "ten", "-G", "g3", "-p", "1", "-e").lines == ["v17", "v19"]


def test_a_group_commits_what_a_filter_passed_over(broker):
    assert consume(broker, "ten", "-G", "g4", "-o", "beginning", "-e", "--grep", "nothing").lines == []
    assert committed(broker, "g4") == {("ten", 0): 10, ("ten", 1): 10}


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_member_in_order(broker, number, code):
    group = f"signalled-{number}"
    process = kohort_process(
        "consume", "ten", "-G", group, "-o", "beginning", "--bootstrap", broker.bootstrap_servers,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    late = threading.Timer(PATIENCE_S, process.kill)
    late.start()
    try:
        printed = [process.stdout.readline() for _ in range(20)]
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        late.cancel()
    assert (process.returncode, err) == (code, b"")
    assert len(set(printed)) == 20
    assert committed(broker, group) == {("ten", 0): 10, ("ten", 1): 10}
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_groups(group)[group].state == "Empty"  # it has left


def test_a_reader_that_has_seen_enough_ends_it_silently(broker):
    run_kohort("produce", "long", "--bootstrap", broker.bootstrap_servers, stdin=b"line\n" * 50_000)
    process = kohort_process(
        "consume",
        "long",
        "--bootstrap",
        broker.bootstrap_servers,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGPIPE
    assert process.stderr.read() == b""
    process.stderr.close()


# --- there and back -----------------------------------------------------------------------------------

data = st.none() | st.binary(max_size=12) | st.text(max_size=6).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=4), data), max_size=3)
some_records = st.lists(
    st.tuples(data, data, headers, st.integers(0, 1), st.integers(0, T0)), min_size=1, max_size=12
)


@settings(max_examples=12)
@given(rows=some_records)
def test_what_consume_prints_as_json_produce_writes_again(broker, rows):
    one, two = (f"{name}-{time.monotonic_ns()}" for name in ("there", "back"))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(one, 2)
        admin.create_topic(two, 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key, value, pairs, partition, timestamp in rows:
            producer.send(one, value, key, pairs, partition, timestamp)
    printed = consume(broker, one, "-e", "--json")
    assert len(printed.out.splitlines()) == len(rows)
    written = run_kohort("produce", two, "--json", "--bootstrap", broker.bootstrap_servers, stdin=printed.out)
    assert written.code == 0, written.err

    def contents(topic: str) -> list[tuple[object, ...]]:
        return [
            (each.partition, each.offset, each.timestamp, each.key, each.value, each.headers)
            for each in records_of(broker, topic)
        ]

    assert contents(two) == contents(one)
