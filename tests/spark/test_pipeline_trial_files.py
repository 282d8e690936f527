"""Records of a trial as they are written in files, and rows as they are shown and compared: without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.spark.pipelines.definition import PipelineError
from kohort.spark.pipelines.sinks import is_folder, package_of, read_sink
from kohort.spark.pipelines.trial_records import TrialRecord, read_given, read_records
from kohort.spark.pipelines.trial_rows import as_table, compare, plain_value, read_expected

Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def records_of(path: Path, **keywords: Any) -> list[TrialRecord]:
    return [record for _, record in read_records(path, **keywords)]


# --- records --------------------------------------------------------------------------------------------


def test_a_line_of_json_is_a_value_as_it_stands_or_a_whole_record(written: Written) -> None:
    path = written(
        "t.jsonl",
        '\ufeff{"id":  1}\r\n\n[1]\n"text"\n{"value": {"a": 1}, "key": 7, "headers": {"h": "x", "n": null}, '
        '"timestamp": "2026-11-16T12:00:00Z", "partition": 2, "topic": "o"}\n'
        '{"value_base64": "/w==", "key_base64": "AA==", "timestamp": 5}\n{"value": null}\n{"value": "x", "id": 1}\n',
    )
    assert records_of(path) == [
        TrialRecord(b'{"id":  1}'),
        TrialRecord(b"[1]"),
        TrialRecord(b'"text"'),
        TrialRecord(b'{"a": 1}', b"7", {"h": b"x", "n": None}, 1_794_830_400_000, 2, "o"),
        TrialRecord(b"\xff", b"\x00", timestamp_ms=5),
        TrialRecord(None),
        TrialRecord(b'{"value": "x", "id": 1}'),
    ]
    assert records_of(written("v.jsonl", '{"value": 1}'), plain=True) == [TrialRecord(b'{"value": 1}')]


def test_csv_becomes_json_and_text_stays_text(written: Written) -> None:
    path = written("t.csv", 'id,name,zip,ok,none\n1,"a, b\nc",007,true,\n-2.5e3,x,1,no,""\n')
    assert [record.value for record in records_of(path)] == [
        b'{"id": 1, "name": "a, b\\nc", "zip": "007", "ok": true, "none": null}',
        b'{"id": -2500.0, "name": "x", "zip": 1, "ok": "no", "none": null}',
    ]
    whole = written("w.csv", "key,value,partition\nk,v,1\n")
    assert records_of(whole) == [TrialRecord(b"v", b"k", partition=1)]
    assert records_of(written("t.txt", "one\n\ntwo\n")) == [
        TrialRecord(b"one"), TrialRecord(b""), TrialRecord(b"two"),
    ]  # fmt: skip


def test_files_belong_to_topics(written: Written, tmp_path: Path) -> None:
    one, two = written("d/orders.jsonl", "1\n2\n"), written("d/payments.txt", "3\n")
    topics = ("orders", "payments")
    found = read_given([str(tmp_path / "d")], topics)
    assert {topic: len(records) for topic, records in found.items()} == {"orders": 2, "payments": 1}
    assert read_given([f"orders={one}", f"payments={two}"], topics) == found
    assert len(read_given([str(one)], ("any",))["any"]) == 2
    with_equals = written("a=b.txt", "x\n")
    assert len(read_given([str(with_equals)], ("any",))["any"]) == 1
    with pytest.raises(PipelineError, match=r"line 1: which topic is it for\?"):
        read_given([str(one)], topics)
    with pytest.raises(PipelineError, match="does not read the topic order; did you mean orders"):
        read_given([f"order={one}"], topics)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.jsonl", '{"a": 1}\n{"a": \n', "t.jsonl line 2: no JSON"),
        ("t.jsonl", '{"value": 1, "partition": -1}', "line 1: partition is a number from 0 on, not -1"),
        ("t.jsonl", '{"value": 1, "timestamp": "noon"}', "timestamp is in milliseconds"),
        ("t.jsonl", '{"value": 1, "headers": [1]}', "headers is an object"),
        ("t.jsonl", '{"value": 1, "value_base64": "AA=="}', "cannot both be given"),
        ("t.jsonl", '{"value_base64": "*"}', "is no base64"),
        ("t.csv", "a,b\n1\n", "line 2: it has another number of cells"),
        ("t.csv", 'a\n"1" x\n', "t.csv line 2"),
        ("t.parquet", "x", "records are in .jsonl"),
        ("t.txt", b"\xff", "is not a text in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_line(
    written: Written, name: str, text: str | bytes, said: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        records_of(written(name, text))
    assert said in str(refused.value)


# --- rows -----------------------------------------------------------------------------------------------


def test_a_table_fits_the_terminal() -> None:
    rows = [{"id": 1, "text": "a\tb" * 30, "n": None}, {"id": 22, "text": "ü", "n": {"x": [1]}}, {"id": 3}]
    shown = as_table(["id", "text", "n"], rows, 40, 2)
    assert shown == [
        "id  text                      n",
        "--  ------------------------  ----------",
        " 1  a\\tba\\tba\\tba\\tba\\tba\\t…  null",
        '22  ü                         {"x": [1]}',
        "… and 1 more rows (--rows shows more, --json all of them)",
    ]
    assert max(map(len, shown[:4])) == 40
    assert as_table([], [], 80, 5) == []


def test_values_of_spark_become_json() -> None:
    import datetime
    import decimal

    assert plain_value({"a": b"\xff", 1: (b"x", decimal.Decimal("1.50"))}) == {
        "a": "base64:/w==", "1": ["x", "1.50"],
    }  # fmt: skip
    assert plain_value(float("nan")) == "nan"
    assert plain_value(datetime.date(2026, 11, 16)) == "2026-11-16"


def test_rows_are_compared_in_any_order_and_equal_numbers_are_equal() -> None:
    rows = [{"id": 1, "x": 2.0, "n": None}, {"id": 2, "x": 3}, {"id": 2, "x": 3}]
    assert not compare([{"id": 2, "x": 3.0}, {"id": 2, "x": 3}, {"id": 1, "x": 2}], rows)
    found = compare([{"id": 2, "x": 3}, {"id": 9}], rows)
    assert (found.missing, found.surplus) == (
        [{"id": 9}],
        [{"id": 1, "x": 2.0, "n": None}, {"id": 2, "x": 3}],
    )
    assert found.lines() == ['- {"id": 9}', '+ {"id": 1, "x": 2.0, "n": null}', '+ {"id": 2, "x": 3}']
    assert len(found.lines(most=1)) == 2
    assert not compare([{"id": 1}, {"id": 2}, {"id": 2}], rows, ignored=["x"])


def test_the_order_counts_if_asked_for() -> None:
    rows = [{"id": 1}, {"id": 2}, {"id": 3}]
    assert not compare(rows, rows, ordered=True)
    assert compare([{"id": 1}, {"id": 3}, {"id": 2}], rows, ordered=True).lines() == [
        "the same rows in another order: row 2 is the first that differs"
    ]


def test_an_expected_object_is_compared_with_a_value_that_is_json() -> None:
    assert not compare([{"value": {"b": 1, "a": 2}}], [{"value": '{"a":2,"b":1}'}])
    assert compare([{"value": {"a": 1}}], [{"value": "no json"}])


def test_expected_rows_are_objects(written: Written) -> None:
    assert read_expected(written("e.csv", "id,name\n1,x\n")) == [{"id": 1, "name": "x"}]
    with pytest.raises(PipelineError, match=r"e\.jsonl line 1: a row is an object"):
        read_expected(written("e.jsonl", "[1]"))


# --- sinks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "form", "target"),
    [
        ("parquet ./a b", "parquet", "./a b"),
        ("parquet:C:\\out", "parquet", "C:\\out"),
        ("delta:s3a://bucket/x", "delta", "s3a://bucket/x"),
        ("console", "console", ""),
    ],
)
def test_a_sink_is_a_name_and_a_target(text: str, form: str, target: str) -> None:
    assert (read_sink(text).form, read_sink(text).target) == (form, target)


def test_folders_are_told_from_tables() -> None:
    assert all(map(is_folder, ("./out", "/out", "s3a://b/out", "C:\\out")))
    assert not any(map(is_folder, ("orders", "db.orders")))


def test_packages_fit_the_version_of_spark() -> None:
    assert package_of("delta", "4.2.0") == "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert package_of("delta", "4.9.0") == "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert package_of("iceberg", "4.1.1") == "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
