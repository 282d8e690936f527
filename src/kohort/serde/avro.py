"""Avro records: fastavro's schemaless reader and writer, with a schema of one's own or with those of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from kohort.serde.errors import DataMismatch, WrongSchema
from kohort.serde.framing import frame, split
from kohort.serde.objects import Make, is_a_type, made_by_type_or_function, plain
from kohort.serde.packages import package
from kohort.serde.registry import RegisteredSchema, SchemaReference
from kohort.serde.schemas import RegistryLike, SchemaIds, SerializerKeywords, of_kind, registry_of
from kohort.settings import SettingError

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with `default`; every type checker brings it

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

AvroSchema = str | Mapping[str, Any] | Sequence[Any]
"""A schema as JSON text, or what that text stands for."""


class AvroSerializer(Generic[T]):
    """Writes objects as Avro: dicts, dataclasses, named tuples or pydantic models, or what a function makes into one.

    AvroSerializer(Order, schema=text, registry="http://127.0.0.1:8081")

    `of` is the class (for type checkers), or a function that returns plain data for an object. With a registry the
    schema is registered when the first record of a topic is written (`auto_register_schemas=False`: it must be there;
    `use_latest_version=True`: the subject's latest schema is used, and `schema` need not be given). Without one the
    bytes are Avro alone. An object with fields that the schema lacks is refused. `validate=True` also checks what
    fastavro writes without a word, such as an int of more than 32 bits, which Java cannot read; it takes about as long
    as writing.
    """

    @overload
    def __init__(
        self: AvroSerializer[Any],
        of: None = None,
        *,
        schema: AvroSchema | None = None,
        references: Sequence[SchemaReference] = (),
        validate: bool = False,
        **keywords: Unpack[SerializerKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: type[T],
        *,
        schema: AvroSchema | None = None,
        references: Sequence[SchemaReference] = (),
        validate: bool = False,
        **keywords: Unpack[SerializerKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: Callable[[T], Any],
        *,
        schema: AvroSchema | None = None,
        references: Sequence[SchemaReference] = (),
        validate: bool = False,
        **keywords: Unpack[SerializerKeywords],
    ) -> None: ...
    def __init__(
        self,
        of: Any = None,
        *,
        schema: AvroSchema | None = None,
        references: Sequence[SchemaReference] = (),
        validate: bool = False,
        **keywords: Unpack[SerializerKeywords],
    ) -> None:
        self._ids = SchemaIds("AVRO", keywords, lambda: references)
        self._plain = plain if of is None or is_a_type(of) else of
        self._write = package("fastavro", "Avro").schemaless_writer
        self._check = package("fastavro", "Avro").validate if validate else None
        self._parsed: dict[int, Any] = {}
        self._text = None if schema is None else schema_text(schema)
        self._own: Any = None
        if self._text is None and not self._ids.uses_latest:
            raise SettingError("an AvroSerializer needs schema=…, or a registry and use_latest_version=True")
        if self._text is not None and self._ids.uses_latest:
            raise SettingError(
                "use_latest_version=True takes the registry's schema: give no schema of your own"
            )
        if self._text is not None:
            asked = RegisteredSchema(0, "AVRO", self._text, tuple(references))
            registry = self._ids.registry
            if references and registry is None:
                raise SettingError("references are in a schema registry: give `registry` too")
            self._own = parsed_schema(asked, registry.references_of(asked) if registry and references else {})

    def __call__(self, topic: str, thing: T | None) -> bytes | None:
        if thing is None:
            return None
        schema_id, schema = self._schema_for(topic)
        try:
            if type(thing) is dict and self._plain is plain:
                try:  # most dicts hold plain data already
                    return self._written(schema_id, schema, thing)
                except Exception:
                    pass  # others are made plain, and if that does not help, the error is that of plain data
            return self._written(schema_id, schema, self._plain(thing))
        except Exception as error:
            named = f"schema id {schema_id}" if schema_id is not None else "the schema"
            raise DataMismatch(
                f"{_a(thing)} cannot be written with {_described(schema)} ({named}): {_words(error)}"
            ) from error

    def _written(self, schema_id: int | None, schema: Any, data: Any) -> bytes:
        out = BytesIO()
        if schema_id is not None:
            out.write(frame(schema_id))
        if is_bytes(schema):
            out.write(data)  # as Confluent's serializers do: without Avro's length
        else:
            if self._check is not None:
                self._check(data, schema, raise_errors=True)
            self._write(out, schema, data, strict_allow_default=True)
        return out.getvalue()

    def _schema_for(self, topic: str) -> tuple[int | None, Any]:
        ids = self._ids
        if ids.registry is None:
            return None, self._own
        if not ids.uses_latest:
            assert self._text is not None
            return ids.id_of(topic, record_name(self._own), self._text), self._own
        latest = ids.latest(topic, None)
        if latest.id not in self._parsed:
            self._parsed[latest.id] = parsed_schema(latest, ids.registry.references_of(latest))
        return latest.id, self._parsed[latest.id]


class AvroDeserializer(Generic[T]):
    """Reads Avro into dicts, or into objects of a class, or into what a function makes of a dict.

    AvroDeserializer(Order, registry="http://127.0.0.1:8081")

    With a registry each record names the schema that it was written with; `schema` is then the reader's, to which
    Avro's rules of schema resolution lead (new fields get their defaults). Without a registry `schema` is the reader's
    too, and `writer_schema` the one that the records were written with, if that is another one.
    """

    @overload
    def __init__(
        self: AvroDeserializer[Any],
        of: None = None,
        *,
        schema: AvroSchema | None = None,
        writer_schema: AvroSchema | None = None,
        registry: RegistryLike | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: type[T],
        *,
        schema: AvroSchema | None = None,
        writer_schema: AvroSchema | None = None,
        registry: RegistryLike | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: Callable[[Any], T],
        *,
        schema: AvroSchema | None = None,
        writer_schema: AvroSchema | None = None,
        registry: RegistryLike | None = None,
    ) -> None: ...
    def __init__(
        self,
        of: Any = None,
        *,
        schema: AvroSchema | None = None,
        writer_schema: AvroSchema | None = None,
        registry: RegistryLike | None = None,
    ) -> None:
        self._registry = registry_of(registry)
        self._make: Make | None = made_by_type_or_function(of)
        self._read = package("fastavro", "Avro").schemaless_reader
        self._reader = None if schema is None else parsed_text(schema_text(schema))
        self._by_id: dict[int, Any] = {}
        if self._registry is None:
            if schema is None and writer_schema is None:
                raise SettingError("an AvroDeserializer needs schema=… or registry=…")
            self._writer = self._reader if writer_schema is None else parsed_text(schema_text(writer_schema))
        elif writer_schema is not None:
            raise SettingError("with a registry each record names its writer's schema: give no writer_schema")

    def __call__(self, topic: str, data: bytes) -> T:
        if self._registry is None:
            schema_id, at, writer = None, 0, self._writer
        else:
            schema_id, at = split(data)
            writer = self._by_id.get(schema_id)
            if writer is None:
                writer = self._writer_of(schema_id)
        stream = BytesIO(data)
        stream.seek(at)
        try:
            found: Any = stream.read() if is_bytes(writer) else self._read(stream, writer, self._reader)
        except Exception as error:
            raise DataMismatch(
                f"the data does not fit {_named(writer, schema_id)}: {_words(error)}"
            ) from error
        if stream.tell() != len(data):
            left = len(data) - stream.tell()
            raise DataMismatch(
                f"{left} of {len(data)} bytes are left over when the data is read with {_named(writer, schema_id)}: it "
                f"was written with another schema"
            )
        if self._make is None:
            return found  # type: ignore[no-any-return]
        try:
            return self._make(found)  # type: ignore[no-any-return]
        except DataMismatch as error:
            raise DataMismatch(f"{_named(writer, schema_id)}: {error}") from error

    def _writer_of(self, schema_id: int) -> Any:
        assert self._registry is not None
        schema = of_kind(self._registry.schema(schema_id), "AVRO", "AvroDeserializer")
        parsed = parsed_schema(schema, self._registry.references_of(schema))
        self._by_id[schema_id] = parsed
        return parsed


def schema_text(schema: AvroSchema) -> str:
    """Returns a schema as JSON text; a type's name alone becomes `{"type": …}`, as Confluent's clients write it."""
    text = schema.strip() if isinstance(schema, str) else json.dumps(schema)
    return text if text[:1] in ("{", "[") else f'{{"type":{text}}}'


def parsed_text(text: str) -> Any:
    """Returns a schema without references as fastavro wants it; WrongSchema if it is none."""
    return parsed_schema(RegisteredSchema(0, "AVRO", text), {})


def parsed_schema(schema: RegisteredSchema, references: Mapping[str, RegisteredSchema]) -> Any:
    """Returns a schema as fastavro wants it, with the types of `references` (SchemaRegistry.references_of) in it."""
    fastavro_schema = package("fastavro.schema", "Avro")
    named = f"schema id {schema.id}" if schema.id else "the schema"
    try:
        texts = {name: json.loads(each.text) for name, each in references.items()}
        root = json.loads(schema.text)
        if not references:
            return fastavro_schema.parse_schema(root)

        return fastavro_schema.load_schema(_ROOT, repo=_references_as_repository(root, texts))
    except Exception as error:
        raise WrongSchema(f"{named} cannot be read as an Avro schema: {_words(error)}") from error


_ROOT = "$root"


def _references_as_repository(root: Any, texts: Mapping[str, Any]) -> Any:
    """Returns the schemas that are referred to, by their names, as what fastavro calls a repository."""
    repository: Any = package("fastavro.repository", "Avro")

    def load(self: Any, subject: str) -> Any:
        if subject == _ROOT:
            return root
        if subject not in texts:
            raise repository.SchemaRepositoryError(f"it uses {subject}, which is not among its references")
        return texts[subject]

    return type("References", (repository.AbstractSchemaRepository,), {"load": load})()


def record_name(schema: Any) -> str | None:
    """Returns the full name of a parsed schema's type; None if it has none."""
    return schema.get("name") if isinstance(schema, dict) else None


def is_bytes(schema: Any) -> bool:
    """Says whether a schema is the type bytes alone: Confluent's clients write and read such data as it is."""
    return schema == "bytes" or (
        isinstance(schema, dict) and schema.get("type") == "bytes" and "logicalType" not in schema
    )


def _described(schema: Any) -> str:
    name = record_name(schema)
    return f"the Avro type {name}" if name else f"the Avro type {json.dumps(schema, default=str)[:60]}"


def _named(schema: Any, schema_id: int | None) -> str:
    return _described(schema) + (f" (schema id {schema_id})" if schema_id is not None else "")


def _a(thing: object) -> str:
    return f"an object of the type {type(thing).__name__}"


def _words(error: BaseException) -> str:
    """Returns an exception in one line: its text if that says something, else its type too."""
    words = " ".join(str(error).split())[:300]
    if isinstance(error, EOFError):
        return "the data ends too early"
    return words if len(words) > 20 else f"{type(error).__name__}: {words}" if words else type(error).__name__
