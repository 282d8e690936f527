"""Protobuf: generated classes, messages by a registry's schema, imports, and what does not fit."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from kohort import KohortError, SettingError
from kohort.serde import (
    DataMismatch,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegisteredSchema,
    SchemaReference,
    SchemaRegistry,
    WrongSchema,
)
from kohort.serde.framing import frame_message
from kohort.serde.protobuf import class_of, compiled, descriptor_of, indexes_of, message_named
from tests.serde.orders import PROTOS, messages, order_message
from tests.serde.registry_server import Registry

MONEY = (PROTOS / "money.proto").read_text("utf-8")
ORDERS = (PROTOS / "order.proto").read_text("utf-8")


def described(text: str, **imports: str) -> Any:
    references = {f"{name}.proto": RegisteredSchema(0, "PROTOBUF", each) for name, each in imports.items()}
    return descriptor_of(RegisteredSchema(1, "PROTOBUF", text), references)


def test_without_a_registry_the_bytes_are_the_message_alone() -> None:
    order = order_message()
    data = ProtobufSerializer(type(order))("t", order)
    assert data == order.SerializeToString()
    assert ProtobufDeserializer(type(order))("t", data) == order
    assert ProtobufSerializer(type(order))("t", None) is None


def test_imports_are_registered_and_referred_to(server: Registry, registry: SchemaRegistry) -> None:
    order = order_message()
    data = ProtobufSerializer(type(order), registry=registry)("orders", order)
    assert data is not None
    assert server.subjects == {"money.proto": [1], "orders-value": [2]}
    assert registry.latest("orders-value").references == (SchemaReference("money.proto", "money.proto", 1),)
    assert ProtobufDeserializer(type(order), registry=registry)("orders", data) == order


def test_the_records_name_is_the_messages(server: Registry, registry: SchemaRegistry) -> None:
    order = order_message()
    ProtobufSerializer(type(order), registry=registry, subject_name_strategy="RecordNameStrategy")("t", order)
    assert "shop.Order" in server.subjects


def test_the_latest_schema_of_the_subject(registry: SchemaRegistry) -> None:
    order = order_message()
    registry.register("orders-value", "PROTOBUF", ORDERS)
    serializer = ProtobufSerializer(type(order), registry=registry, use_latest_version=True)
    assert serializer("orders", order) == frame_message(1, [1]) + order.SerializeToString()


def test_a_registrys_text_makes_the_class(registry: SchemaRegistry) -> None:
    registry.register("money", "PROTOBUF", MONEY)
    registry.register("orders-value", "PROTOBUF", ORDERS, [SchemaReference("money.proto", "money", 1)])
    data = frame_message(2, [1]) + order_message().SerializeToString()
    found = ProtobufDeserializer(registry=registry)("orders", data)
    assert json_format.MessageToDict(found) == {
        "id": "7",
        "lines": [{"article": "apple", "count": 2}],
        "total": {"currency": "EUR", "cents": "1250"},
        "placed": "2023-11-14T22:13:20Z",
    }


@pytest.mark.parametrize("money", ["text", "base64"])
@pytest.mark.parametrize("order", ["text", "base64"])
def test_texts_and_descriptors_may_be_mixed(money: str, order: str) -> None:
    made = messages()
    coded = base64.b64encode(made.DESCRIPTOR.serialized_pb).decode()
    money_file = made.Order.DESCRIPTOR.fields_by_name["total"].message_type.file
    coded_money = base64.b64encode(money_file.serialized_pb).decode()
    file = described(ORDERS if order == "text" else coded, money=MONEY if money == "text" else coded_money)
    message = class_of(message_named(file, "Order")).FromString(order_message().SerializeToString())
    assert str(message) == str(order_message())


def test_messages_are_found_by_name_and_by_place() -> None:
    file = described(ORDERS, money=MONEY)
    assert message_named(file, None).full_name == "shop.Customer"
    assert message_named(file, "Order").full_name == "shop.Order"
    assert message_named(file, "shop.Order.Line").full_name == "shop.Order.Line"
    assert indexes_of(message_named(file, "Order.Line")) == (1, 0)
    with pytest.raises(WrongSchema, match=r"has no message Bill; it has shop\.Customer, shop\.Order"):
        message_named(file, "Bill")
    with pytest.raises(WrongSchema, match="defines no message"):
        message_named(described('syntax = "proto3";'), None)


def test_two_versions_of_a_file_can_be_there() -> None:
    old = described('syntax = "proto3"; message A { int32 x = 1; }')
    new = described('syntax = "proto3"; message A { int32 x = 1; string y = 2; }')
    assert [len(message_named(each, "A").fields) for each in (old, new)] == [1, 2]


def test_files_that_every_registry_knows_need_no_reference() -> None:
    file = described(
        """syntax = "proto3";
        import "confluent/meta.proto";
        import "confluent/type/decimal.proto";
        import "google/protobuf/wrappers.proto";
        message A {
          confluent.type.Decimal price = 1 [(confluent.field_meta).doc = "in euros"];
          google.protobuf.StringValue name = 2;
        }"""
    )
    assert [field.name for field in message_named(file, "A").fields] == ["price", "name"]
    names = {each.name for each in compiled("a.proto", 'syntax = "proto2"; message B {}', {})}
    assert names == {"a.proto"}


@pytest.mark.parametrize(
    ("text", "imports", "words"),
    [
        (
            'syntax = "proto3"; message A { nothing x = 1; }',
            {},
            "cannot be compiled: .*nothing.* is not defined",
        ),
        ('syntax = "proto3"; import "b.proto"; message A {}', {}, "b.proto"),
        ("message", {}, "cannot be compiled"),
        ("aGVsbG8h" * 4, {}, "is base64, but of no descriptor"),
        ('syntax = "proto3"; message A {}', {"../../evil": MONEY}, "no relative path to a .proto file"),
        ('syntax = "proto3"; message A {}', {"/evil": MONEY}, "no relative path to a .proto file"),
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_compiled_is_told(text: str, imports: dict[str, str], words: str) -> None:
    with pytest.raises(WrongSchema, match=words) as wrong:
        described(text, **imports)
    assert "\n" not in str(wrong.value)


def test_a_descriptor_whose_import_is_missing_is_told() -> None:
    coded = base64.b64encode(messages().DESCRIPTOR.serialized_pb).decode()
    with pytest.raises(WrongSchema, match=r"imports money\.proto, which is not among its references"):
        described(coded)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame_message(1, [0]) + b"\xff\xff", r"no Protobuf message shop\.Customer \(schema id 1\)"),
        (frame_message(1, [1]), r"holds the message shop\.Money2 .* reads shop\.Customer"),
        (frame_message(1, [7]), "message index 7 is not in schema id 1, which has 2 messages"),
        (frame_message(2, [0]), "schema id 2 is of the kind AVRO"),
        (frame_message(9, [0]), "schema id 9 is not in the schema registry"),
        (b"\x00\x00\x00\x00\x01", "ends within the Protobuf message indexes"),
        (b"x", "1 bytes are too few"),
    ],
)
def test_data_that_does_not_fit_is_told(registry: SchemaRegistry, data: bytes, words: str) -> None:
    text = 'syntax = "proto3"; package shop; message Customer { string name = 1; } message Money2 {}'
    registry.register("a", "PROTOBUF", text)
    registry.register("b", "AVRO", '{"type":"int"}')
    with pytest.raises(KohortError, match=words) as wrong:
        ProtobufDeserializer(messages().Customer, registry=registry)("t", data)
    assert "\n" not in str(wrong.value)


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    kind = messages().Order
    try:
        assert isinstance(ProtobufDeserializer(kind)("t", data), kind)
    except DataMismatch:
        pass


def test_another_message_is_refused() -> None:
    with pytest.raises(DataMismatch, match=r"writes shop\.Customer, not objects of Order"):
        ProtobufSerializer(messages().Customer)("t", order_message())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ProtobufSerializer(dict), "needs a class that protoc has made"),
        (lambda: ProtobufDeserializer(5, registry="http://a"), "needs a class that protoc has made"),
        (lambda: ProtobufDeserializer(), "needs a generated class, or registry=…"),
    ],
)
def test_wrong_arguments_are_told(make: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        make()
