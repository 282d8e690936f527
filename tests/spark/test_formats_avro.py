"""Avro to columns: what fastavro has written comes out, for any schema; schemas that changed; bad records."""

from __future__ import annotations

import io
import itertools
import json
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.settings import SettingError
from kohort.spark.formats.arrow_types import arrow_type
from kohort.spark.formats.avro_decoder import AvroDecoder, FastavroDecoder
from kohort.spark.formats.avro_program import AvroProgram
from kohort.spark.formats.avro_schema import read_avro, spark_type, with_references
from kohort.spark.formats.decoding import ColumnDecoding

INT, LONG = (1 << 31) - 1, (1 << 63) - 1
LEAVES: dict[str, tuple[Any, Any]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-INT - 1, INT)),
    "long": ("long", st.integers(-LONG - 1, LONG)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ("string", st.text(max_size=5)),
    "bytes": ("bytes", st.binary(max_size=5)),
    "date": ({"type": "int", "logicalType": "date"}, st.dates()),
    "millis": ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(-(10**12), 10**12)),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, st.integers(-(10**15), 10**15)),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, st.integers(-(10**15), 10**15)),
    "time": ({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999)),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 4},
        st.integers(-(10**27), 10**27).map(lambda n: Decimal(n).scaleb(-4)),
    ),
}
TIMES = {"millis": 1000, "micros": 1, "local": 1}


class Schemas:
    """Draws a schema, and for it values as they are written and as they should come out."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.names = draw, itertools.count()

    def schema(self, depth: int) -> tuple[Any, Any]:
        """A schema, and a function that draws a pair: what is written, and what is expected."""
        kinds = ["leaf", "leaf", "enum", "fixed"] + (
            ["record", "optional", "array", "map", "union"] if depth else []
        )
        return getattr(self, self.draw(st.sampled_from(kinds)))(depth)

    def leaf(self, depth: int) -> tuple[Any, Any]:
        name = self.draw(st.sampled_from(sorted(LEAVES)))
        schema, values = LEAVES[name]

        def value() -> Any:
            found = self.draw(values)
            if name in TIMES:  # fastavro takes the number as it is
                zone = None if name == "local" else "UTC"
                return found, pa.scalar(found * TIMES[name], pa.timestamp("us", zone)).as_py()
            return found, found

        return schema, value

    def enum(self, depth: int) -> tuple[Any, Any]:
        symbols = ["A", "B", "C"]
        schema = {"type": "enum", "name": f"E{next(self.names)}", "symbols": symbols}
        return schema, lambda: (self.draw(st.sampled_from(symbols)),) * 2

    def fixed(self, depth: int) -> tuple[Any, Any]:
        schema = {"type": "fixed", "name": f"F{next(self.names)}", "size": 3}
        return schema, lambda: (self.draw(st.binary(min_size=3, max_size=3)),) * 2

    def record(self, depth: int) -> tuple[Any, Any]:
        name = f"R{next(self.names)}"
        parts = [self.schema(depth - 1) for _ in range(self.draw(st.integers(1, 4)))]
        fields = [{"name": f"f{at}", "type": schema} for at, (schema, _) in enumerate(parts)]

        def value() -> Any:
            pairs = [each() for _, each in parts]
            return {f"f{at}": w for at, (w, _) in enumerate(pairs)}, {
                f"f{at}": e for at, (_, e) in enumerate(pairs)
            }

        return {"type": "record", "name": name, "fields": fields}, value

    def optional(self, depth: int) -> tuple[Any, Any]:
        schema, inner = self.schema(0) if self.draw(st.booleans()) else self.record(depth - 1)
        first = self.draw(st.booleans())
        return (
            ["null", schema] if first else [schema, "null"]
        ), lambda: inner() if self.draw(st.booleans()) else (None, None)

    def array(self, depth: int) -> tuple[Any, Any]:
        schema, inner = self.schema(depth - 1)

        def value() -> Any:
            pairs = [inner() for _ in range(self.draw(st.integers(0, 3)))]
            return [w for w, _ in pairs], [e for _, e in pairs]

        return {"type": "array", "items": schema}, value

    def map(self, depth: int) -> tuple[Any, Any]:
        schema, inner = self.schema(depth - 1)

        def value() -> Any:
            pairs = {f"k{at}": inner() for at in range(self.draw(st.integers(0, 3)))}
            return {k: w for k, (w, _) in pairs.items()}, [(k, e) for k, (_, e) in pairs.items()]

        return {"type": "map", "values": schema}, value

    def union(self, depth: int) -> tuple[Any, Any]:
        """Of types that cannot be mistaken for each other."""
        record, inner = self.record(depth - 1)
        choices = self.draw(st.permutations(["null", "string", "long", record]))

        def value() -> Any:
            chosen = self.draw(st.sampled_from(["null", "string", "long", "record"]))
            if chosen == "null":
                return None, None
            written, found = inner() if chosen == "record" else (self.draw(LEAVES[chosen][1]),) * 2
            names = [each if isinstance(each, str) else "record" for each in choices if each != "null"]
            return written, {
                f"member{at}": found if name == chosen else None for at, name in enumerate(names)
            }

        return choices, value


@st.composite
def records(draw: Any) -> tuple[Any, list[Any], list[Any]]:
    schemas = Schemas(draw)
    schema, value = schemas.record(3) if draw(st.booleans()) else schemas.schema(2)
    pairs = [value() for _ in range(draw(st.integers(1, 5)))]
    return schema, [w for w, _ in pairs], [e for _, e in pairs]


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def target_of(schema: Any) -> Any:
    return arrow_type(spark_type(read_avro(json.dumps(schema))))


def program(writer: Any, reader: Any = None, target: Any = None) -> AvroProgram:
    reader = writer if reader is None else reader
    target = target_of(reader) if target is None else target
    return AvroProgram(read_avro(json.dumps(writer)), read_avro(json.dumps(reader)), target)


def everything(count: int) -> Any:
    return np.arange(count, dtype=np.int64)


@settings(deadline=None, max_examples=150)
@given(found=records(), skip=st.sampled_from([0, 5]))
def test_what_was_written_comes_out(found: Any, skip: int) -> None:
    schema, written, expected = found
    data = pa.array([b"\0" * skip + encoded(schema, each) for each in written], pa.binary())
    array, bad = program(schema).decode(data, everything(len(data)), skip)
    array.validate(full=True)
    assert bad == {}
    assert array.type.equals(target_of(schema))
    assert array.to_pylist() == expected


@settings(deadline=None, max_examples=80)
@given(found=records(), damage=st.data())
def test_damage_is_noticed_or_reads_as_fastavro_reads_it(found: Any, damage: Any) -> None:
    """Cut, longer and changed records: neighbours are whole, and nothing is read outside of a record."""
    schema, written, expected = found
    good = [encoded(schema, each) for each in written]
    victim = bytearray(good[0])
    what = damage.draw(st.sampled_from(["cut", "longer", "changed"]))
    if what == "cut":
        del victim[damage.draw(st.integers(0, len(victim))) :]
    elif what == "longer":
        victim += damage.draw(st.binary(min_size=1, max_size=3))
    elif victim:
        victim[damage.draw(st.integers(0, len(victim) - 1))] = damage.draw(st.integers(0, 255))
    data = pa.array([*good, bytes(victim), *good], pa.binary())
    decoder = AvroDecoder(ColumnDecoding("avro", target_of(schema), json.dumps(schema)))
    made = decoder.decode(data)
    made.array.validate(full=True)
    found_rows = made.array.to_pylist()
    at = len(good)
    assert found_rows[:at] == found_rows[at + 1 :] == expected
    assert set(made.bad) <= {at}
    if at in made.bad:
        assert found_rows[at] is None
    elif bytes(victim) != good[0]:
        assert what == "changed"


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
                },
            },
        },
    ],
}
NEWER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "n", "type": "long"},
                        {"name": "gift", "type": "boolean", "default": True},
                    ],
                },
            },
        },
        {"name": "cost", "aliases": ["price"], "type": "double"},
        {"name": "id", "type": ["null", "long"]},
        {"name": "shop", "type": ["string", "null"], "default": "web"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
    ],
}
WRITTEN = [
    {"id": 1, "price": 5, "note": None, "lines": [{"sku": "a", "n": 2}, {"sku": "b", "n": 3}]},
    {"id": 2, "price": 7, "note": "x", "lines": []},
]


def test_records_of_an_older_schema_are_read_as_the_newer_one() -> None:
    data = pa.array([encoded(ORDER, each) for each in WRITTEN], pa.binary())
    array, bad = program(ORDER, NEWER).decode(data, everything(2), 0)
    assert bad == {}
    common = {"shop": "web", "tags": [("a", 1)]}
    assert array.to_pylist() == [
        {
            "lines": [{"n": 2, "gift": True}, {"n": 3, "gift": True}],
            "cost": 5.0,
            "id": 1,
            "note": None,
            **common,
        },
        {"lines": [], "cost": 7.0, "id": 2, "note": "x", **common},
    ]
    slow = FastavroDecoder(json.dumps(ORDER), json.dumps(NEWER), target_of(NEWER))
    assert slow.decode(data, everything(2), 0)[0].to_pylist() == array.to_pylist()


def test_fewer_fields_are_asked_for() -> None:
    target = arrow_type(spark_type(read_avro(json.dumps(ORDER))))
    target = pa.struct(
        [
            target.field("note"),
            pa.field("lines", pa.list_(pa.field("element", pa.struct([("n", pa.int32())])))),
        ]
    )
    data = pa.array([encoded(ORDER, each) for each in WRITTEN], pa.binary())
    array, _ = program(ORDER, ORDER, target).decode(data, everything(2), 0)
    assert array.to_pylist() == [{"note": None, "lines": [{"n": 2}, {"n": 3}]}, {"note": "x", "lines": []}]


def test_a_column_with_nulls_and_bad_records() -> None:
    good = encoded(ORDER, WRITTEN[1])
    values = [None, good, good + b"!!", good[:-1], b"", good]
    made = AvroDecoder(ColumnDecoding("avro", target_of(ORDER), json.dumps(ORDER))).decode(
        pa.array(values, pa.binary())
    )
    assert [None if row is None else row["id"] for row in made.array.to_pylist()] == [
        None,
        2,
        None,
        None,
        None,
        2,
    ]
    assert made.bad == {
        2: "2 bytes are left after the record, so it was written with another schema",
        3: "the record ends too early",
        4: "the record ends too early",
    }


def test_a_string_that_is_no_text_is_found_among_many() -> None:
    values = [encoded("string", f"n{row}") for row in range(1000)]
    values[617] = b"\x04\xff\xfe"
    made = AvroDecoder(ColumnDecoding("avro", pa.string(), '"string"')).decode(pa.array(values, pa.binary()))
    assert made.bad == {617: "a string is no UTF-8"}
    assert made.array.to_pylist() == [None if row == 617 else f"n{row}" for row in range(1000)]


def test_long_arrays_make_columns_larger_and_bombs_do_not() -> None:
    schema = {"type": "array", "items": "null"}
    longs = {"type": "array", "items": "long"}
    data = pa.array([encoded(longs, list(range(5000)))], pa.binary())
    assert program(longs).decode(data, everything(1), 0)[0].to_pylist() == [list(range(5000))]
    record = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "skipped", "type": schema}, {"name": "n", "type": "int"}],
    }
    bomb = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x02"
    made = program(record, record, pa.struct([("n", pa.int32())]))
    _, bad = made.decode(pa.array([bomb], pa.binary()), everything(1), 0)
    assert bad == {0: "an array or map has more elements than the record has bytes"}


def test_a_union_of_int_and_long_is_a_long() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": ["int", "null", "long"]}]}
    assert spark_type(read_avro(json.dumps(schema))).simpleString() == "struct<n:bigint>"
    data = pa.array([encoded(schema, {"n": n}) for n in (1, None, 1 << 40)], pa.binary())
    assert [row["n"] for row in program(schema).decode(data, everything(3), 0)[0].to_pylist()] == [
        1,
        None,
        1 << 40,
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            '{"type":"record","name":"T","fields":[{"name":"next","type":["null","T"]}]}',
            "the Avro type T contains itself",
        ),
        ("{", "the Avro schema is no JSON"),
        ('{"type":"records"}', "the Avro schema has no type records"),
        ('"null"', "Spark has no type for the Avro type null alone"),
        ('{"type":"bytes","logicalType":"decimal","precision":50}', r"decimal\(50,0\) does not fit"),
    ],
)
def test_schemas_that_spark_cannot_have(schema: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        spark_type(read_avro(schema))


def test_references_are_written_into_the_schema() -> None:
    line = '{"type":"record","name":"Line","namespace":"shop","fields":[{"name":"n","type":"int"}]}'
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "first", "type": "Line"},
            {"name": "more", "type": {"type": "array", "items": "shop.Line"}},
        ],
    }
    whole = with_references(json.dumps(order), {"shop.Line": line})
    assert (
        spark_type(read_avro(whole)).simpleString() == "struct<first:struct<n:int>,more:array<struct<n:int>>>"
    )
    assert fastavro.parse_schema(json.loads(whole))["name"] == "shop.Order"
