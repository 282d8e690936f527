"""confluent-kafka's own serializers beside ours on one registry: the same ids and bytes, and each reads the other's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as TheirJSONDeserializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as TheirJSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import (
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    MessageField,
    SerializationContext,
    StringDeserializer,
    StringSerializer,
)

from kohort.serde import avro, json_schema, plain, protobuf
from kohort.serde.objects import plain as plain_of
from kohort.serde.registry import SchemaRegistry
from tests.serde.orders import AVRO, JSON_SCHEMA, ORDER, Order, Point, messages, order_message
from tests.serde.registry_server import Registry

VALUE = SerializationContext("orders", MessageField.VALUE)
KEY = SerializationContext("orders", MessageField.KEY)
# Their default, ASSOCIATED, asks Confluent Cloud for the subject of a topic first.
TOPIC = {"subject.name.strategy.type": "TOPIC"}


@pytest.fixture
def theirs(server: Registry) -> Iterator[Any]:
    with SchemaRegistryClient({"url": server.url}) as client:
        yield client


def test_avro(theirs: Any, registry: SchemaRegistry, server: Registry) -> None:
    ours = avro.AvroSerializer(Order, schema=AVRO, registry=registry)("orders", ORDER)
    made = TheirAvroSerializer(theirs, AVRO, conf=TOPIC)(plain_of(ORDER), VALUE)
    assert ours == made
    assert list(server.schemas) == [1]
    assert avro.AvroDeserializer(Order, registry=registry)("orders", made) == ORDER
    assert TheirAvroDeserializer(theirs, conf=TOPIC)(ours, VALUE) == plain_of(ORDER)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('"string"', "text"),
        ('"long"', -5),
        ('"bytes"', b"\x00\x01"),
        ('{"type": "array", "items": "double"}', [1.5, 2.0]),
        ('["null", "string"]', "text"),
        ('{"type": "bytes"}', b"x"),
    ],
)
def test_avro_of_simple_types(
    theirs: Any, registry: SchemaRegistry, server: Registry, schema: str, value: Any
) -> None:
    ours = avro.AvroSerializer(schema=schema, registry=registry, is_key=True)("orders", value)
    made = TheirAvroSerializer(theirs, schema, conf=TOPIC)(value, KEY)
    assert ours == made
    assert list(server.subjects) == ["orders-key"]
    assert avro.AvroDeserializer(registry=registry)("orders", made) == value
    assert TheirAvroDeserializer(theirs, conf=TOPIC)(ours, KEY) == value


def test_avro_with_the_latest_version(theirs: Any, registry: SchemaRegistry) -> None:
    registry.register("orders-value", "AVRO", '{"type":"string"}')
    registry.register("orders-value", "AVRO", '{"type":"int"}')
    conf = {"auto.register.schemas": False, "use.latest.version": True, **TOPIC}
    ours = avro.AvroSerializer(registry=registry, use_latest_version=True)("orders", 5)
    assert ours == TheirAvroSerializer(theirs, '{"type":"int"}', conf=conf)(5, VALUE)
    assert ours is not None
    assert ours[:5] == b"\x00\x00\x00\x00\x02"


@pytest.mark.parametrize("strategy", ["RECORD", "TOPIC_RECORD"])
def test_subjects(theirs: Any, registry: SchemaRegistry, server: Registry, strategy: str) -> None:
    ours = avro.AvroSerializer(Order, schema=AVRO, registry=registry, subject_name_strategy=strategy)(
        "orders", ORDER
    )
    named = list(server.subjects)
    conf = {"subject.name.strategy.type": strategy, "auto.register.schemas": False}
    assert ours == TheirAvroSerializer(theirs, AVRO, conf=conf)(plain_of(ORDER), VALUE)
    assert named == [{"RECORD": "shop.Order", "TOPIC_RECORD": "orders-shop.Order"}[strategy]]


def test_json(theirs: Any, registry: SchemaRegistry, server: Registry) -> None:
    ours = json_schema.JsonSerializer(Point, schema=JSON_SCHEMA, registry=registry)("orders", Point(1, 2))
    compact = TheirJSONSerializer(
        JSON_SCHEMA, theirs, conf=TOPIC, json_encode=lambda thing: json.dumps(thing, separators=(",", ":"))
    )
    assert ours == compact({"x": 1, "y": 2}, VALUE)
    assert list(server.schemas) == [1]
    made = TheirJSONSerializer(JSON_SCHEMA, theirs, conf=TOPIC)({"x": 1, "y": 2}, VALUE)
    assert json_schema.JsonDeserializer(Point, registry=registry, validate=True)("orders", made) == Point(
        1, 2
    )
    read = TheirJSONDeserializer(JSON_SCHEMA, schema_registry_client=theirs, conf=TOPIC)(ours, VALUE)
    assert read == {"x": 1, "y": 2}


@pytest.mark.parametrize("which", ["first of its file", "second", "nested"])
def test_protobuf(theirs: Any, registry: SchemaRegistry, server: Registry, which: str) -> None:
    made = messages()
    message: Any = {
        "first of its file": made.Customer(name="Ada"),
        "second": order_message(),
        "nested": made.Order.Line(article="apple", count=3),
    }[which]
    kind = type(message)
    ours = protobuf.ProtobufSerializer(kind, registry=registry)("orders", message)
    ids = sorted(server.schemas)
    conf = {"use.deprecated.format": False, **TOPIC}
    assert ours == TheirProtobufSerializer(kind, theirs, conf=conf)(message, VALUE)
    assert sorted(server.schemas) == ids, "both register the same schemas"
    assert sorted(server.subjects) == ["money.proto", "orders-value"]
    assert ours is not None
    assert ours[5:].startswith(
        {"first of its file": b"\x00", "second": b"\x02\x02", "nested": b"\x04\x02\x00"}[which]
    )
    assert protobuf.ProtobufDeserializer(kind, registry=registry)("orders", ours) == message
    assert TheirProtobufDeserializer(kind, conf, theirs)(ours, VALUE) == message
    dynamic = protobuf.ProtobufDeserializer(registry=registry)("orders", ours)
    assert dynamic.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
    assert dynamic.SerializeToString() == message.SerializeToString()


def test_text_and_numbers() -> None:
    assert plain.StringSerializer()("t", "grün") == StringSerializer()("grün")
    assert plain.StringDeserializer()("t", "grün".encode()) == StringDeserializer()("grün".encode())
    for number in (0, -1, 2**31 - 1, -(2**31)):
        data = IntegerSerializer()(number)
        assert plain.IntegerSerializer()("t", number) == data
        assert plain.IntegerDeserializer()("t", data) == IntegerDeserializer()(data) == number
    for value in (0.0, -1.5, 1e300):
        data = DoubleSerializer()(value)
        assert plain.DoubleSerializer()("t", value) == data
        assert plain.DoubleDeserializer()("t", data) == DoubleDeserializer()(data) == value
