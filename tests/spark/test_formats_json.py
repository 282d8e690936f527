"""JSON to columns: the fast way gives what the other gives, bad records are told apart, types are those of Spark."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.spark.formats.arrow_types import arrow_type
from kohort.spark.formats.ddl import read_schema
from kohort.spark.formats.json_decoder import FEW, JsonDecoder

DDL = (
    "i int, l bigint, d double, b boolean, s string, m decimal(10,2), t timestamp, day date, "
    "inner struct<a:int,s:string,t:timestamp>, many array<bigint>, rows array<struct<x:int>>"
)
TARGET = arrow_type(read_schema(DDL))
NAMES = [each.name for each in TARGET]

number = st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.integers(-100, 100)
text = st.text(max_size=8) | st.sampled_from(
    [
        "2024-05-17",
        "2024-05-17T12:00:00Z",
        "2024-05-17 12:00:00",
        "2024-05-17T12:00:00.123456+02:00",
        "1.25",
        "NaN",
        "",
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | number | text,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "a", "x", "other"]), inner, max_size=3)
    ),
    max_leaves=6,
)
fitting = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "l": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 60), 1 << 60),
        "b": st.none() | st.booleans(),
        "s": st.none() | st.text(max_size=6),
        "m": st.none() | st.integers(-99_999_999, 99_999_999) | st.sampled_from([1.25, 0.5, "3.14"]),
        "t": st.none() | st.datetimes().map(lambda at: at.isoformat() + "Z"),
        "day": st.none() | st.dates().map(lambda at: at.isoformat()),
        "inner": st.none()
        | st.fixed_dictionaries({"a": st.none() | st.integers(-5, 5)}, optional={"s": st.text(max_size=3)}),
        "many": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "rows": st.none() | st.lists(st.fixed_dictionaries({"x": st.integers(0, 9)}), max_size=2),
        "other": anything,
    },
)
document = (fitting | st.dictionaries(st.sampled_from([*NAMES, "other"]), anything, max_size=4)).map(
    lambda found: json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")
)
value = (
    st.none()
    | document
    | st.sampled_from(
        [
            b"",
            b" ",
            b"null",
            b"5",
            b"[]",
            b'[{"i":1}]',
            b"{",
            b"}",
            b'{"i":1',
            b'{"i":1}{"i":2}',
            b'{"i":1} ',
            b'\n{"i"\n:1}',
            b'{"i":1,"i":2}',
            b'{"s":"\xff"}',
            b'\xef\xbb\xbf{"i":1}',
            b'{"d":NaN}',
            b'{"d":1e999}',
            b'{"i":01}',
            b"{'i':1}",
            b'{"s":"\\ud800"}',
            b'{"s":"\\u0041\\n"}',
            b'{"s":"a\nb"}',
            b'{"i":1.0}',
            b'{"i":1e2}',
            b'{"s":"}{"}',
            b'{"i":1}]',
            b'{"s":5}',
            b'{"s":{"a":[1,2.5,null]}}',
            b'{"d":"Infinity"}',
            b'{"m":1.005}',
            b'{"m":123456789.1}',
            b'{"t":1700000000}',
            b'{"t":"2024-05-17"}',
            b'{"i":-0}',
            b'{"d":-0.0}',
            b'{"l":9223372036854775808}',
            b'{"inner":[]}',
            b'{"many":{}}',
            b'{"many":[1,null,"x"]}',
            b"\x00",
            b'{"s":"\x00"}',
            b'{"a":1}/*c*/',
            b'{"I":1}',
            b'{"s":null}',
            b'{"s":"\\x"}',
            b'{"d":.5}',
            b'{"d":5.}',
            b'{"d":+5}',
            b'{"d":-}',
            b'{"i":1,}',
            b"{,}",
            b'{"i"}',
            b'{"i":tru}',
            b'{"d":1E400}',
        ]
    )
)


def both(values: list[bytes | None], target: Any = TARGET) -> tuple[Any, Any]:
    array = pa.array(values, pa.binary())
    return JsonDecoder(target).decode(array), JsonDecoder(target, fast=False).decode(array)


def rows(array: Any) -> list[Any]:
    return [_comparable(row) for row in array.to_pylist()]


def _comparable(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _comparable(part) for name, part in found.items()}
    if isinstance(found, list):
        return [_comparable(part) for part in found]
    return "NaN" if isinstance(found, float) and math.isnan(found) else found


@settings(deadline=None, max_examples=100)
@given(values=st.lists(value, min_size=1, max_size=12), good=st.lists(fitting, min_size=1, max_size=4))
def test_the_fast_way_gives_what_the_other_gives(values: list[bytes | None], good: list[Any]) -> None:
    filler: list[bytes | None] = [json.dumps(each, ensure_ascii=False).encode() for each in good] * FEW
    fast, slow = both([*filler[:FEW], *values])
    fast.array.validate(full=True)
    assert fast.array.type.equals(TARGET)
    assert fast.bad == slow.bad
    assert rows(fast.array) == rows(slow.array)


def test_the_fast_way_is_taken() -> None:
    """Without this the comparison above could hold for a fast way that always gives up."""
    one = {
        "i": 1,
        "l": 1 << 40,
        "d": 0.5,
        "b": True,
        "s": "ü",
        "m": 1.25,
        "t": "2024-05-17T12:00:00Z",
        "day": "2024-05-17",
        "inner": {"a": 1, "s": "x", "t": "2024-05-17T12:00:00+02:00"},
        "many": [1, None],
        "rows": [{"x": 1}],
        "other": {},
    }
    decoder = JsonDecoder(TARGET)
    decoder.one = None  # type: ignore[assignment, method-assign]
    made = decoder.decode(pa.array([json.dumps(one).encode()] * FEW, pa.binary()))
    assert made.bad == {}
    assert made.array.to_pylist()[FEW - 1]["inner"]["s"] == "x"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b'{"i":"5"}', 'field i: "5" is no integer'),
        (b'{"i":2147483648}', "field i: 2147483648 does not fit into 32 bits"),
        (b'{"inner":{"a":true}}', "field inner: field a: true is no integer"),
        (b'{"m":123456789.1}', r"field m: .*decimal\(10,2\)"),
        (b'{"t":"yesterday"}', 'field t: "yesterday" is no time like 2024-05-17T12:00:00Z'),
        (b'{"i":1', "it is no JSON: "),
        (b"[1]", r"\[1\] is no object"),
        (b'{"s":"\xff"}', "it is no JSON: "),
    ],
)
def test_a_bad_record_is_null_and_has_a_reason(document: bytes, reason: str) -> None:
    for count in (1, 500):
        good = [b'{"i":%d}' % row for row in range(count)]
        fast, _ = both([*good, document, *good])
        assert list(fast.bad) == [count]
        assert re.search(reason, fast.bad[count])
        assert fast.array[count].as_py() is None
        found = [None if row is None else row["i"] for row in fast.array.to_pylist()]
        assert found == [*range(count), None, *range(count)]


def test_other_types_than_a_struct() -> None:
    array = pa.array([b'{"a":1,"b":null}', None, b"{}", b"[]"], pa.binary())
    made = JsonDecoder(arrow_type(read_schema("map<string,int>"))).decode(array)
    assert made.array.to_pylist() == [[("a", 1), ("b", None)], None, [], None]
    assert made.bad == {3: "[] is no object"}
    made = JsonDecoder(arrow_type(read_schema("array<binary>"))).decode(
        pa.array([b'["AQI=","?"]', b'["AQI="]'], pa.binary())
    )
    assert made.array.to_pylist() == [None, [b"\x01\x02"]]
