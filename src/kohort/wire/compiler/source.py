"""Collects the source text that a codec is compiled from: lines, names of temporaries, precompiled structs."""

from __future__ import annotations

import struct
from importlib import import_module
from typing import Any

from kohort.wire.compiler.notation import DataSpec, FieldSpec, Spec, StructSpec
from kohort.wire.errors import BadFrame
from kohort.wire.struct import ZERO_UUID
from kohort.wire.varint import read_uvarint, skip_tags, uvarint_bytes

FORMAT = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
BLOBS = ("string", "bytes", "records")
ZERO = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "records": 'b""',
    "uuid": "ZERO_UUID",
}


def size_of(layout: str) -> int:
    return struct.calcsize(">" + layout)


class CodecSource:
    """The lines of one function, with names for temporaries and for precompiled structs."""

    def __init__(self, schema: Spec, version: int, *, keeps_views: bool = False) -> None:
        self.schema, self.version = schema, version
        self.keeps_views = keeps_views  # a decoded message holds views of the frame
        self.flexible = version in schema.flexible
        self.immutable = isinstance(schema, DataSpec)  # structs are named tuples, arrays are tuples
        self.whole = f"the {schema.name}" if isinstance(schema, DataSpec) else "the frame"  # for messages
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "bad": BadFrame,
            "uvarint": read_uvarint,
            "uv": uvarint_bytes,
            "skip_tags": skip_tags,
            "ZERO_UUID": ZERO_UUID,
        }
        self._count = 0
        self._to_read: list[tuple[str, str]] = []

    def temporary(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def add(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * depth + line for line in lines]

    def read_later(self, layout: str, prefix: str = "v") -> str:
        """Names a temporary for a value of fixed size; `read_now` gives it its value."""
        name = self.temporary(prefix)
        self._to_read.append((name, layout))
        return name

    def read_now(self, depth: int) -> None:
        """Reads all values that were announced by `read_later` with one `unpack`."""
        if self._to_read:
            layout = "".join(each for _, each in self._to_read)
            names = ", ".join(name for name, _ in self._to_read)
            read = f"{names} = buf[pos]" if layout == "B" else f"{names}, = {self.unpack(layout)}(buf, pos)"
            self.add(depth, read, f"pos += {size_of(layout)}")
            self._to_read.clear()

    def unpack(self, layout: str) -> str:
        name = "u_" + layout.replace("?", "z")
        self.names[name] = struct.Struct(">" + layout).unpack_from
        return name

    def pack(self, layout: str) -> str:
        name = "p_" + layout.replace("?", "z")
        self.names[name] = struct.Struct(">" + layout).pack
        return name

    def struct_class(self, struct: StructSpec) -> str:
        module = import_module(f"kohort.wire.messages.{self.schema.module}")
        self.names[struct.name] = getattr(module, struct.name)
        return struct.name

    def fields(self, struct: StructSpec) -> tuple[list[FieldSpec], list[FieldSpec]]:
        """The plain and the tagged fields of a struct in this version."""
        here = [spec for spec in struct.fields if self.version in spec.versions]
        return [f for f in here if f.tag is None], sorted(
            (f for f in here if f.tag is not None),
            key=lambda f: f.tag or 0,
        )

    def least_size(self, spec: FieldSpec, *, element: bool = False) -> int:
        """How many bytes a field takes at least. This bounds what the count of an array can make us allocate."""
        if spec.is_array and not element:
            return 1 if self.flexible else 4
        if spec.type in FORMAT:
            return size_of(FORMAT[spec.type])
        if spec.type in BLOBS:
            return 1 if self.flexible else 2 if spec.type == "string" else 4
        plain, _ = self.fields(self.schema.structs[spec.type])
        return max(1, sum(self.least_size(f) for f in plain) + (1 if self.flexible else 0))


def is_fixed(spec: FieldSpec) -> bool:
    return not spec.is_array and spec.type in FORMAT


def has_null(spec: FieldSpec) -> bool:
    """Whether some version of the field can be null."""
    return spec.nullable.first <= spec.nullable.last


def writes_null(spec: FieldSpec) -> bool:
    """Whether a tagged field is left out when it is empty and sent when it is null.

    That is how Kafka reads a nullable tagged field whose default is not said to be "null".
    """
    return spec.tag is not None and has_null(spec) and spec.default != "null"


def default_expression(spec: FieldSpec, *, immutable: bool = False) -> str:
    """The Python expression of a field's value in a version that does not have the field."""
    if spec.default == "null":
        return "None"
    if spec.is_array:
        null = has_null(spec) and spec.tag is None
        return "None" if null else "()" if immutable else "[]"
    if spec.type[0].isupper():
        return f"{spec.type}()" if writes_null(spec) else "None"
    if spec.default is not None:
        if spec.type == "bool":
            return spec.default.capitalize()
        return repr(spec.default) if spec.type == "string" else spec.default
    return ZERO.get(spec.type, "0")
