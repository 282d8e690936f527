"""Parses, checks and explains settings by Kafka's names.

A table of settings is a frozen dataclass whose fields are made by `setting(...)`: name, kind, default, check and one
line of documentation stand in one place. `Table` reads them from there:

    @dataclass(frozen=True, slots=True)
    class Example:
        num_partitions: int = setting("num.partitions", Kind.INT, 1, at_least(1), "Of a new topic.")

    Table(Example, "broker").parse({"num.partitions": "3"})
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Generic, TypeVar

from kohort.errors import KohortError

Value = int | float | bool | str | tuple[str, ...] | None
Check = Callable[[Any], str | None]
"""Returns what is wrong with a parsed value, in Kafka's words, or None."""

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


class Kind(IntEnum):
    """The type of a setting; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class SettingError(KohortError, ValueError):
    """A setting is unknown, has a wrong value or contradicts another one; the text says what is allowed."""

    what_to_do = (
        "Correct the setting that the text names; it suggests the nearest name that exists. All settings "
        "are in docs/settings.md."
    )


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting whose value, times `factor`, is the default of a topic setting."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, its type, its default, its check and its documentation."""

    name: str
    kind: Kind
    default: Value
    check: Check | None
    doc: str
    synonyms: tuple[Synonym, ...] = ()
    read_only: bool = False
    sensitive: bool = False
    internal: bool = False  # accepted, but not listed

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """Returns the value that `text` stands for; raises SettingError if it cannot be read or is not allowed."""
        value = _read(self.kind, text.strip())
        wrong = _NOT_READ[self.kind] if value is None else self.check(value) if self.check else None
        if wrong is not None:
            shown = "[hidden]" if self.sensitive else text
            raise SettingError(f"Invalid value {shown} for configuration {self.name}: {wrong}")
        return value


def setting(
    name: str,
    kind: Kind,
    default: Value,
    check: Check | None,
    doc: str,
    *,
    synonyms: tuple[Synonym, ...] = (),
    read_only: bool = False,
    sensitive: bool = False,
    internal: bool = False,
) -> Any:
    """Returns a dataclass field that is a setting."""
    row = Setting(name, kind, default, check, doc, synonyms, read_only, sensitive, internal)
    return setting_field(row)


def setting_field(row: Setting) -> Any:
    return field(default=row.default, metadata={"setting": row})


def as_text(value: Value) -> str | None:
    """Returns a value as Kafka writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _read(kind: Kind, text: str) -> Value:
    """Returns the value of `text`, or None if it is not of this kind."""
    if kind is Kind.STRING:
        return text
    if kind is Kind.LIST:
        return tuple(re.split(r"\s*,\s*", text)) if text else ()
    if kind is Kind.BOOLEAN:
        return {"true": True, "false": False}.get(text.lower())
    if kind is Kind.DOUBLE:
        return _read_double(text)
    bits = {Kind.SHORT: 15, Kind.INT: 31, Kind.LONG: 63}[kind]
    if len(text) > 20 or not _WHOLE_NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << bits) <= number < 1 << bits else None


def _read_double(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) or "_" in text else number


_NOT_READ = {
    Kind.BOOLEAN: "Expected value to be either true or false",
    Kind.SHORT: "Not a number of type SHORT",
    Kind.INT: "Not a number of type INT",
    Kind.LONG: "Not a number of type LONG",
    Kind.DOUBLE: "Not a number of type DOUBLE",
    Kind.STRING: "Expected a string",
    Kind.LIST: "Expected a comma separated list.",
}


def at_least(low: float) -> Check:
    return lambda value: f"Value must be at least {low}" if value < low else None


def between(low: float, high: float, *, or_equal: int | None = None) -> Check:
    def check(value: float) -> str | None:
        if low <= value <= high or value == or_equal:
            return None
        if or_equal is not None:
            return f"Value must be between {low} and {high} or equal to {or_equal}"
        return f"Value must be at least {low}" if value < low else f"Value must be no more than {high}"

    return check


def one_of(*allowed: str) -> Check:
    return lambda value: None if value in allowed else f"String must be one of: {', '.join(allowed)}"


def list_of(*allowed: str) -> Check:
    """Checks that a list has no duplicates, and only `allowed` words if there are any."""

    def check(values: tuple[str, ...]) -> str | None:
        if len(set(values)) != len(values):
            return "values must not be duplicated"
        if "" in values:
            return "values must not be empty"
        if allowed and not set(values) <= set(allowed):
            return f"String must be one of: {', '.join(allowed)}"
        return None

    return check


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of a sentence that says a name is unknown: a suggestion, or nothing."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


T = TypeVar("T")


class Table(Generic[T]):
    """The settings of a dataclass, by Kafka's names."""

    def __init__(self, cls: Callable[..., T], what: str) -> None:
        self._cls = cls
        self.what = what
        rows = (spec.metadata["setting"] for spec in fields(cls) if "setting" in spec.metadata)  # type: ignore[arg-type]
        self.settings: dict[str, Setting] = {row.name: row for row in rows}

    def __iter__(self) -> Iterator[Setting]:
        """Yields the settings that are listed, in the order of their names."""
        return (row for _, row in sorted(self.settings.items()) if not row.internal)

    def __getitem__(self, name: str) -> Setting:
        """Returns the setting of this name; SettingError suggests the nearest name if there is none."""
        try:
            return self.settings[name]
        except KeyError:
            known = [row.name for row in self]
            raise SettingError(f"Unknown {self.what} config name: {name}{nearest(name, known)}") from None

    def read(self, values: Mapping[str, str]) -> dict[str, Value]:
        """Returns the parsed values by the names of their fields."""
        return {self[name].field: self[name].parse(text) for name, text in values.items()}

    def parse(self, values: Mapping[str, str], onto: T | None = None) -> T:
        """Returns the dataclass with these values; the others are those of `onto`, or the defaults."""
        parsed: Any = self.read(values)
        return self._cls(**parsed) if onto is None else replace(onto, **parsed)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class DescribedSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Described:
    """One setting as DescribeConfigs returns it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[DescribedSynonym, ...]
    config_type: Kind
    documentation: str

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def described(
    row: Setting, value: Value, synonyms: tuple[DescribedSynonym, ...], *, read_only: bool
) -> Described:
    """Describes a setting; `synonyms` are in order of precedence, and the value comes from the first one."""
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
    text = None if row.sensitive else as_text(value)
    return Described(row.name, text, source, read_only, row.sensitive, synonyms, row.kind, row.doc)
