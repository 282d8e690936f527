"""Records of a schema registry to columns: several schemas in a topic, unknown ids, a registry that is away."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from kohort import TopicPartition
from kohort.errors import KohortError
from kohort.serde.framing import frame, frame_message
from kohort.settings import SettingError
from kohort.spark.executor.typed_rows import TypedRows
from kohort.spark.formats.decoding import RecordDecoding, RecordDoesNotFit, decoder_for
from kohort.spark.formats.format_options import RecordFormats, read_formats
from kohort.spark.formats.planning import CORRUPT_TYPE, plan_decoding, typed_columns
from kohort.spark.formats.protobuf_decoder import message_class
from kohort.spark.formats.protobuf_schema import find_message
from kohort.wire.records.columns import Columns, decode_columns, encode_batch_columns, prefer
from tests.serde.registry_server import Registry, running_registry

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "old", "type": "string"}],
}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; } message Other { string s = 1; }'


@pytest.fixture
def server() -> Iterator[Registry]:
    with running_registry() as registry:
        yield registry


def formats_of(server: Registry | None, **given: Any) -> RecordFormats:
    options = {name.replace("__", ".").lower(): str(value) for name, value in given.items()}
    if server is not None:
        options |= {"schema.registry.url": server.url, "schema.registry.max.retries": "0"}
    return read_formats(options)


def planned(formats: RecordFormats, *topics: str) -> RecordDecoding:
    columns = typed_columns(formats, topics)
    made = plan_decoding(
        formats, StructType([StructField(name, kind) for name, kind in columns.items()]), topics
    )
    assert made is not None
    return made


def register(server: Registry, subject: str, schema: Any, kind: str = "AVRO") -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    status, answer = server.register(subject, {"schema": text, "schemaType": kind})
    assert status == 200
    return int(answer["id"])


def avro(schema: Any, value: Any, number: int) -> bytes:
    stream = io.BytesIO(frame(number))
    stream.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def columns(values: list[bytes | None], first_offset: int = 100) -> Columns:
    batch = bytearray(
        encode_batch_columns([None] * len(values), values, [0] * len(values), [[]] * len(values))
    )
    batch[:8] = first_offset.to_bytes(8, "big")
    return decode_columns(bytes(batch), 0, check_crcs=False).columns


def rows(decoding: RecordDecoding, values: list[bytes | None], *names: str) -> list[dict[str, Any]]:
    made = TypedRows(TopicPartition("orders", 3), names or ("offset", "value"), decoding)
    found: list[dict[str, Any]] = made.batch(columns(values)).to_pylist()
    return found


@pytest.fixture(params=["numba", "python"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """The compiled loops, and the packages where these are not to be used."""
    prefer(request.param)
    decoder_for.cache_clear()
    yield request.param
    prefer("")
    decoder_for.cache_clear()


def test_records_of_two_schemas_are_read_by_the_latest(server: Registry, way: str) -> None:
    old, new = (register(server, "orders-value", schema) for schema in (FIRST, SECOND))
    decoding = planned(formats_of(server, valueFormat="avro"), "orders")
    values = [
        avro(FIRST, {"id": 1, "old": "x"}, old),
        avro(SECOND, {"id": 2, "price": 0.5}, new),
        None,
        avro(FIRST, {"id": 3, "old": "y"}, old),
    ]
    found = [row["value"] for row in rows(decoding, values)]
    assert found == [{"id": 1, "price": None}, {"id": 2, "price": 0.5}, None, {"id": 3, "price": None}]
    asked = len(server.requests)
    rows(decoding, values)
    assert len(server.requests) == asked  # schemas are kept
    pinned = planned(formats_of(server, valueFormat="avro", valueSchemaId=old), "orders")
    assert rows(pinned, values[:1])[0]["value"] == {"id": 1, "old": "x"}


def test_an_id_that_the_registry_does_not_have(server: Registry) -> None:
    number = register(server, "orders-value", FIRST)
    values: list[bytes | None] = [
        avro(FIRST, {"id": n, "old": ""}, number if n != 1 else 77) for n in range(3)
    ]
    decoding = planned(formats_of(server, valueFormat="avro"), "orders")
    with pytest.raises(
        RecordDoesNotFit, match=r"^orders-3@101: the value does not fit valueFormat=avro: .*schema id 77"
    ):
        rows(decoding, values)
    kept = planned(formats_of(server, valueFormat="avro", mode="PERMISSIVE"), "orders")
    found = rows(kept, values, "value", "_corrupt")
    assert [row["value"] and row["value"]["id"] for row in found] == [0, None, 2]
    assert "schema id 77" in found[1]["_corrupt"]["reason"]
    assert found[1]["_corrupt"]["value"] == values[1]


def test_the_column_of_bad_records_alone(server: Registry) -> None:
    number = register(server, "orders-value", FIRST)
    formats = formats_of(server, valueFormat="avro", mode="PERMISSIVE")
    decoding = plan_decoding(formats, StructType([StructField("_corrupt", CORRUPT_TYPE)]), ["orders"])
    assert decoding is not None
    found = rows(decoding, [avro(FIRST, {"id": 1, "old": ""}, number), b"x"], "_corrupt")
    assert [row["_corrupt"] and row["_corrupt"]["value"] for row in found] == [None, b"x"]


def test_a_registry_that_is_away_is_no_fault_of_the_record(server: Registry) -> None:
    """So the task fails in every mode, and Spark tries it again."""
    register(server, "orders-value", FIRST)
    other = register(server, "others-value", SECOND)
    decoding = planned(formats_of(server, valueFormat="avro", mode="PERMISSIVE"), "orders")
    server.fault("/schemas/ids/", status=503)
    with pytest.raises(KohortError, match=r"^orders-3@100: .*503") as raised:
        rows(decoding, [avro(SECOND, {"id": 1, "price": None}, other)], "value", "_corrupt")
    assert not isinstance(raised.value, RecordDoesNotFit)


def test_records_without_a_frame(server: Registry) -> None:
    register(server, "orders-value", FIRST)
    decoding = planned(formats_of(server, valueFormat="avro"), "orders")
    for value in (b'{"id":1}', b"\0\0", b""):
        with pytest.raises(
            RecordDoesNotFit, match=r"orders-3@100: .*not written by a serializer with a schema registry"
        ):
            rows(decoding, [value])


def test_protobuf_with_a_frame(server: Registry, way: str) -> None:
    number = register(server, "orders-value", PROTO, "PROTOBUF")
    found = find_message(PROTO, {}, "Order", "")
    kind = message_class(found.descriptors, "Order")
    decoding = planned(formats_of(server, valueFormat="protobuf", messageName="Order"), "orders")
    value = kind(id=5).SerializeToString()
    assert rows(decoding, [frame_message(number, [0]) + value, None])[0]["value"] == {"id": 5}
    with pytest.raises(
        RecordDoesNotFit, match=rf"the record holds the message Other \(schema id {number}\), not Order"
    ):
        rows(decoding, [frame_message(number, [1]) + value])
    with pytest.raises(RecordDoesNotFit, match="schema id 99"):
        rows(decoding, [frame_message(99, [0]) + value])


def test_json_with_a_frame(server: Registry, way: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": {"$ref": "#/$defs/More"},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "by": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "$defs": {"More": {"type": "object", "properties": {"x": {"type": ["null", "boolean"]}}}},
    }
    number = register(server, "orders-value", schema, "JSON")
    formats = formats_of(server, valueFormat="json")
    assert typed_columns(formats, ["orders"])["value"].simpleString() == (
        "struct<id:bigint,tags:array<string>,more:struct<x:boolean>,note:string,by:map<string,double>>"
    )
    values = [frame(number) + b'{"id":%d,"by":{"k":1}}' % n for n in range(100)]
    found = [row["value"] for row in rows(planned(formats, "orders"), values)]
    assert [row["id"] for row in found] == list(range(100))
    assert found[0]["by"] == [("k", 1.0)]


def test_what_the_options_leave_open_is_said(server: Registry) -> None:
    register(server, "orders-value", FIRST)
    for given, topics, words in (
        (
            {},
            ("a", "b"),
            "several topics may have several schemas: name the one to read them by with valueSubject",
        ),
        ({"value__subject__name__strategy": "RecordNameStrategy"}, ("orders",), "name it with valueSubject"),
        (
            {"valueFormat": "protobuf"},
            ("orders",),
            "the subject orders-value in the registry is AVRO, not PROTOBUF",
        ),
        ({}, ("nothing",), "nothing-value"),
    ):
        with pytest.raises(KohortError, match=re.escape(words)):
            planned(formats_of(server, **{"valueFormat": "avro", **given}), *topics)
    assert issubclass(SettingError, KohortError)


def test_secrets_are_in_no_text(server: Registry) -> None:
    register(server, "orders-value", FIRST)
    formats = formats_of(server, valueFormat="avro", basic__auth__user__info="me:s3cret")
    decoding = planned(formats, "orders")
    assert "s3cret" not in repr(formats) + repr(decoding)
    server.authorization = "Basic other"
    with pytest.raises(KohortError) as raised:
        planned(formats_of(server, valueFormat="avro", basic__auth__user__info="you:s3cret"), "orders")
    assert "s3cret" not in str(raised.value)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "kohort.spark.formats.avro_decoder", raising=False)
    decoder_for.cache_clear()
    decoding = planned(formats_of(None, valueFormat="avro", valueSchema='"long"'))
    with pytest.raises(
        KohortError, match=r'avro needs the package fastavro.*pip install "kohort\[spark,serde\]"'
    ) as raised:
        rows(decoding, [b"\x02"])
    assert sys.executable in str(raised.value)


def test_a_decoding_travels() -> None:
    import pickle

    decoding = planned(formats_of(None, valueFormat="avro", valueSchema='"long"'))
    assert pickle.loads(pickle.dumps(decoding)) == decoding
    assert rows(pickle.loads(pickle.dumps(decoding)), [b"\x02"])[0]["value"] == 1
    assert pa.types.is_int64(decoding.columns["value"].target)
