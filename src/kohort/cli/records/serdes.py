"""Keys and values as people write and read them: numbers, JSON, Avro and others, by the name that `-s` gives."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click

from kohort.errors import KohortError

Deserialize = Callable[[str, bytes], Any]
"""Makes an object of the bytes of a key or a value: text, a number, or what JSON can hold."""
Serialize = Callable[[str, bytes], bytes | None]
"""Makes the bytes of a key or a value of what was typed."""

_NUMBERS = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}
_IN_REGISTRY = ("avro", "protobuf", "json-schema")
NAMES = ("string", "hex", "base64", "json", *_NUMBERS, "uuid", *_IN_REGISTRY)
_PACK = {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "c": 1}


class WrongData(KohortError):
    """A key or a value that is not what `-s` says."""


@dataclass(frozen=True, slots=True)
class SerdeNames:
    """What `-s` says about keys and about values; None is bytes as they are."""

    key: str | None
    value: str | None


def serde_names(given: Iterable[str]) -> SerdeNames:
    """Reads `-s NAME`, `-s key=NAME` and `-s value=NAME`."""
    key = value = None
    for each in given:
        field, separator, name = each.partition("=")
        if not separator:
            field, name = "", each
        if field not in ("", "key", "value"):
            raise click.UsageError(f"-s {each}: write -s NAME, -s key=NAME or -s value=NAME")
        _check_name(name)
        chosen = None if name == "string" else name
        key = chosen if field in ("", "key") else key
        value = chosen if field in ("", "value") else value
    return SerdeNames(key, value)


def _check_name(name: str) -> None:
    if name not in NAMES and not (name and set(name) <= set("<>$s") | set(_PACK)):
        raise click.UsageError(
            f"{name!r} is no way to read or write records: use {', '.join(NAMES)}, or letters as kcat's -s takes them"
        )


# --- from bytes ---------------------------------------------------------------------------------------


def deserializer(name: str, registry: str | None) -> Deserialize:
    """Returns the function that reads keys or values of this kind; it raises KohortError or ValueError."""
    from kohort import serde

    if name in _IN_REGISTRY:
        return _from_registry(name, _needed(registry, name))
    simple: dict[str, Deserialize] = {
        "hex": lambda topic, data: data.hex(),
        "base64": lambda topic, data: base64.b64encode(data).decode(),
        "json": lambda topic, data: json.loads(data),
        "uuid": lambda topic, data: str(serde.UUIDDeserializer()(topic, data)),
    }
    if name in simple:
        return simple[name]
    if name in _NUMBERS:
        kind = {"int": "Integer"}.get(name, name.capitalize())
        read: Deserialize = getattr(serde, f"{kind}Deserializer")()
        return read
    return _unpacking(name)


def _from_registry(name: str, url: str) -> Deserialize:
    from kohort import serde

    if name == "avro":
        return serde.AvroDeserializer(registry=url)
    if name == "json-schema":
        return serde.JsonDeserializer(registry=url)
    from google.protobuf.json_format import MessageToDict

    read = serde.ProtobufDeserializer(registry=url)
    return lambda topic, data: MessageToDict(read(topic, data), preserving_proto_field_name=True)


def _unpacking(letters: str) -> Deserialize:
    """Reads as kcat's `-s` does: numbers of a fixed size one after the other, with blanks between them in the text."""

    def read(topic: str, data: bytes) -> str:
        pieces: list[str] = []
        order, at = ">", 0
        for letter in letters:
            if letter in "<>":
                order = letter
            elif letter == "s":
                pieces.append(data[at:].decode("utf-8", "backslashreplace"))
                at = len(data)
            elif letter == "$":
                if at < len(data):
                    raise WrongData(f"{len(data) - at} bytes are left after {letters!r}")
            else:
                size = _PACK[letter]
                if at + size > len(data):
                    raise WrongData(f"{letters!r} needs more than the {len(data)} bytes that are there")
                (found,) = struct.unpack(order + letter, data[at : at + size])
                pieces.append(found.decode("latin-1") if letter == "c" else str(found))
                at += size
        return " ".join(pieces)

    return read


def as_text(thing: Any, *, pretty: bool) -> bytes:
    """Returns an object as a text for people; what is no text itself is shown as JSON."""
    if isinstance(thing, bytes):
        return thing
    if isinstance(thing, str):
        return thing.encode("utf-8", "surrogatepass")
    return as_json(thing, indent=2 if pretty else None).encode("utf-8", "surrogatepass")


def as_json(thing: Any, indent: int | None = None) -> str:
    """Returns an object as JSON; bytes in it become base64, and all else that JSON does not have its text."""
    separators = None if indent else (",", ":")
    return json.dumps(thing, ensure_ascii=False, indent=indent, separators=separators, default=_not_json)


def _not_json(thing: Any) -> Any:
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return base64.b64encode(thing).decode()
    return str(thing)


# --- to bytes -----------------------------------------------------------------------------------------


def serializer(name: str, registry: str | None, schema: str | None, *, is_key: bool) -> Serialize:
    """Returns the function that makes keys or values of this kind of what was typed."""
    if name in _IN_REGISTRY:
        return _to_registry(name, _needed(registry, name), schema, is_key=is_key)
    if name == "json":
        return _checked_json
    if name == "hex":
        return lambda topic, typed: bytes.fromhex(typed.decode("ascii"))
    if name == "base64":
        return lambda topic, typed: from_base64(typed)
    if name == "uuid":
        from uuid import UUID

        return lambda topic, typed: str(UUID(typed.decode("ascii"))).encode()
    if name in _NUMBERS:
        layout, number = struct.Struct(_NUMBERS[name]), float if name in ("float", "double") else int
        return lambda topic, typed: _packed(layout, name, number(typed))
    raise click.UsageError(
        f"-s {name}: this way of kcat reads records and does not write them; use int, long, …"
    )


def _packed(layout: struct.Struct, name: str, number: float) -> bytes:
    try:
        return layout.pack(number)
    except (struct.error, OverflowError):
        raise WrongData(f"{number} does not fit into {name}, which has {layout.size} bytes") from None


def _checked_json(topic: str, typed: bytes) -> bytes:
    json.loads(typed)
    return typed


def _to_registry(name: str, url: str, schema: str | None, *, is_key: bool) -> Serialize:
    from kohort import serde

    if name == "protobuf":
        raise click.UsageError(
            "-s protobuf reads records only: to write them one needs the classes that protoc makes (ProtobufSerializer)"
        )
    kind: Any = serde.AvroSerializer if name == "avro" else serde.JsonSerializer
    how = {"schema": schema} if schema is not None else {"use_latest_version": True}
    write = kind(registry=url, is_key=is_key, **how)
    return lambda topic, typed: write(topic, json.loads(typed))


def from_base64(text: str | bytes) -> bytes:
    """Returns the bytes that base64 stands for; WrongData if it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise WrongData(f"this is no base64: {error}") from None


def _needed(registry: str | None, name: str) -> str:
    if registry is None:
        raise click.UsageError(f"-s {name} needs --registry URL, the address of a schema registry")
    return registry
