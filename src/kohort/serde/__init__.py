"""Serializers and deserializers for Producer and Consumer, with or without a schema registry.

    from kohort import Consumer
    from kohort.serde import JsonDeserializer

    Consumer(bootstrap_servers="127.0.0.1:9092", value_deserializer=JsonDeserializer(Order))

They are plain callables, `(topic, object) -> bytes` and `(topic, bytes) -> object`. Names are loaded when they are
first used, and so are the packages of the extra `serde` that the formats need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.serde.avro import AvroDeserializer as AvroDeserializer
    from kohort.serde.avro import AvroSerializer as AvroSerializer
    from kohort.serde.dead_letters import dead_letter as dead_letter
    from kohort.serde.dead_letters import dead_letter_record as dead_letter_record
    from kohort.serde.errors import DataMismatch as DataMismatch
    from kohort.serde.errors import MissingPackage as MissingPackage
    from kohort.serde.errors import RegistryAccessDenied as RegistryAccessDenied
    from kohort.serde.errors import RegistryError as RegistryError
    from kohort.serde.errors import RegistryUnavailable as RegistryUnavailable
    from kohort.serde.errors import SchemaNotFound as SchemaNotFound
    from kohort.serde.errors import SchemaRefused as SchemaRefused
    from kohort.serde.errors import WrongSchema as WrongSchema
    from kohort.serde.json_schema import JsonDeserializer as JsonDeserializer
    from kohort.serde.json_schema import JsonSerializer as JsonSerializer
    from kohort.serde.plain import BytesDeserializer as BytesDeserializer
    from kohort.serde.plain import BytesSerializer as BytesSerializer
    from kohort.serde.plain import DoubleDeserializer as DoubleDeserializer
    from kohort.serde.plain import DoubleSerializer as DoubleSerializer
    from kohort.serde.plain import FloatDeserializer as FloatDeserializer
    from kohort.serde.plain import FloatSerializer as FloatSerializer
    from kohort.serde.plain import IntegerDeserializer as IntegerDeserializer
    from kohort.serde.plain import IntegerSerializer as IntegerSerializer
    from kohort.serde.plain import LongDeserializer as LongDeserializer
    from kohort.serde.plain import LongSerializer as LongSerializer
    from kohort.serde.plain import ShortDeserializer as ShortDeserializer
    from kohort.serde.plain import ShortSerializer as ShortSerializer
    from kohort.serde.plain import StringDeserializer as StringDeserializer
    from kohort.serde.plain import StringSerializer as StringSerializer
    from kohort.serde.plain import UUIDDeserializer as UUIDDeserializer
    from kohort.serde.plain import UUIDSerializer as UUIDSerializer
    from kohort.serde.protobuf import ProtobufDeserializer as ProtobufDeserializer
    from kohort.serde.protobuf import ProtobufSerializer as ProtobufSerializer
    from kohort.serde.registry import RegisteredSchema as RegisteredSchema
    from kohort.serde.registry import SchemaReference as SchemaReference
    from kohort.serde.registry import SchemaRegistry as SchemaRegistry
    from kohort.serde.registry_settings import RegistrySettings as RegistrySettings

# The same names at run time: each module and the public names that it defines.
_NAMES: dict[str, tuple[str, ...]] = {
    "avro": (
        "AvroDeserializer",
        "AvroSerializer",
    ),
    "dead_letters": (
        "dead_letter",
        "dead_letter_record",
    ),
    "errors": (
        "DataMismatch",
        "MissingPackage",
        "RegistryAccessDenied",
        "RegistryError",
        "RegistryUnavailable",
        "SchemaNotFound",
        "SchemaRefused",
        "WrongSchema",
    ),
    "json_schema": (
        "JsonDeserializer",
        "JsonSerializer",
    ),
    "plain": (
        "BytesDeserializer",
        "BytesSerializer",
        "DoubleDeserializer",
        "DoubleSerializer",
        "FloatDeserializer",
        "FloatSerializer",
        "IntegerDeserializer",
        "IntegerSerializer",
        "LongDeserializer",
        "LongSerializer",
        "ShortDeserializer",
        "ShortSerializer",
        "StringDeserializer",
        "StringSerializer",
        "UUIDDeserializer",
        "UUIDSerializer",
    ),
    "protobuf": (
        "ProtobufDeserializer",
        "ProtobufSerializer",
    ),
    "registry": (
        "RegisteredSchema",
        "SchemaReference",
        "SchemaRegistry",
    ),
    "registry_settings": ("RegistrySettings",),
}
_HOME = {name: f"kohort.serde.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'kohort.serde' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
