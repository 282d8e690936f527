"""The sink's formats: what is written can be read back, by us and by others, and a row that does not fit is named."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from kohort.serde.framing import split
from kohort.settings import SettingError
from kohort.spark.formats.arrow_types import arrow_type
from kohort.spark.formats.ddl import read_schema
from kohort.spark.formats.decoding import decoder_for
from kohort.spark.formats.encoding import RowMisfit, encoded
from kohort.spark.formats.format_options import read_formats
from kohort.spark.formats.planning import plan_decoding, typed_columns
from kohort.spark.formats.write_planning import plan_encoding
from tests.clients.process import BrokerProcess
from tests.serde.registry_server import Registry, running_registry

DDL = (
    "id bigint, s string, d double, b boolean, raw binary, m decimal(10,2), t timestamp, day date, tags array<string>, "
    "counts map<string,int>, inner struct<x:int,y:string>"
)
ROWS = [
    {
        "id": 1,
        "s": "ü",
        "d": 1.5,
        "b": True,
        "raw": b"\xff",
        "m": Decimal("12.30"),
        "day": datetime.date(2024, 5, 17),
        "t": datetime.datetime(2024, 5, 17, 12, 0, 0, 5, datetime.UTC),
        "tags": ["a", None],
        "counts": [("k", 1)],
        "inner": {"x": 1, "y": None},
    },
    {"id": 2} | dict.fromkeys(["s", "d", "b", "raw", "m", "day", "t", "tags", "counts", "inner"]),
]
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Color { NONE = 0; RED = 1; }
message Inner { int32 x = 1; }
message Order {
  int64 id = 1; optional string s = 2; repeated Inner inners = 3; map<string, Inner> by = 4; Color color = 5;
  google.protobuf.Timestamp t = 6; uint32 u = 7; Inner one = 8; repeated int32 numbers = 9;
}
"""


@pytest.fixture
def server() -> Iterator[Registry]:
    with running_registry() as registry:
        yield registry


def formats_of(server: Registry | None = None, **given: Any) -> Any:
    options = {name.replace("__", ".").lower(): str(value) for name, value in given.items()}
    if server is not None:
        options |= {"schema.registry.url": server.url, "schema.registry.max.retries": "0"}
    return read_formats(options)


def write(formats: Any, ddl: str, rows: list[Any], topic: str = "orders") -> list[bytes | None]:
    """The values of a frame with these columns; `value` is made of all of them."""
    kind = read_schema(ddl)
    assert isinstance(kind, StructType)
    columns = pa.array(rows, arrow_type(kind))
    batch = pa.RecordBatch.from_struct_array(columns)
    found = encoded(batch, plan_encoding(formats, kind, topic), ("value",))
    values: list[bytes | None] = found.column("value").to_pylist()
    return values


def read(formats: Any, values: list[bytes | None], topic: str = "orders") -> list[Any]:
    columns = typed_columns(formats, [topic])
    decoding = plan_decoding(formats, StructType([StructField(n, k) for n, k in columns.items()]), [topic])
    assert decoding is not None
    made = decoder_for(decoding.columns["value"]).decode(pa.array(values, pa.binary()))
    assert made.bad == {}
    found: list[Any] = made.array.to_pylist()
    return found


def test_json_is_what_is_read_back_and_has_no_nulls() -> None:
    values = write(formats_of(valueFormat="json"), DDL, ROWS)
    assert orjson.loads(values[1] or b"") == {"id": 2}
    assert orjson.loads(values[0] or b"")["t"] == "2024-05-17T12:00:00.000005Z"
    assert b'"m":12.30' in (values[0] or b"")
    assert read(formats_of(valueFormat="json", valueSchema=DDL), values) == ROWS


def test_avro_with_a_schema_made_of_the_rows() -> None:
    formats = formats_of(valueFormat="avro")
    values = write(formats, DDL, ROWS)
    (encoding,) = plan_encoding(formats, read_schema(DDL), "orders")  # type: ignore[arg-type]
    assert read(formats_of(valueFormat="avro", valueSchema=encoding.schema), values) == ROWS
    schema = fastavro.parse_schema(json.loads(encoding.schema))
    assert fastavro.schemaless_reader(io.BytesIO(values[0] or b""), schema, None)["counts"] == {"k": 1}


def test_protobuf() -> None:
    formats = formats_of(valueFormat="protobuf", valueSchema=PROTO, messageName="Order")
    ddl = (
        "id bigint, s string, inners array<struct<x:int>>, by map<string,struct<x:int>>, color string, t timestamp, "
        "u int, one struct<x:int>"
    )
    row = {
        "id": 1,
        "s": "",
        "inners": [{"x": 1}, {"x": 2}],
        "by": [("k", {"x": 3})],
        "color": "RED",
        "u": -1,
        "one": {"x": None},
        "t": datetime.datetime(2024, 5, 17, 12, 0, 0, 5, datetime.UTC),
    }
    empty = dict.fromkeys(row)
    found = read(formats, write(formats, ddl, [row, empty]))
    assert found == [{**row, "numbers": []}, {**empty, "inners": [], "by": [], "numbers": []}]


def test_the_schema_is_registered_once_and_framed(server: Registry) -> None:
    formats = formats_of(server, valueFormat="avro")
    values = write(formats, DDL, ROWS)
    assert list(server.subjects) == ["orders-value"]
    assert {split(value or b"")[0] for value in values} == {server.subjects["orders-value"][0]}
    assert read(formats, values) == ROWS
    proto = formats_of(
        server, valueFormat="protobuf", valueSchema=PROTO, messageName="Order", valueSubject="p"
    )
    values = write(proto, "id bigint", [{"id": 7}])
    assert (
        read(formats_of(server, valueFormat="protobuf", messageName="Order", valueSubject="p"), values)[0][
            "id"
        ]
        == 7
    )
    plain = formats_of(server, valueFormat="json", valueSubject="j")
    assert read(plain, write(plain, "id bigint, tags array<string>", [{"id": 1, "tags": ["x"]}])) == [
        {"id": 1, "tags": ["x"]}
    ]


def test_the_latest_schema_is_used_if_so_asked(server: Registry) -> None:
    schema = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"},{"name":"x","type":"int","default":5}]}'
    server.register("orders-value", {"schema": schema})
    formats = formats_of(server, valueFormat="avro", use__latest__version="true")
    assert read(formats_of(server, valueFormat="avro"), write(formats, "id bigint", [{"id": 1}])) == [
        {"id": 1, "x": 5}
    ]
    assert len(server.schemas) == 1
    with pytest.raises(
        SettingError, match="the rows do not fit the schema: value has no field 'y'; it has id, x"
    ):
        write(formats, "id bigint, y int", [])
    from kohort.serde.errors import SchemaNotFound

    with pytest.raises(SchemaNotFound):
        write(formats_of(server, valueFormat="avro", auto__register__schemas="false"), "other int", [])


@pytest.mark.parametrize(
    ("given", "ddl", "row", "words"),
    [
        (
            {
                "valueFormat": "avro",
                "valueSchema": '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}',
            },
            "id bigint",
            {"id": None},
            "the value cannot be written as avro: ",
        ),
        (
            {"valueFormat": "protobuf", "valueSchema": PROTO, "messageName": "Order"},
            "id bigint, color string",
            {"id": 1, "color": "BLUE"},
            "the value cannot be written as protobuf: field color: the enum Color has no value BLUE",
        ),
        ({"valueFormat": "json"}, "s string, d double", {"s": "x", "d": 1.0}, ""),
    ],
)
def test_a_row_that_does_not_fit_is_named(given: Any, ddl: str, row: Any, words: str) -> None:
    good = {name: 1 if name == "id" else None for name in row}
    if not words:
        assert len(write(formats_of(**given), ddl, [row])) == 1
        return
    with pytest.raises(RowMisfit, match=words) as raised:
        write(formats_of(**given), ddl, [good, good, row])
    assert raised.value.row == 2


@pytest.mark.parametrize(
    ("given", "ddl", "words"),
    [
        (
            {"valueFormat": "protobuf"},
            "id bigint",
            "valueFormat=protobuf needs valueSchema, or use.latest.version",
        ),
        ({"valueFormat": "avro", "keyFormat": "avro"}, "id bigint", "keyFormat=avro needs a column 'key'"),
        (
            {"valueFormat": "json"},
            "key string",
            "there is no column 'value', and no others that could make it",
        ),
        ({"valueFormat": "string"}, "value struct<a:int>", "which is no text: choose another format"),
    ],
)
def test_what_cannot_be_planned(given: Any, ddl: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        plan_encoding(formats_of(**given), read_schema(ddl), "orders")  # type: ignore[arg-type]


def test_from_topic_to_topic_on_spark(
    spark: Any, broker: BrokerProcess, new_topic: Callable[..., str], server: Registry
) -> None:
    source, target = new_topic(), new_topic()
    common = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "schema.registry.url": server.url,
        "basic.auth.user.info": "me:s3cret",
    }
    server.authorization = "Basic bWU6czNjcmV0"
    frame = spark.range(100).selectExpr(
        "id", "concat('n', id) AS name", "string(id) AS key", f"'{source}' AS topic"
    )
    writer = frame.write.format("kohort").mode("append").options(**common, topic=source, valueFormat="avro")
    writer.save()
    orders = (
        spark.read.format("kohort")
        .options(**common, subscribe=source, valueFormat="avro", keyFormat="string")
        .load()
    )
    assert orders.schema["value"].dataType.simpleString() == "struct<id:bigint,name:string>"
    total = orders.selectExpr("sum(value.id)", "sum(int(key))", "count(DISTINCT value.name)").first()
    assert tuple(total) == (4950, 4950, 100)
    plan = orders._jdf.queryExecution().toString()
    assert "s3cret" not in plan
    changed = orders.selectExpr("key", "named_struct('id', value.id * 2) AS value")
    changed.write.format("kohort").mode("append").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers}, topic=target, valueFormat="json"
    ).save()
    back = spark.read.format("kohort").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers},
        subscribe=target,
        valueFormat="json",
        valueSchema="id bigint",
    )
    assert back.load().selectExpr("sum(value.id)").first()[0] == 9900
