"""JSON: plain and framed, into classes, validated against a schema, and what does not fit."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import KohortError, SettingError
from kohort.serde import (
    DataMismatch,
    JsonDeserializer,
    JsonSerializer,
    SchemaReference,
    SchemaRegistry,
    WrongSchema,
)
from tests.serde.orders import JSON_SCHEMA, ORDER, Order, Point
from tests.serde.registry_server import Registry


class Spot(TypedDict):
    x: int


@dataclass
class Mixed:
    money: Decimal
    words: frozenset[str]


def test_without_a_registry_the_bytes_are_json_alone() -> None:
    assert JsonSerializer()("t", {"a": [1, None, "ü"]}) == '{"a":[1,null,"ü"]}'.encode()
    assert JsonDeserializer()("t", b'{"a": [1, null]}') == {"a": [1, None]}
    assert JsonSerializer()("t", None) is None


def test_a_whole_order() -> None:
    data = JsonSerializer(Order)("t", ORDER)
    assert data is not None
    assert orjson.loads(data)["total"] == "12.50"
    assert JsonDeserializer(Order)("t", data) == ORDER


def test_decimals_sets_and_tuples_have_a_form() -> None:
    data = JsonSerializer(Mixed)("t", Mixed(Decimal("1.10"), frozenset({"a"})))
    assert data == b'{"money":"1.10","words":["a"]}'
    assert JsonDeserializer(Mixed)("t", data) == Mixed(Decimal("1.10"), frozenset({"a"}))
    place = namedtuple("place", "x y")
    assert JsonSerializer()("t", [place(1, 2), (3, 4)]) == b'[{"x":1,"y":2},[3,4]]'


def test_functions_and_typed_dicts() -> None:
    assert JsonSerializer(lambda point: {"x": point.x})("t", Point(3)) == b'{"x":3}'
    assert JsonDeserializer(lambda found: found["x"])("t", b'{"x":3}') == 3
    assert JsonDeserializer(Spot)("t", b'{"x":3,"more":1}') == {"x": 3, "more": 1}
    assert JsonDeserializer(list[Point])("t", b'[{"x":1}]') == [Point(1)]


@given(
    st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=8)
)
def test_what_is_written_is_read(thing: Any) -> None:
    data = JsonSerializer()("t", [thing])
    assert data is not None
    assert JsonDeserializer()("t", data) == [thing]


@given(st.binary(max_size=40) | st.binary(max_size=20).map(lambda data: b'{"x":' + data + b"}"))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        assert isinstance(JsonDeserializer(Point)("t", data), Point)
    except DataMismatch as told:
        assert_one_line(told)


def assert_one_line(told: Exception) -> None:
    assert str(told)
    assert "\n" not in str(told)


def test_a_schema_id_stands_before_the_json(server: Registry, registry: SchemaRegistry) -> None:
    data = JsonSerializer(Point, schema=JSON_SCHEMA, registry=registry)("points", Point(1, 2))
    assert data == b'\x00\x00\x00\x00\x01{"x":1,"y":2}'
    assert server.subjects == {"points-value": [1]}
    assert JsonDeserializer(Point, registry=registry)("points", data) == Point(1, 2)


def test_the_title_is_the_records_name(server: Registry, registry: SchemaRegistry) -> None:
    JsonSerializer(schema=JSON_SCHEMA, registry=registry, subject_name_strategy="RecordNameStrategy")(
        "t", {"x": 1}
    )
    assert list(server.subjects) == ["Point"]


def test_records_are_validated_where_that_is_asked_for(registry: SchemaRegistry) -> None:
    serializer = JsonSerializer(schema=JSON_SCHEMA, registry=registry, validate=True)
    assert serializer("t", {"x": 1}) == b'\x00\x00\x00\x00\x01{"x":1}'
    with pytest.raises(DataMismatch, match=r"does not fit the schema at \$\.x: 'a' is not of type 'integer'"):
        serializer("t", {"x": "a"})
    unchecked = JsonSerializer(schema=JSON_SCHEMA, registry=registry)("t", {"y": 1})
    assert unchecked is not None
    with pytest.raises(DataMismatch, match=r"does not fit schema id 1 at \$: 'x' is a required property"):
        JsonDeserializer(registry=registry, validate=True)("t", unchecked)
    with pytest.raises(DataMismatch, match="does not fit the schema"):
        JsonDeserializer(schema=JSON_SCHEMA, validate=True)("t", b"{}")
    latest = JsonSerializer(registry=registry, use_latest_version=True, validate=True)
    assert latest("t", {"x": 1}) == b'\x00\x00\x00\x00\x01{"x":1}'
    with pytest.raises(DataMismatch, match="does not fit schema id 1"):
        latest("t", {})


def test_references_are_followed_when_validating(registry: SchemaRegistry) -> None:
    registry.register("point", "JSON", JSON_SCHEMA)
    line = '{"type": "array", "items": {"$ref": "point.json"}}'
    schema_id = registry.register("line", "JSON", line, [SchemaReference("point.json", "point", 1)])
    deserializer = JsonDeserializer(registry=registry, validate=True)
    frame = schema_id.to_bytes(5, "big")
    assert deserializer("t", frame + b'[{"x": 1}]') == [{"x": 1}]
    with pytest.raises(DataMismatch, match=r"at \$\[0\]: 'x' is a required property"):
        deserializer("t", frame + b"[{}]")
    references = [SchemaReference("point.json", "point", 1)]
    serializer = JsonSerializer(schema=line, references=references, registry=registry, validate=True)
    assert serializer("lines", [{"x": 1}]) == frame + b'[{"x":1}]'
    with pytest.raises(DataMismatch, match="'x' is a required property"):
        serializer("lines", [{}])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "the data is no JSON: "),
        (b"\x00\x00\x00\x00\x01{}", r"if a schema id stands before the JSON, give registry=…"),
        (b"[]", "the JSON does not fit: .* is no object with the fields of Point"),
        (b'{"x": "1"}', "the JSON does not fit: field x: '1' is no int"),
        (b"\xff", "the data is no JSON"),
        (b"", "the data is no JSON"),
    ],
)
def test_plain_data_that_does_not_fit_is_told(data: bytes, words: str) -> None:
    with pytest.raises(DataMismatch, match=words) as wrong:
        JsonDeserializer(Point)("t", data)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x00\x00\x00\x01{", "the data is no JSON of schema id 1"),
        (b'\x00\x00\x00\x00\x01{"x": null}', "the JSON of schema id 1 does not fit: field x: None is no int"),
        (b"\x00\x00\x00\x00\x02\x02", "schema id 2 is of the kind AVRO, which JsonDeserializer cannot read"),
        (b'{"x": 1}', "not with the magic byte"),
    ],
)
def test_framed_data_that_does_not_fit_is_told(registry: SchemaRegistry, data: bytes, words: str) -> None:
    registry.register("a", "JSON", JSON_SCHEMA)
    registry.register("b", "AVRO", '{"type":"int"}')
    with pytest.raises(KohortError, match=words):
        JsonDeserializer(Point, registry=registry)("t", data)


@pytest.mark.parametrize("thing", [{1, b"bytes"}, object(), 2**70, {"a": {1: 2}}])
def test_what_is_no_json_is_told(thing: Any) -> None:
    with pytest.raises(DataMismatch, match="is no JSON"):
        JsonSerializer()("t", thing)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: JsonSerializer(registry="http://a"), "needs schema=…"),
        (lambda: JsonSerializer(validate=True), "validate=True needs a schema"),
        (
            lambda: JsonSerializer(schema="{}", references=[SchemaReference("a", "a", 1)]),
            "give `registry` too",
        ),
        (
            lambda: JsonSerializer(schema="{}", registry="http://a", use_latest_version=True),
            "no schema of your own",
        ),
        (lambda: JsonDeserializer(validate=True), "needs schema=… or registry=…"),
        (lambda: JsonDeserializer(schema="{}"), "is for validate=True"),
        (
            lambda: JsonDeserializer(schema="{}", validate=True, registry="http://a"),
            "give no schema of your own",
        ),
    ],
)
def test_wrong_arguments_are_told(make: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        make()


@pytest.mark.parametrize("schema", ["{", '{"type": "whole"}', '{"properties": 5}'])
def test_a_schema_that_is_none_is_told(schema: str) -> None:
    with pytest.raises(WrongSchema, match="cannot be read as a JSON Schema"):
        JsonSerializer(schema=schema, validate=True)
