"""The options of typed records, which the source and the sink share: formats, schemas, and the mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kohort.settings import SettingError, nearest

if TYPE_CHECKING:
    from kohort.serde.registry_settings import RegistrySettings

FORMATS = ("binary", "string", "json", "avro", "protobuf")
KEY, VALUE = "key", "value"
CORRUPT = "_corrupt"
"""The column of what could not be decoded, with mode=PERMISSIVE."""


class SparkOption(NamedTuple):
    """One option of the source or the sink, as docs/settings.md shows it; an empty default is none."""

    name: str
    default: str
    meaning: str


_OF_COLUMN = {
    "Format": ("binary", "How {column}s are encoded: `binary` (as they are), `string`, `json`, `avro`, `protobuf`."),
    "Schema": ("", "The schema of the {column}s: DDL, the JSON of a Spark type or a JSON Schema; an Avro schema; the "
               "text or path of a `.proto` file, or the path of a FileDescriptorSet."),
    "Subject": ("", "The subject of the registry whose latest schema is used; `TOPIC-{column}` if it is not given."),
    "SchemaId": ("", "The id of the schema in the registry, instead of the subject's latest."),
    "MessageName": ("", "Which message of a Protobuf schema; not needed if there is only one."),
}  # fmt: skip
_SHARED = (
    *(
        SparkOption(f"{column}{what}", default, meaning.format(column=column))
        for column in (VALUE, KEY)
        for what, (default, meaning) in _OF_COLUMN.items()
    ),
    SparkOption("schema", "", "Another name of valueSchema."),
    SparkOption("messageName", "", "Another name of valueMessageName."),
    SparkOption(
        "key.subject.name.strategy",
        "TopicNameStrategy",
        "How the subject of keys is named, as in Confluent's clients.",
    ),
    SparkOption(
        "value.subject.name.strategy",
        "TopicNameStrategy",
        "How the subject of values is named, as in Confluent's clients.",
    ),
)
_OF_SOURCE = (
    SparkOption(
        "mode",
        "FAILFAST",
        "What becomes of a record that cannot be decoded: `FAILFAST` ends the query, `PERMISSIVE` puts it"
        " into the column `_corrupt`, `DROPMALFORMED` leaves it out.",
    ),
    SparkOption(
        "emit.default.values",
        "false",
        "Protobuf: a field without presence that is not set has its default instead of null.",
    ),
)
_OF_SINK_TABLE = (
    SparkOption(
        "auto.register.schemas",
        "true",
        "`false` takes the id that the schema has in the registry already, or fails.",
    ),
    SparkOption(
        "use.latest.version",
        "false",
        "Writes with the subject's latest schema, instead of one that is given or made of the rows.",
    ),
    SparkOption("normalize.schemas", "false", "Lets the registry normalize the schema."),
)
READ_TABLE = (*_SHARED, *_OF_SOURCE)
WRITE_TABLE = (*_SHARED, *_OF_SINK_TABLE)
READ_OPTIONS = tuple(each.name for each in READ_TABLE)
WRITE_OPTIONS = tuple(each.name for each in WRITE_TABLE)
_OF_SINK = tuple(each.name for each in _OF_SINK_TABLE)
_WITH_SCHEMA = tuple(what for what in _OF_COLUMN if what != "Format")
_WITHOUT_COLUMN = {"schema": "valueSchema", "messagename": "valueMessageName"}


class ParseMode(Enum):
    """What becomes of a record that cannot be decoded, by the words of Spark's readers."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """What the options say of the keys, or of the values."""

    column: str
    format: str = "binary"
    schema: str | None = None
    subject: str | None = None
    schema_id: int | None = None
    message_name: str | None = None
    strategy: str = "TopicNameStrategy"

    def option(self, what: str) -> str:
        """The name of one of its options: `valueSchema` for Schema."""
        return f"{self.column}{what}"


@dataclass(frozen=True, slots=True)
class RecordFormats:
    """All options of typed records, checked. They are pickled for executors; the repr of the registry hides secrets."""

    key: ColumnFormat = ColumnFormat(KEY)
    value: ColumnFormat = ColumnFormat(VALUE)
    mode: ParseMode = ParseMode.FAILFAST
    emit_default_values: bool = False
    registry: RegistrySettings | None = None
    writing: Mapping[str, bool] = field(default_factory=dict)
    """Options of the sink by name, as far as they were given."""

    @property
    def typed(self) -> tuple[ColumnFormat, ...]:
        return tuple(each for each in (self.key, self.value) if each.format != "binary")


BINARY = RecordFormats()
"""Keys and values as they are."""


def is_format_option(name: str, names: tuple[str, ...]) -> bool:
    """Whether an option, in small letters, is one of `names` (READ_OPTIONS, WRITE_OPTIONS) or of the registry."""
    return any(name == each.lower() for each in names) or is_registry_option(name)


def is_registry_option(name: str) -> bool:
    return name.startswith(("schema.registry.", "basic.auth.", "bearer.auth."))


def read_formats(options: Mapping[str, str]) -> RecordFormats:
    """Checks what can be checked without a schema; SettingError says what is wrong. Names are in small letters."""
    given = dict(options)
    for short, name in _WITHOUT_COLUMN.items():
        if short in given:
            if name.lower() in given:
                raise SettingError(f"{short} and {name} are two names of one option: give one of them")
            given[name.lower()] = given.pop(short)
    key, value = _column(given, KEY), _column(given, VALUE)
    formats = RecordFormats(
        key,
        value,
        _mode(given),
        _boolean(given, "emit.default.values"),
        _registry(given),
        {name: _boolean(given, name) for name in _OF_SINK if name in given},
    )
    _check_together(formats, given)
    return formats


def _column(given: Mapping[str, str], column: str) -> ColumnFormat:
    named = given.get(f"{column}format", "binary").strip().lower()
    if named not in FORMATS:
        raise SettingError(
            f"{column}Format is {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not '{named}'{nearest(named, FORMATS)}"
        )
    number = given.get(f"{column}schemaid")
    if number is not None and not number.strip().isdecimal():
        raise SettingError(f"{column}SchemaId is the number of a schema in the registry, not '{number}'")
    return ColumnFormat(
        column,
        named,
        given.get(f"{column}schema"),
        given.get(f"{column}subject"),
        None if number is None else int(number),
        given.get(f"{column}messagename"),
        given.get(f"{column}.subject.name.strategy", "TopicNameStrategy"),
    )


def _mode(given: Mapping[str, str]) -> ParseMode:
    named = given.get("mode", ParseMode.FAILFAST.value).strip().upper()
    if named not in ParseMode.__members__:
        raise SettingError(f"mode is {', '.join(ParseMode.__members__)}, not '{given['mode']}'")
    return ParseMode[named]


def _boolean(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise SettingError(f"{name} is true or false, not '{given[name]}'")
    return text == "true"


def _registry(given: Mapping[str, str]) -> RegistrySettings | None:
    settings = {name: text for name, text in given.items() if is_registry_option(name)}
    if not settings:
        return None
    from kohort.serde.registry_settings import RegistrySettings

    return RegistrySettings.of(settings)


def _check_together(formats: RecordFormats, given: Mapping[str, str]) -> None:
    """Refuses options that mean nothing, so that none is ignored in silence."""
    for each in (formats.key, formats.value):
        if each.format in ("binary", "string"):
            _refuse(given, each, _WITH_SCHEMA, f"means nothing with {each.option('Format')}={each.format}")
            if f"{each.column}.subject.name.strategy" in given:
                raise SettingError(
                    f"{each.column}.subject.name.strategy means nothing with {each.option('Format')}={each.format}"
                )
            continue
        if each.format != "protobuf":
            _refuse(given, each, ("MessageName",), "is for Protobuf")
        if formats.registry is None:
            _refuse(given, each, ("Subject", "SchemaId"), "needs schema.registry.url")
        elif each.schema_id is not None and each.subject is not None:
            raise SettingError(
                f"{each.option('Subject')} and {each.option('SchemaId')} both name a schema: give one of them"
            )
    schemas = [each for each in formats.typed if each.format != "string"]
    if formats.registry is not None and not schemas:
        raise SettingError(
            "schema.registry.url means nothing without valueFormat or keyFormat avro, json or protobuf"
        )
    if "mode" in given and not formats.typed:
        raise SettingError("mode means nothing without valueFormat or keyFormat")
    if "emit.default.values" in given and all(each.format != "protobuf" for each in formats.typed):
        raise SettingError("emit.default.values is for Protobuf")


def _refuse(given: Mapping[str, str], each: ColumnFormat, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if each.option(name).lower() in given:
            raise SettingError(f"{each.option(name)} {why}")
