"""What the serializers with a schema registry have in common: their keywords, and the id of their schema in a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from kohort.serde.errors import WrongSchema
from kohort.serde.registry import (
    RegisteredSchema,
    RegistrySettings,
    SchemaKind,
    SchemaReference,
    SchemaRegistry,
)
from kohort.serde.subjects import DEFAULT_STRATEGY, SubjectNameStrategy, subject_name_strategy
from kohort.settings import SettingError, nearest

RegistryLike = SchemaRegistry | RegistrySettings | Mapping[str, object] | str
"""A registry's client, or the settings of one, or its URL."""


class SerializerKeywords(TypedDict, total=False):
    """The keywords of all serializers that can use a registry."""

    registry: RegistryLike | None
    is_key: bool
    auto_register_schemas: bool
    use_latest_version: bool
    normalize_schemas: bool
    subject_name_strategy: str | SubjectNameStrategy


def registry_of(given: RegistryLike | None) -> SchemaRegistry | None:
    """Returns the client of a registry: the given one, or the process's own for these settings."""
    return given if given is None or isinstance(given, SchemaRegistry) else SchemaRegistry.shared(given)


def of_kind(schema: RegisteredSchema, kind: SchemaKind, deserializer: str) -> RegisteredSchema:
    """Returns a schema if it is of this kind; else WrongSchema says which deserializer reads it."""
    if schema.kind != kind:
        other = {"AVRO": "AvroDeserializer", "JSON": "JsonDeserializer", "PROTOBUF": "ProtobufDeserializer"}
        raise WrongSchema(
            f"schema id {schema.id} is of the kind {schema.kind}, which {deserializer} cannot read: use "
            f"{other[schema.kind]}"
        )
    return schema


class SchemaIds:
    """The id of a serializer's schema in each topic; it is registered or looked up at the first record."""

    def __init__(
        self,
        kind: SchemaKind,
        keywords: SerializerKeywords,
        references: Callable[[], Sequence[SchemaReference]] = tuple,
    ) -> None:
        unknown = set(keywords) - set(SerializerKeywords.__annotations__)
        if unknown:
            name = sorted(unknown)[0]
            raise SettingError(
                f"a serializer has no argument {name}{nearest(name, SerializerKeywords.__annotations__)}"
            )
        self.kind = kind
        self.registry = registry_of(keywords.get("registry"))
        self.is_key = keywords.get("is_key", False)
        self.uses_latest = keywords.get("use_latest_version", False)
        self.registers = keywords.get("auto_register_schemas", not self.uses_latest)
        self.normalize = keywords.get("normalize_schemas", False)
        if self.uses_latest and self.registers:
            raise SettingError("use_latest_version and auto_register_schemas exclude each other: choose one")
        for name in (
            "auto_register_schemas",
            "use_latest_version",
            "normalize_schemas",
            "subject_name_strategy",
        ):
            if self.registry is None and name in keywords:
                raise SettingError(f"{name} is for a schema registry: give `registry` too")
        self.subject_for = subject_name_strategy(keywords.get("subject_name_strategy", DEFAULT_STRATEGY))
        self._references = references
        self._known: dict[str, int] = {}

    def latest(self, topic: str, record_name: str | None) -> RegisteredSchema:
        """Returns the latest schema of the topic's subject, of this kind."""
        assert self.registry is not None
        schema = self.registry.latest(self.subject_for(topic, self.is_key, record_name))
        if schema.kind != self.kind:
            raise WrongSchema(f"the latest schema of subject {schema.subject} is of the kind {schema.kind}")
        return schema

    def id_of(self, topic: str, record_name: str | None, text: str) -> int:
        """Returns the id of a schema's text in the topic's subject, which is registered there or must be."""
        known = self._known.get(topic)
        if known is None:
            assert self.registry is not None
            subject = self.subject_for(topic, self.is_key, record_name)
            references = self._references()
            if self.registers:
                known = self.registry.register(subject, self.kind, text, references, normalize=self.normalize)
            else:
                found = self.registry.lookup(subject, self.kind, text, references, normalize=self.normalize)
                known = found.id
            self._known[topic] = known
        return known
