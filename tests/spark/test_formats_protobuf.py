"""Protobuf to columns: Spark's types and values for every kind of field, fewer fields, bad records."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

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
  string name = 8; bytes raw = 9; Color color = 10; optional int32 maybe = 11; Line first = 12; repeated Line lines = 13;
  repeated int32 numbers = 14; map<string, int32> counts = 15; map<int32, Line> by_number = 16;
  google.protobuf.Timestamp at = 17; google.protobuf.Duration took = 18; oneof choice { string a = 19; int64 b = 20; }
}
"""


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
        id=-5, small=7, unsigned=(1 << 32) - 1, large=(1 << 64) - 1, d=1.5, f=0.25, yes=True, name="ü", raw=b"\xff", color=1,
        maybe=0, first={"sku": "x", "n": 0}, lines=[{"sku": "a", "n": 1}, {"n": 2}], numbers=[0, 5], counts={"k": 0},
        by_number={3: {"sku": "z"}}, a="",
    )  # fmt: skip
    full.at.FromJsonString("2024-05-17T12:00:00.000001Z")
    full.took.FromJsonString("1.5s")
    strange = kind(color=9)
    made = decode(order, [full.SerializeToString(), None, b"", strange.SerializeToString()])
    assert made.bad == {}
    first, null, empty, odd = made.array.to_pylist()
    assert null is None
    assert first == {
        "id": -5, "small": 7, "unsigned": -1, "large": -1, "d": 1.5, "f": 0.25, "yes": True, "name": "ü", "raw": b"\xff",
        "color": "RED", "maybe": 0, "first": {"sku": "x", "n": None}, "numbers": [0, 5], "counts": [("k", 0)],
        "lines": [{"sku": "a", "n": 1}, {"sku": None, "n": 2}], "by_number": [(3, {"sku": "z", "n": None})],
        "at": datetime.datetime(2024, 5, 17, 12, 0, 0, 1, datetime.UTC), "took": datetime.timedelta(seconds=1.5),
        "a": "", "b": None,
    }  # fmt: skip
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
