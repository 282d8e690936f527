"""What the tests write and read: an order as a dataclass, as Avro, as JSON Schema and as Protobuf messages."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

PROTOS = Path(__file__).with_name("protos")


class State(Enum):
    OPEN = "OPEN"
    PAID = "PAID"


@dataclass
class Line:
    article: str
    count: int = 1


@dataclass
class Order:
    id: int
    total: Decimal
    placed: datetime
    due: date
    number: UUID
    lines: list[Line] = field(default_factory=list)
    state: State = State.OPEN
    note: str | None = None
    tags: dict[str, int] = field(default_factory=dict)


ORDER = Order(
    7,
    Decimal("12.50"),
    datetime(2026, 11, 16, 17, 0, 0, 123000, tzinfo=UTC),
    date(2026, 12, 1),
    UUID("123e4567-e89b-12d3-a456-426614174000"),
    [Line("apple", 2), Line("pear")],
    State.PAID,
    None,
    {"a": 1},
)

AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "due", "type": {"type": "int", "logicalType": "date"}},
        {"name": "number", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "article", "type": "string"}, {"name": "count", "type": "int"}],
                },
            },
        },
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}
AVRO = json.dumps(AVRO_SCHEMA)

JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Point",
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
        "required": ["x"],
    }
)


@dataclass
class Point:
    x: int
    y: int = 0


@cache
def messages() -> ModuleType:
    """The module that protoc makes of order.proto; money.proto is in it as `money_pb2`."""
    files = [str(path) for path in sorted(PROTOS.glob("*.proto"))]
    with tempfile.TemporaryDirectory(prefix="kohort-protos-") as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"--python_out={folder}", *files]
        subprocess.run(command, check=True, timeout=120)
        for name in ("money_pb2", "order_pb2"):
            spec = spec_from_file_location(name, Path(folder, f"{name}.py"))
            assert spec is not None
            assert spec.loader is not None
            sys.modules[name] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
    return sys.modules["order_pb2"]


def order_message() -> Any:
    made = messages()
    order = made.Order(id=7, lines=[made.Order.Line(article="apple", count=2)])
    order.total.currency, order.total.cents = "EUR", 1250
    order.placed.seconds = 1_700_000_000
    return order
