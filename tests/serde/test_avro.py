"""Avro: own schemas and a registry's, schema resolution, references, and what does not fit."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import KohortError, SettingError
from kohort.serde import (
    AvroDeserializer,
    AvroSerializer,
    DataMismatch,
    SchemaNotFound,
    SchemaReference,
    SchemaRegistry,
    WrongSchema,
)
from kohort.serde.objects import plain
from tests.serde.orders import AVRO, AVRO_SCHEMA, ORDER, Line, Order, State
from tests.serde.registry_server import Registry

POINT = '{"type":"record","name":"Point","fields":[{"name":"x","type":"int"}]}'
WIDER_FIELDS = [{"name": "x", "type": "long"}, {"name": "y", "type": "int", "default": 7}]
WIDER = json.dumps({"type": "record", "name": "Point", "fields": WIDER_FIELDS})


@dataclass
class Point:
    x: int
    y: int = 0


def test_without_a_registry_the_bytes_are_avro_alone() -> None:
    data = AvroSerializer(schema=POINT)("t", {"x": 1})
    assert data == b"\x02"
    assert AvroDeserializer(schema=POINT)("t", data) == {"x": 1}
    assert AvroSerializer(schema=POINT)("t", None) is None


def test_a_whole_order_with_logical_types() -> None:
    data = AvroSerializer(Order, schema=AVRO_SCHEMA)("t", ORDER)
    assert data is not None
    assert AvroDeserializer(Order, schema=AVRO)("t", data) == ORDER


def test_a_dict_may_hold_objects() -> None:
    mixed = {**plain(ORDER), "lines": [Line("apple", 2), Line("pear")], "state": State.PAID}
    assert AvroSerializer(schema=AVRO)("t", mixed) == AvroSerializer(schema=AVRO)("t", ORDER)


def test_ranges_are_checked_where_that_is_asked_for() -> None:
    assert AvroSerializer(schema=POINT, validate=True)("t", {"x": 1}) == b"\x02"
    assert AvroSerializer(Order, schema=AVRO, validate=True)("t", ORDER) == AvroSerializer(schema=AVRO)(
        "t", ORDER
    )
    with pytest.raises(
        DataMismatch, match=r"cannot be written with the Avro type Point .*1099511627776.*expected int"
    ):
        AvroSerializer(schema=POINT, validate=True)("t", {"x": 2**40})


def test_functions_may_stand_for_a_class() -> None:
    def to_plain(point: tuple[int, int]) -> dict[str, int]:
        return {"x": point[0]}

    data = AvroSerializer(to_plain, schema=POINT)("t", (5, 6))
    assert data == b"\x0a"
    assert AvroDeserializer(lambda found: (found["x"], 0), schema=POINT)("t", data) == (5, 0)


def test_a_readers_schema_resolves_what_an_older_one_wrote(registry: SchemaRegistry) -> None:
    old = AvroSerializer(schema=POINT, registry=registry)("t", {"x": 1})
    assert old is not None
    assert AvroDeserializer(Point, schema=WIDER, registry=registry)("t", old) == Point(1, 7)
    assert AvroDeserializer(Point, schema=WIDER, writer_schema=POINT)("t", b"\x02") == Point(1, 7)


def test_schemas_that_do_not_resolve_are_told(registry: SchemaRegistry) -> None:
    other = '{"type":"record","name":"Point","fields":[{"name":"z","type":"string"}]}'
    data = AvroSerializer(schema=POINT, registry=registry)("t", {"x": 1})
    assert data is not None
    with pytest.raises(
        DataMismatch, match=r"the Avro type Point \(schema id 1\): No default value for (reader )?field z"
    ):
        AvroDeserializer(schema=other, registry=registry)("t", data)


def test_keys_and_values_have_their_own_subjects(server: Registry, registry: SchemaRegistry) -> None:
    AvroSerializer(schema='"long"', registry=registry, is_key=True)("orders", 1)
    AvroSerializer(schema=POINT, registry=registry)("orders", {"x": 1})
    assert server.subjects == {"orders-key": [1], "orders-value": [2]}


def test_one_serializer_for_several_topics(server: Registry, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(schema=POINT, registry=registry)
    assert serializer("a", {"x": 1}) == serializer("b", {"x": 1}) == serializer("a", {"x": 1})
    assert server.subjects == {"a-value": [1], "b-value": [1]}
    assert len(server.requests) == 2


def test_without_registering_the_schema_must_be_there(server: Registry, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(schema=POINT, registry=registry, auto_register_schemas=False)
    with pytest.raises(
        SchemaNotFound, match="this schema under subject orders-value is not in the schema registry"
    ):
        serializer("orders", {"x": 1})
    registry.register("orders-value", "AVRO", POINT)
    assert serializer("orders", {"x": 1}) == b"\x00\x00\x00\x00\x01\x02"
    assert server.subjects == {"orders-value": [1]}


def test_the_latest_schema_of_the_subject(server: Registry) -> None:
    with SchemaRegistry({"url": server.url, "cache.latest.ttl.sec": 0}) as registry:
        registry.register("orders-value", "AVRO", POINT)
        serializer = AvroSerializer(registry=registry, use_latest_version=True)
        assert serializer("orders", {"x": 1}) == b"\x00\x00\x00\x00\x01\x02"
        registry.register("orders-value", "AVRO", WIDER)
        assert serializer("orders", {"x": 1}) == b"\x00\x00\x00\x00\x02\x02\x0e"


def test_types_of_references_are_found(registry: SchemaRegistry) -> None:
    currency = '{"type":"enum","name":"Currency","namespace":"shop","symbols":["EUR"]}'
    money = json.dumps(
        {"type": "record", "name": "Money", "namespace": "shop", "fields": [
            {"name": "cents", "type": "long"}, {"name": "currency", "type": "shop.Currency"}]}
    )  # fmt: skip
    bill = json.dumps(
        {"type": "record", "name": "Bill", "fields": [
            {"name": "total", "type": "shop.Money"}, {"name": "paid", "type": ["null", "shop.Money"]}]}
    )  # fmt: skip
    registry.register("currency", "AVRO", currency)
    to_currency = SchemaReference("shop.Currency", "currency", 1)
    registry.register("money", "AVRO", money, [to_currency])
    references = [SchemaReference("shop.Money", "money", 1), to_currency]
    euro = {"cents": 5, "currency": "EUR"}
    serializer = AvroSerializer(schema=bill, references=references, registry=registry)
    data = serializer("bills", {"total": euro, "paid": euro})
    assert data is not None
    assert AvroDeserializer(registry=registry)("bills", data) == {"total": euro, "paid": euro}
    with pytest.raises(WrongSchema, match=r"shop\.Money"):
        AvroSerializer(schema=bill)


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        ({"x": "text"}, "cannot be written with the Avro type Point"),
        ({}, "cannot be written with the Avro type Point"),
        ({"x": 1, "yy": 2}, "yy"),
        (5, "an object of the type int cannot be written"),
    ],
    ids=str,
)
def test_an_object_that_does_not_fit_is_told(thing: Any, words: str) -> None:
    with pytest.raises(DataMismatch, match=words) as wrong:
        AvroSerializer(schema=POINT)("t", thing)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            b"\x00\x00\x00\x00\x01",
            r"does not fit the Avro type Point \(schema id 1\): the data ends too early",
        ),
        (b"\x00\x00\x00\x00\x01\x02\x03", "1 of 7 bytes are left over"),
        (
            b"\x00\x00\x00\x00\x02{}",
            "schema id 2 is of the kind JSON, which AvroDeserializer cannot read: use JsonDes",
        ),
        (b"\x00\x00\x00\x00\x03\x02", "schema id 3 cannot be read as an Avro schema"),
        (b"\x00\x00\x00\x00\x09\x02", "schema id 9 is not in the schema registry"),
        (b"text", "4 bytes are too few for a schema id"),
    ],
)
def test_data_that_does_not_fit_is_told(registry: SchemaRegistry, data: bytes, words: str) -> None:
    registry.register("a", "AVRO", POINT)
    registry.register("b", "JSON", "{}")
    registry.register("c", "AVRO", '{"type":"nothing"}')
    with pytest.raises(KohortError, match=words) as wrong:
        AvroDeserializer(registry=registry)("t", data)
    assert "\n" not in str(wrong.value)


def test_an_object_that_does_not_fit_the_class_names_schema_and_field(registry: SchemaRegistry) -> None:
    data = AvroSerializer(schema=POINT, registry=registry)("t", {"x": 1})
    assert data is not None
    with pytest.raises(
        DataMismatch, match=r"the Avro type Point \(schema id 1\): field id: is missing, and Order needs"
    ):
        AvroDeserializer(Order, registry=registry)("t", data)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    deserializer = AvroDeserializer(Order, schema=AVRO)
    try:
        deserializer("t", data)
    except DataMismatch:
        pass
    whole = AvroSerializer(Order, schema=AVRO)("t", replace(ORDER, note=data.hex()))
    assert whole is not None
    assert deserializer("t", whole).note == data.hex()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs schema=…"),
        ({"schema": POINT, "use_latest_version": True}, "is for a schema registry"),
        ({"schema": POINT, "registry": "http://a", "use_latest_version": True}, "give no schema of your own"),
        (
            {"registry": "http://a", "use_latest_version": True, "auto_register_schemas": True},
            "exclude each other",
        ),
        ({"schema": POINT, "auto_register_schemas": False}, "auto_register_schemas is for a schema registry"),
        ({"schema": POINT, "references": [SchemaReference("a", "a", 1)]}, "give `registry` too"),
        (
            {"schema": POINT, "registry": "http://a", "auto_register": True},
            "did you mean auto_register_schemas",
        ),
        ({"schema": POINT, "registry": "localhost:8081"}, "must be http://host:port"),
    ],
    ids=str,
)
def test_wrong_arguments_are_told(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        AvroSerializer(**arguments)


def test_wrong_arguments_of_a_deserializer_are_told() -> None:
    with pytest.raises(SettingError, match=r"needs schema=… or registry=…"):
        AvroDeserializer()
    with pytest.raises(SettingError, match="give no writer_schema"):
        AvroDeserializer(writer_schema=POINT, registry="http://a")


@pytest.mark.parametrize("schema", ["", "string", '{"type":"recor"}', '{"type":"record"}', "[", 5])
def test_a_schema_that_is_none_is_told(schema: Any) -> None:
    with pytest.raises(WrongSchema, match="cannot be read as an Avro schema"):
        AvroSerializer(schema=schema)


def test_they_travel_to_other_processes(server: Registry, registry: SchemaRegistry) -> None:
    data = AvroSerializer(schema=POINT, registry=registry)("t", {"x": 1})
    assert data is not None
    deserializer = AvroDeserializer(Point, registry=registry)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if deserializer("t", data) == Point(1) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert pickle.loads(pickle.dumps(registry.settings)) == registry.settings
