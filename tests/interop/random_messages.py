"""Random messages of every API and format, made from the notation that the codec itself is compiled from."""

from __future__ import annotations

import base64
import importlib
import random
from typing import Any

from kohort.wire.compiler.notation import ApiSpec, DataSpec, FieldSpec, Spec, StructSpec
from kohort.wire.struct import Struct

_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_TEXTS = ("", "t", "orders", "Größe", "消費者", "🦜", "x" * 130, "y" * 20_000)
_BLOBS = (b"", b"\0", bytes(range(256)), b"z" * 17_000)


def message(api: ApiSpec, which: str, version: int, chance: random.Random) -> Any:
    """A request or response with values in all fields that the version has, and only in those."""
    return _struct(api, api.request if which == "request" else api.response, version, chance)


def data(spec: DataSpec, version: int, chance: random.Random) -> Any:
    """The same for a format of its own."""
    return _struct(spec, spec.struct, version, chance)


def _struct(schema: Spec, spec: StructSpec, version: int, chance: random.Random) -> Any:
    values = {
        field.name: _value(schema, field, version, chance)
        for field in spec.fields
        if version in field.versions and not (field.tag is not None and chance.random() < 0.3)
    }
    return getattr(importlib.import_module(f"kohort.wire.messages.{schema.module}"), spec.name)(**values)


def _value(schema: Spec, field: FieldSpec, version: int, chance: random.Random) -> Any:
    if version in field.nullable and chance.random() < 0.25:
        return None
    if field.is_array:
        count = chance.choice((0, 1, 1, 2, 3))
        values = [_one(schema, field.type, version, chance) for _ in range(count)]
        return tuple(values) if isinstance(schema, DataSpec) else values
    return _one(schema, field.type, version, chance)


def _one(schema: Spec, kind: str, version: int, chance: random.Random) -> Any:
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        return chance.choice((low, high, max(low, -1), 0, 1, chance.randint(low, high)))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "float64":
        return chance.choice((0.0, -1.5, 1e300))
    if kind == "string":
        return chance.choice(_TEXTS)
    if kind in ("bytes", "records"):
        return chance.choice(_BLOBS)
    if kind == "uuid":
        return chance.randbytes(16)
    return _struct(schema, schema.structs[kind], version, chance)


def differences(ours: Any, kafkas: Any, where: str = "") -> list[str]:
    """Where a message of ours and the JSON of Kafka's converter disagree. Kafka leaves out what a version lacks."""
    fields = ours.FIELDS if isinstance(ours, Struct) else getattr(ours, "_fields", None)
    if fields is not None and isinstance(kafkas, dict):
        # Kafka's records do not say the unit of a time in its name.
        names = {_camel(name.removesuffix("_ms")): name for name in fields} | {
            _camel(name): name for name in fields
        }
        found = []
        for key, value in kafkas.items():
            name = names.get(key.removesuffix("SizeInBytes"))
            if name is None:
                found.append(f"{where}.{key}: we have no such field")
            elif key.endswith("SizeInBytes"):
                found += differences(len(getattr(ours, name)), value, f"{where}.{key}")
            else:
                found += differences(getattr(ours, name), value, f"{where}.{key}")
        return found
    if isinstance(ours, list | tuple) and isinstance(kafkas, list) and len(ours) == len(kafkas):
        pairs = enumerate(zip(ours, kafkas, strict=True))
        return [text for i, (a, b) in pairs for text in differences(a, b, f"{where}[{i}]")]
    if isinstance(ours, bytes | memoryview):
        raw = bytes(ours)
        texts = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode().rstrip("=")}
        return [] if kafkas in texts else [f"{where}: {raw!r} is {kafkas!r} to Kafka"]
    return [] if ours == kafkas else [f"{where}: {ours!r} is {kafkas!r} to Kafka"]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
