"""JSON records by orjson: plain, or framed with the id of a JSON Schema in a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from kohort.serde.errors import DataMismatch, RegistryError, WrongSchema
from kohort.serde.framing import frame, split
from kohort.serde.objects import Make, is_a_type, made_by_type_or_function
from kohort.serde.packages import package
from kohort.serde.registry import RegisteredSchema, SchemaReference, SchemaRegistry
from kohort.serde.schemas import RegistryLike, SchemaIds, SerializerKeywords, of_kind, registry_of
from kohort.settings import SettingError

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with `default`; every type checker brings it

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

JsonSchema = str | Mapping[str, Any]
"""A JSON Schema as text, or what that text stands for."""


class JsonSerializer(Generic[T]):
    """Writes objects as JSON: what orjson writes (dicts, lists, dataclasses, dates, UUIDs, enums), pydantic models too.

    JsonSerializer(Order)
    JsonSerializer(Order, schema=text, registry="http://127.0.0.1:8081")

    `of` is the class (for type checkers), or a function that returns plain data for an object. With a registry the JSON
    Schema is registered at the first record of a topic, and its id stands before the JSON. `validate=True` checks every
    record against the schema (needs the package jsonschema). Decimals are written as text, sets as lists.
    """

    @overload
    def __init__(
        self: JsonSerializer[Any],
        of: None = None,
        *,
        schema: JsonSchema | None = None,
        references: Sequence[SchemaReference] = (),
        validate: bool = False,
        **keywords: Unpack[SerializerKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: type[T],
        *,
        schema: JsonSchema | None = None,
        references: Sequence[SchemaReference] = (),
        validate: bool = False,
        **keywords: Unpack[SerializerKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: Callable[[T], Any],
        *,
        schema: JsonSchema | None = None,
        references: Sequence[SchemaReference] = (),
        validate: bool = False,
        **keywords: Unpack[SerializerKeywords],
    ) -> None: ...
    def __init__(
        self,
        of: Any = None,
        *,
        schema: JsonSchema | None = None,
        references: Sequence[SchemaReference] = (),
        validate: bool = False,
        **keywords: Unpack[SerializerKeywords],
    ) -> None:
        self._ids = SchemaIds("JSON", keywords, lambda: references)
        self._plain = None if of is None or is_a_type(of) else of
        self._dump = package("orjson", "JSON").dumps
        self._text = None if schema is None else schema if isinstance(schema, str) else json.dumps(schema)
        self._title: str | None = None
        self._validates = validate
        self._checks: dict[int, Callable[[Any], None]] = {}
        if self._text is not None:
            own = RegisteredSchema(0, "JSON", self._text, tuple(references))
            self._title = _title(own)
            if references and self._ids.registry is None:
                raise SettingError("references are in a schema registry: give `registry` too")
            if validate:
                known = self._ids.registry.references_of(own) if self._ids.registry else {}
                self._checks[0] = validator(own, known)
        elif validate and not self._ids.uses_latest:
            raise SettingError("validate=True needs a schema: give schema=…")
        if self._ids.registry is not None and self._text is None and not self._ids.uses_latest:
            raise SettingError("with a registry a JsonSerializer needs schema=…, or use_latest_version=True")
        if self._text is not None and self._ids.uses_latest:
            raise SettingError(
                "use_latest_version=True takes the registry's schema: give no schema of your own"
            )

    def __call__(self, topic: str, thing: T | None) -> bytes | None:
        if thing is None:
            return None
        try:
            data: bytes = self._dump(self._plain(thing) if self._plain else thing, default=_other)
        except Exception as error:
            raise DataMismatch(f"an object of the type {type(thing).__name__} is no JSON: {error}") from error
        ids = self._ids
        if ids.registry is None:
            schema_id = None
        elif ids.uses_latest:
            schema_id = self._latest(topic)
        else:
            assert self._text is not None
            schema_id = ids.id_of(topic, self._title, self._text)
        if self._validates:
            self._checks[(schema_id or 0) if ids.uses_latest else 0](json.loads(data))
        return data if schema_id is None else frame(schema_id) + data

    def _latest(self, topic: str) -> int:
        latest = self._ids.latest(topic, None)
        if self._validates and latest.id not in self._checks:
            assert self._ids.registry is not None
            self._checks[latest.id] = validator(latest, self._ids.registry.references_of(latest))
        return latest.id


class JsonDeserializer(Generic[T]):
    """Reads JSON into dicts and lists, or into objects of a class, or into what a function makes of them.

    JsonDeserializer(Order)
    JsonDeserializer(Order, registry="http://127.0.0.1:8081")

    A class is a dataclass, a named tuple, a TypedDict or a pydantic model; fields that it does not have are left out.
    With a registry a schema id stands before the JSON; `validate=True` checks the record against that schema, or,
    without a registry, against `schema` (needs the package jsonschema).
    """

    @overload
    def __init__(
        self: JsonDeserializer[Any],
        of: None = None,
        *,
        registry: RegistryLike | None = None,
        schema: JsonSchema | None = None,
        validate: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: type[T],
        *,
        registry: RegistryLike | None = None,
        schema: JsonSchema | None = None,
        validate: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        of: Callable[[Any], T],
        *,
        registry: RegistryLike | None = None,
        schema: JsonSchema | None = None,
        validate: bool = False,
    ) -> None: ...
    def __init__(
        self,
        of: Any = None,
        *,
        registry: RegistryLike | None = None,
        schema: JsonSchema | None = None,
        validate: bool = False,
    ) -> None:
        self._registry = registry_of(registry)
        self._make: Make | None = made_by_type_or_function(of)
        self._load = package("orjson", "JSON").loads
        self._validates = validate
        self._checks: dict[int | None, Callable[[Any], None]] = {}
        if schema is not None:
            text = schema if isinstance(schema, str) else json.dumps(schema)
            own = RegisteredSchema(0, "JSON", text)
            _title(own)
            if not validate:
                raise SettingError("schema=… is for validate=True: JSON is read without a schema")
            if self._registry is not None:
                raise SettingError("with a registry each record names its schema: give no schema of your own")
            self._checks[None] = validator(own, {})
        elif validate and self._registry is None:
            raise SettingError("validate=True needs schema=… or registry=…")

    def __call__(self, topic: str, data: bytes) -> T:
        schema_id: int | None = None
        payload: bytes | memoryview = data
        if self._registry is not None:
            schema_id, at = split(data)
            payload = memoryview(data)[at:]
        try:
            found = self._load(payload)
        except ValueError as error:
            if self._registry is not None and schema_id is not None:
                _other_kind(self._registry, schema_id)
            hint = ""
            if self._registry is None and data[:1] == b"\x00":
                hint = "; it begins with the magic byte 00: if a schema id stands before the JSON, give registry=…"
            raise DataMismatch(f"the data is no JSON{_of(schema_id)}: {error}{hint}") from error
        if self._validates:
            self._check_for(schema_id)(found)
        if self._make is None:
            return found  # type: ignore[no-any-return]
        try:
            return self._make(found)  # type: ignore[no-any-return]
        except DataMismatch as error:
            raise DataMismatch(f"the JSON{_of(schema_id)} does not fit: {error}") from error

    def _check_for(self, schema_id: int | None) -> Callable[[Any], None]:
        if schema_id not in self._checks:
            assert self._registry is not None
            assert schema_id is not None
            schema = of_kind(self._registry.schema(schema_id), "JSON", "JsonDeserializer")
            self._checks[schema_id] = validator(schema, self._registry.references_of(schema))
        return self._checks[schema_id]


def validator(schema: RegisteredSchema, references: Mapping[str, RegisteredSchema]) -> Callable[[Any], None]:
    """Returns a function that raises DataMismatch for data that does not fit a JSON Schema."""
    jsonschema = package("jsonschema", "validate=True")
    referencing = package("referencing", "validate=True")
    specification = package("referencing.jsonschema", "validate=True").DRAFT7
    named = f"schema id {schema.id}" if schema.id else "the schema"
    try:
        root = json.loads(schema.text)
        resources = [
            (
                name,
                referencing.Resource.from_contents(
                    json.loads(each.text), default_specification=specification
                ),
            )
            for name, each in references.items()
        ]
        kind = jsonschema.validators.validator_for(root, default=jsonschema.Draft7Validator)
        kind.check_schema(root)
        checker = kind(root, registry=referencing.Registry().with_resources(resources))
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        raise WrongSchema(f"{named} cannot be read as a JSON Schema: {words}") from error

    def check(data: Any) -> None:
        try:
            error = next(checker.iter_errors(data), None)
        except Exception as raised:
            words = " ".join(str(raised).split())[:300]
            raise WrongSchema(f"{named} cannot be used to validate: {words}") from raised
        if error is not None:
            words = " ".join(error.message.split())[:300]
            raise DataMismatch(f"the data does not fit {named} at {error.json_path}: {words}")

    return check


def _title(schema: RegisteredSchema) -> str | None:
    """Returns the title of a JSON Schema, which stands for its name; WrongSchema if it is no JSON."""
    try:
        root = json.loads(schema.text)
    except ValueError as error:
        raise WrongSchema(f"the schema cannot be read as a JSON Schema: {error}") from error
    title = root.get("title") if isinstance(root, dict) else None
    return title if isinstance(title, str) else None


def _other_kind(registry: SchemaRegistry, schema_id: int) -> None:
    """Raises WrongSchema if the schema of data that is no JSON is of another kind: that explains it."""
    try:
        schema = registry.schema(schema_id)
    except RegistryError:
        return
    of_kind(schema, "JSON", "JsonDeserializer")


def _of(schema_id: int | None) -> str:
    return "" if schema_id is None else f" of schema id {schema_id}"


def _other(thing: Any) -> Any:
    """Returns JSON's idea of what orjson does not know."""
    if isinstance(thing, Decimal):
        return str(thing)
    if isinstance(thing, set | frozenset):
        return list(thing)
    if hasattr(thing, "model_dump"):
        return thing.model_dump(mode="json")
    if isinstance(thing, tuple):
        return thing._asdict() if hasattr(thing, "_asdict") else list(thing)
    raise TypeError(f"{type(thing).__name__} has no form in JSON; give a function that returns plain data")
