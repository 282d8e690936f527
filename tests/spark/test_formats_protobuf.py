"""Protobuf to columns: Spark's types and values for every kind of field, fewer fields, bad records."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.settings import SettingError
from kohort.spark.formats.arrow_types import arrow_type
from kohort.spark.formats.decoding import ColumnDecoding
from kohort.spark.formats.protobuf_decoder import ProtobufDecoder, message_class
from kohort.spark.formats.protobuf_schema import FoundMessage, find_message
from kohort.spark.formats.protobuf_types import message_type

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
enum Color { NONE = 0; RED = 1; }
message Line { string sku = 1; int32 n = 2; }
message Order {
  int64 id = 1; int32 small = 2; uint32 unsigned = 3; uint64 large = 4; double d = 5; float f = 6; bool yes = 7;
  string name = 8; bytes raw = 9; Color color = 10; optional int32 maybe = 11; Line first = 12;
  repeated Line lines = 13;
  repeated int32 numbers = 14; map<string, int32> counts = 15; map<int32, Line> by_number = 16;
  google.protobuf.Timestamp at = 17; google.protobuf.Duration took = 18; oneof choice { string a = 19; int64 b = 20; }
}
"""


EVERY_KIND = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Color { NONE = 0; RED = 1; }
message Leaf { sint32 z = 1; repeated string names = 2; optional double d = 3; map<string, bytes> m = 4; }
message All {
  int32 i = 1; int64 l = 2; uint32 ui = 3; uint64 ul = 4; sint32 si = 5; sint64 sl = 6; fixed32 f32 = 7;
  fixed64 f64 = 8; sfixed32 s32 = 9; sfixed64 s64 = 10;
  bool yes = 11; float f = 12; double d = 13; string s = 14; bytes raw = 15;
  Color color = 16; optional string maybe = 17; Leaf leaf = 18; repeated Leaf leaves = 19;
  repeated sint64 numbers = 20;
  repeated bool flags = 21 [packed = false]; repeated Color colors = 22; map<int32, Leaf> map = 23;
  google.protobuf.Timestamp at = 24; oneof one { string a = 25; Leaf b = 26; int32 c = 27; } repeated bytes blobs = 100;
}
"""
number32, number64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
unsigned32, unsigned64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
short = st.text(max_size=3)
leaf = st.fixed_dictionaries(
    {},
    optional={
        "z": number32,
        "names": st.lists(short, max_size=3),
        "d": st.floats(allow_nan=False),
        "m": st.dictionaries(short, st.binary(max_size=3), max_size=2),
    },
)
simple = {
    "i": number32,
    "l": number64,
    "ui": unsigned32,
    "ul": unsigned64,
    "si": number32,
    "sl": number64,
    "f32": unsigned32,
    "f64": unsigned64,
    "s32": number32,
    "s64": number64,
    "yes": st.booleans(),
    "f": st.floats(width=32, allow_nan=False),
    "d": st.floats(allow_nan=False),
    "s": short,
    "raw": st.binary(max_size=3),
    "color": st.integers(0, 3),
    "maybe": short,
    "leaf": leaf,
    "leaves": st.lists(leaf, max_size=3),
    "numbers": st.lists(number64, max_size=3),
    "flags": st.lists(st.booleans(), max_size=3),
    "colors": st.lists(st.integers(0, 2), max_size=3),
    "map": st.dictionaries(number32, leaf, max_size=2),
    "blobs": st.lists(st.binary(max_size=3), max_size=3),
    "at": st.fixed_dictionaries(
        {"seconds": st.integers(-(10**9), 10**9), "nanos": st.integers(0, 999_999_999)}
    ),
}
one_of = st.sampled_from(["a", "b", "c", ""])
message = st.tuples(st.fixed_dictionaries({}, optional=simple), one_of, short, leaf, number32).map(
    lambda drawn: {**drawn[0], **({drawn[1]: drawn["abc".index(drawn[1]) + 2]} if drawn[1] else {})}
)


def comparable(found: Any) -> Any:
    """With maps as dicts: their order is the protobuf package's own."""
    if isinstance(found, dict):
        return {name: comparable(part) for name, part in found.items()}
    if isinstance(found, list):
        if found and isinstance(found[0], tuple):
            return {key: comparable(part) for key, part in found}
        return [comparable(part) for part in found]
    return "NaN" if isinstance(found, float) and found != found else found


@pytest.fixture(scope="module")
def every_kind() -> FoundMessage:
    return find_message(EVERY_KIND, {}, "All", "messageName")


@settings(deadline=None, max_examples=150)
@given(drawn=st.lists(message, min_size=1, max_size=5), damage=st.data(), defaults=st.booleans())
def test_the_compiled_loop_gives_what_the_protobuf_package_gives(
    every_kind: FoundMessage, drawn: list[Any], damage: Any, defaults: bool
) -> None:
    kind = message_class(every_kind.descriptors, "All")
    values = [kind(**each).SerializeToString() for each in drawn]
    victim = bytearray(values[0] + values[-1])  # one after the other they are merged
    if victim:
        what = damage.draw(st.sampled_from(["none", "cut", "changed", "more"]))
        at = damage.draw(st.integers(0, len(victim) - 1))
        if what == "cut":
            del victim[at:]
        elif what == "changed":
            victim[at] = damage.draw(st.integers(0, 255))
        elif what == "more":
            victim[at:at] = damage.draw(st.binary(max_size=3))
    data = pa.array([*values, bytes(victim), None, *values], pa.binary())
    target = arrow_type(message_type(every_kind.descriptor))
    decoding = ColumnDecoding("protobuf", target, "All", every_kind.descriptors, emit_default_values=defaults)
    fast, slow = (ProtobufDecoder(decoding, fast=fast).decode(data) for fast in (True, False))
    fast.array.validate(full=True)
    assert fast.array.type.equals(target)
    assert fast.bad == slow.bad
    assert set(fast.bad) <= {len(values)}
    assert comparable(fast.array.to_pylist()) == comparable(slow.array.to_pylist())


def test_the_compiled_loop_is_taken(every_kind: FoundMessage) -> None:
    """Without this the comparison above could hold for a loop that finds everything strange."""
    kind = message_class(every_kind.descriptors, "All")
    value = kind(
        i=1, leaves=[{"z": 1}, {}], map={1: {"d": 1.0}}, numbers=[1, 2], flags=[True, False], a="x"
    ).SerializeToString()
    target = arrow_type(message_type(every_kind.descriptor))
    decoder = ProtobufDecoder(ColumnDecoding("protobuf", target, "All", every_kind.descriptors))
    decoder._class = None
    assert decoder.decode(pa.array([value], pa.binary())).array[0].as_py()["numbers"] == [1, 2]


@pytest.fixture(scope="module")
def order() -> FoundMessage:
    return find_message(PROTO, {}, "Order", "messageName")


def decode(found: FoundMessage, values: list[bytes | None], target: Any = None, **more: Any) -> Any:
    target = arrow_type(message_type(found.descriptor)) if target is None else target
    name = found.descriptor.full_name
    decoding = ColumnDecoding("protobuf", target, name, found.descriptors, **more)
    made = ProtobufDecoder(decoding).decode(pa.array(values, pa.binary()))
    made.array.validate(full=True)
    assert made.array.type.equals(target)
    return made


def test_the_types_are_those_of_from_protobuf(order: FoundMessage) -> None:
    assert message_type(order.descriptor).simpleString() == (
        "struct<id:bigint,small:int,unsigned:int,large:bigint,d:double,f:float,yes:boolean,name:string,raw:binary,"
        "color:string,maybe:int,first:struct<sku:string,n:int>,lines:array<struct<sku:string,n:int>>,numbers:array<int>,"
        "counts:map<string,int>,by_number:map<int,struct<sku:string,n:int>>,at:timestamp,took:interval day to second,"
        "a:string,b:bigint>"
    )


def test_values(order: FoundMessage) -> None:
    kind = message_class(order.descriptors, "shop.Order")
    full = kind(
        id=-5,
        small=7,
        unsigned=(1 << 32) - 1,
        large=(1 << 64) - 1,
        d=1.5,
        f=0.25,
        yes=True,
        name="ü",
        raw=b"\xff",
        color=1,
        maybe=0,
        first={"sku": "x", "n": 0},
        lines=[{"sku": "a", "n": 1}, {"n": 2}],
        numbers=[0, 5],
        counts={"k": 0},
        by_number={3: {"sku": "z"}},
        a="",
    )
    full.at.FromJsonString("2024-05-17T12:00:00.000001Z")
    full.took.FromJsonString("1.5s")
    strange = kind(color=9)
    made = decode(order, [full.SerializeToString(), None, b"", strange.SerializeToString()])
    assert made.bad == {}
    first, null, empty, odd = made.array.to_pylist()
    assert null is None
    assert first == {
        "id": -5,
        "small": 7,
        "unsigned": -1,
        "large": -1,
        "d": 1.5,
        "f": 0.25,
        "yes": True,
        "name": "ü",
        "raw": b"\xff",
        "color": "RED",
        "maybe": 0,
        "first": {"sku": "x", "n": None},
        "numbers": [0, 5],
        "counts": [("k", 0)],
        "lines": [{"sku": "a", "n": 1}, {"sku": None, "n": 2}],
        "by_number": [(3, {"sku": "z", "n": None})],
        "at": datetime.datetime(2024, 5, 17, 12, 0, 0, 1, datetime.UTC),
        "took": datetime.timedelta(seconds=1.5),
        "a": "",
        "b": None,
    }
    lists = {"lines": [], "numbers": [], "counts": [], "by_number": []}
    assert empty == {**dict.fromkeys(first), **lists}
    assert odd["color"] == "UNKNOWN_ENUM_VALUE_Color_9"
    (emitted,) = decode(order, [b""], emit_default_values=True).array.to_pylist()
    zeros = {
        "id": 0,
        "small": 0,
        "unsigned": 0,
        "large": 0,
        "d": 0.0,
        "f": 0.0,
        "yes": False,
        "name": "",
        "raw": b"",
        "color": "NONE",
    }
    assert emitted == {**dict.fromkeys(first), **lists, **zeros}


def test_fewer_fields_and_bad_records(order: FoundMessage) -> None:
    kind = message_class(order.descriptors, "shop.Order")
    target = pa.struct([("name", pa.string()), ("first", pa.struct([("n", pa.int32())]))])
    good = kind(id=1, name="one", first={"n": 3}).SerializeToString()
    made = decode(order, [good, b"\xff\xff", None, good, good[:-1]], target)
    row = {"name": "one", "first": {"n": 3}}
    assert made.array.to_pylist() == [row, None, None, row, None]
    assert sorted(made.bad) == [1, 4]
    assert made.bad[1].startswith("it is no message shop.Order: ")


def test_schemas_by_file_and_by_descriptor_set(order: FoundMessage, tmp_path: Path) -> None:
    (tmp_path / "a b.proto").write_text(PROTO)
    (tmp_path / "set.desc").write_bytes(order.descriptors)
    for path in ("a b.proto", "set.desc"):
        found = find_message(str(tmp_path / path), {}, "shop.Order", "messageName")
        assert message_type(found.descriptor) == message_type(order.descriptor)


@pytest.mark.parametrize(
    ("schema", "name", "words"),
    [
        (PROTO, None, "has several messages: set messageName to one of Line, Order"),
        (PROTO, "Ordr", "has no message Ordr; it has shop.Line, shop.Order"),
        ("message {", None, "the Protobuf schema: .*cannot be compiled"),
        ("nowhere.proto", None, "nowhere.proto is neither .proto text nor a file that is there"),
        ('syntax = "proto3"; message T { T next = 1; }', None, "the Protobuf message T contains itself"),
    ],
)
def test_schemas_that_cannot_be_used(schema: str, name: str | None, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        message_type(find_message(schema, {}, name, "messageName").descriptor)
