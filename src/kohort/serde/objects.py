"""Makes objects of plain data and plain data of objects: dataclasses, named tuples, TypedDicts, pydantic models.

Plain data is what JSON and Avro know: dicts, lists, text, numbers, and with Avro dates, decimals and UUIDs.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

from kohort.serde.errors import DataMismatch
from kohort.settings import SettingError

Make = Callable[[Any], Any]
"""Makes an object of plain data; DataMismatch says where it does not fit."""

_FROM_TEXT: dict[type, Make] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}
_LISTS = {list: list, set: set, frozenset: frozenset, abc.Sequence: list, abc.Iterable: list, abc.Set: set}
_LONGEST = 500  # characters of what a user's function said
_DICTS = (dict, abc.Mapping, abc.MutableMapping)


def maker_of(kind: Any) -> Make:
    """Returns what makes an object of a type: a class or a type hint. SettingError if it cannot be made of plain data.

    Fields of the data that the class does not have are left out, so that a schema may grow; fields without a default
    that the data lacks do not fit.
    """
    return _Makers().of(kind)


def made_by_type_or_function(of: Any) -> Make | None:
    """Returns what makes objects, by the fields of a type or by a user's function; None if plain data is wanted."""
    if of is None or of is dict or of is Any:
        return None
    if is_a_type(of):
        return maker_of(of)
    if not callable(of):
        raise SettingError(f"{of!r} is neither a type nor a function that makes an object of plain data")
    return _by_function(of)


def is_a_type(of: Any) -> bool:
    """Says whether something is a class or a type hint (`list[Order]`), and no function."""
    return isinstance(of, type) or get_origin(of) is not None


class _Misplaced(DataMismatch):
    """A part of the data does not fit; `place` is where: `field lines[0].article`."""

    def __init__(self, place: str, words: str) -> None:
        super().__init__(f"{place}: {words}")
        self.place, self.words = place, words


class _Makers:
    """The makers of one type and of all types in it; each class once, because a class may hold itself."""

    def __init__(self) -> None:
        self._made: dict[Any, Make] = {}

    def of(self, kind: Any) -> Make:
        if kind in (Any, object, abc.Hashable):
            return _as_it_is
        if kind is None or kind is type(None):
            return _nothing
        if isinstance(kind, typing.NewType):
            return self.of(kind.__supertype__)
        origin = get_origin(kind)
        if origin is not None:
            return self._generic(origin, get_args(kind))
        if not isinstance(kind, type):
            raise SettingError(f"{kind!r} is no class and no type hint that plain data can be made into")
        return self._class(kind)

    def _generic(self, origin: Any, inner: tuple[Any, ...]) -> Make:
        if origin in (typing.Annotated, typing.Required, typing.NotRequired):
            return self.of(inner[0])
        if origin is Literal:
            return _literal(inner)
        if origin in (Union, types.UnionType):
            return self._union(inner)
        if origin is tuple:
            return self._tuple(inner)
        if origin in _LISTS:
            return _sequence(_LISTS[origin], self.of(inner[0]))
        if origin in _DICTS:
            return _mapping(self.of(inner[0]), self.of(inner[1]))
        raise SettingError(f"{origin!r} is no type that plain data can be made into: give a function instead")

    def _class(self, kind: type) -> Make:
        if kind in self._made:
            return self._made[kind]
        if hasattr(kind, "model_validate"):
            return _by_function(kind.model_validate)
        if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or hasattr(kind, "_fields"):
            later: list[Make] = []
            self._made[kind] = lambda data: later[0](data)  # for a class that holds itself
            later.append(self._fields_of(kind))
            self._made[kind] = later[0]
            return later[0]
        if issubclass(kind, Enum):
            return _enum(kind)
        if kind in _FROM_TEXT:
            return _from_text(kind, _FROM_TEXT[kind])
        if kind is float:
            return _float
        if kind in (list, set, frozenset):
            return _sequence(kind, _as_it_is)
        if kind is tuple:
            return _sequence(tuple, _as_it_is)
        return _instance(kind)

    def _fields_of(self, kind: Any) -> Make:
        by_fields: Callable[..., Any] = kind
        try:
            hints = typing.get_type_hints(kind)
        except NameError as error:
            raise SettingError(
                f"the type hints of {kind.__name__} cannot be read ({error}): define the class and its types at the "
                f"top of a module, or give a function that makes an object of a dict"
            ) from error
        if typing.is_typeddict(kind):
            return _typed_dict(kind, {name: self.of(hint) for name, hint in hints.items()}, _needed_by(kind))
        if dataclasses.is_dataclass(kind):
            known = [each for each in dataclasses.fields(kind) if each.init]
            absent = dataclasses.MISSING
            needed = {f.name for f in known if f.default is absent and f.default_factory is absent}
            return _structure(by_fields, {f.name: self.of(hints[f.name]) for f in known}, needed)
        names = {name: self.of(hints.get(name, Any)) for name in kind._fields}
        return _structure(kind, names, set(names) - set(kind._field_defaults))

    def _union(self, inner: tuple[Any, ...]) -> Make:
        choices = [self.of(each) for each in inner if each is not type(None)]
        may_be_none = type(None) in inner
        if len(choices) == 1 and may_be_none:
            (only,) = choices
            return lambda data: None if data is None else only(data)
        described = " | ".join(getattr(each, "__name__", str(each)) for each in inner)

        def make(data: Any) -> Any:
            if data is None and may_be_none:
                return None
            for choice in choices:
                try:
                    return choice(data)
                except DataMismatch:
                    continue
            raise DataMismatch(f"{_shown(data)} is none of {described}")

        return make

    def _tuple(self, inner: tuple[Any, ...]) -> Make:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return _sequence(tuple, self.of(inner[0]))
        makers = [self.of(each) for each in inner]

        def make(data: Any) -> Any:
            if not isinstance(data, list | tuple) or len(data) != len(makers):
                raise DataMismatch(f"{_shown(data)} is no list of {len(makers)}")
            return tuple(
                _at(f"[{n}]", maker, part) for n, (maker, part) in enumerate(zip(makers, data, strict=True))
            )

        return make


def plain(thing: Any) -> Any:
    """Returns plain data for an object, as Avro wants it: dicts for classes, lists for sets, symbols for enums."""
    kind = type(thing)
    found = _PLAIN.get(kind)
    if found is None:
        if len(_PLAIN) >= _MOST_TYPES:  # of a program that makes classes without end
            _PLAIN.clear()
        found = _PLAIN[kind] = _plain_for(kind)
    return found(thing)


_MOST_TYPES = 1000
_PLAIN: dict[type, Callable[[Any], Any]] = {}


def _plain_for(kind: Any) -> Callable[[Any], Any]:
    """Returns what makes plain data of the objects of one type."""
    if issubclass(kind, Enum):
        return lambda thing: thing.value if isinstance(thing.value, str) else thing.name
    if dataclasses.is_dataclass(kind):
        names = tuple(each.name for each in dataclasses.fields(kind))
        return lambda thing: {name: plain(getattr(thing, name)) for name in names}
    if hasattr(kind, "model_dump"):
        return lambda thing: plain(thing.model_dump())
    if hasattr(kind, "_asdict"):
        return lambda thing: plain(thing._asdict())
    if issubclass(kind, Mapping):
        return lambda thing: {key: plain(value) for key, value in thing.items()}
    if issubclass(kind, tuple):
        return lambda thing: tuple(map(plain, thing))
    if issubclass(kind, list | set | frozenset):
        return lambda thing: list(map(plain, thing))
    return _as_it_is


def _at(place: str, maker: Make, data: Any) -> Any:
    """Makes a part; if it does not fit, the message begins with its place."""
    try:
        return maker(data)
    except _Misplaced as error:
        inner = error.place.removeprefix("field ")
        joint = "" if inner.startswith("[") else "."
        raise _Misplaced(f"{place}{joint}{inner}", error.words) from error.__cause__
    except DataMismatch as error:
        raise _Misplaced(place, str(error)) from error.__cause__


def _shown(data: Any) -> str:
    text = repr(data)
    return f"{text[:60]}…" if len(text) > 60 else text


def _as_it_is(data: Any) -> Any:
    return data


def _nothing(data: Any) -> None:
    if data is not None:
        raise DataMismatch(f"{_shown(data)} is not null")


def _float(data: Any) -> float:
    if isinstance(data, float):
        return data
    if isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    raise DataMismatch(f"{_shown(data)} is no float")


def _instance(kind: type) -> Make:
    def make(data: Any) -> Any:
        if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
            raise DataMismatch(f"{_shown(data)} is no {kind.__name__}")
        return data

    return make


def _from_text(kind: type, read: Make) -> Make:
    numbers = (int, float) if kind is Decimal else ()

    def make(data: Any) -> Any:
        if type(data) is kind:
            return data
        try:
            if isinstance(data, str):
                return read(data)
            if isinstance(data, numbers) and not isinstance(data, bool):
                return read(str(data))
        except (ValueError, InvalidOperation) as error:
            raise DataMismatch(f"{_shown(data)} is no {kind.__name__}") from error
        raise DataMismatch(f"{_shown(data)} is no {kind.__name__}")

    return make


def _enum(kind: type[Enum]) -> Make:
    def make(data: Any) -> Any:
        try:
            return kind(data)
        except ValueError:
            if isinstance(data, str) and data in kind.__members__:
                return kind[data]
        names = ", ".join(repr(each.value) for each in kind)
        raise DataMismatch(f"{_shown(data)} is no {kind.__name__} ({names})")

    return make


def _literal(allowed: tuple[Any, ...]) -> Make:
    def make(data: Any) -> Any:
        if data not in allowed:
            raise DataMismatch(f"{_shown(data)} is none of {', '.join(map(repr, allowed))}")
        return data

    return make


def _sequence(kind: Callable[[Any], Any], item: Make) -> Make:
    def make(data: Any) -> Any:
        if not isinstance(data, list | tuple):
            raise DataMismatch(f"{_shown(data)} is no list")
        if item is _as_it_is:
            return kind(data)
        try:
            return kind(map(item, data))
        except DataMismatch:
            return kind(_at(f"[{number}]", item, each) for number, each in enumerate(data))

    return make


def _mapping(key: Make, value: Make) -> Make:
    def make(data: Any) -> Any:
        if not isinstance(data, dict):
            raise DataMismatch(f"{_shown(data)} is no object with fields")
        return {_at(f"[{name!r}]", key, name): _at(f"[{name!r}]", value, each) for name, each in data.items()}

    return make


def _by_function(function: Make) -> Make:
    def make(data: Any) -> Any:
        try:
            return function(data)
        except Exception as error:
            lines = [
                line.strip() for line in str(error).splitlines() if "For further information" not in line
            ]
            raise DataMismatch("; ".join(filter(None, lines))[:_LONGEST] or repr(error)) from error

    return make


def _structure(kind: Callable[..., Any], makers: dict[str, Make], needed: set[str]) -> Make:
    """Makes an object by calling a class with its fields as keywords."""
    name_of = getattr(kind, "__name__", str(kind))
    pairs = list(makers.items())

    def make(data: Any) -> Any:
        if type(data) is not dict:
            raise DataMismatch(f"{_shown(data)} is no object with the fields of {name_of}")
        given = {}
        for name, maker in pairs:
            if name in data:
                try:
                    given[name] = maker(data[name])
                except DataMismatch:
                    _at(f"field {name}", maker, data[name])
            elif name in needed:
                raise _Misplaced(f"field {name}", f"is missing, and {name_of} needs it")
        try:
            return kind(**given)
        except Exception as error:  # of __post_init__
            raise DataMismatch(f"{name_of} refused the data: {error}") from error

    return make


def _needed_by(kind: Any) -> set[str]:
    """Returns the names of a TypedDict that must be there.

    Its `__required_keys__` do not know of NotRequired where annotations are text.
    """
    marks = {
        name: get_origin(hint) for name, hint in typing.get_type_hints(kind, include_extras=True).items()
    }
    must = {name for name in kind.__required_keys__ if marks.get(name) is not typing.NotRequired}
    return must | {name for name, mark in marks.items() if mark is typing.Required}


def _typed_dict(kind: Any, makers: dict[str, Make], needed: set[str]) -> Make:
    def make(data: Any) -> Any:
        if type(data) is not dict:
            raise DataMismatch(f"{_shown(data)} is no object with the fields of {kind.__name__}")
        for name in needed:
            if name not in data:
                raise _Misplaced(f"field {name}", f"is missing, and {kind.__name__} needs it")
        return {
            name: _at(f"field {name}", makers[name], value) if name in makers else value
            for name, value in data.items()
        }

    return make
