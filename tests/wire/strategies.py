"""Messages for tests: drawn by Hypothesis, or filled by a rule, for any API in any version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from hypothesis import strategies as st

from kohort.wire.compiler.compile import codec
from kohort.wire.compiler.notation import ApiSpec, FieldSpec, StructSpec, all_apis
from kohort.wire.struct import Message

Values = st.SearchStrategy[Any]
# Gives another strategy for a field whose values must be narrower than its type, or None.
Narrow = Callable[[FieldSpec], Values | None]

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
# 126 is the longest that a compact length of one byte can say, 127 needs two.
BLOB = st.binary(max_size=12) | st.sampled_from([b"", bytes(126), bytes(127)])
PRIMITIVE: dict[str, Values] = {
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=8) | st.sampled_from(["", "t" * 126, "t" * 127, "ü" * 100]),
    "bytes": BLOB,
    "records": BLOB,
    "uuid": st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
} | {name: st.integers(low, high) for name, (low, high) in RANGES.items()}


@dataclass(frozen=True)
class Case:
    """One layout: an API, a version, a direction."""

    key: int
    version: int
    which: str  # "request" or "response"

    @property
    def api(self) -> ApiSpec:
        return all_apis()[self.key]

    @property
    def message(self) -> StructSpec:
        return self.api.request if self.which == "request" else self.api.response

    def encode(self, message: Message) -> bytes:
        functions = codec(self.key, self.version)
        encode = functions.encode_request if self.which == "request" else functions.encode_response
        return b"".join(encode(message))

    def decode(self, body: bytes | memoryview) -> Message:
        functions = codec(self.key, self.version)
        decode = functions.decode_request if self.which == "request" else functions.decode_response
        return decode(body, 0)

    def __str__(self) -> str:
        return f"{self.api.name}-v{self.version}-{self.which}"


def all_cases() -> Iterator[Case]:
    for api in all_apis().values():
        for version in range(api.versions.first, api.versions.last + 1):
            yield Case(api.key, version, "request")
            yield Case(api.key, version, "response")


def wide(spec: FieldSpec) -> Values | None:
    """Narrows nothing."""
    return None


@cache
def messages(case: Case, narrow: Narrow = wide) -> Values:
    """Any message that this layout can carry: fields that the version lacks keep their defaults."""
    return _structs(case, case.message, narrow)


def _structs(case: Case, struct: StructSpec, narrow: Narrow) -> Values:
    here = [spec for spec in struct.fields if case.version in spec.versions]
    return st.builds(
        struct_class(case.api, struct), **{spec.name: _values(case, spec, narrow) for spec in here}
    )


def _values(case: Case, spec: FieldSpec, narrow: Narrow) -> Values:
    values = narrow(spec)
    if values is None:
        values = PRIMITIVE.get(spec.type)
    if values is None:
        values = _structs(case, case.api.structs[spec.type], narrow)
    if spec.is_array:
        values = st.lists(values, max_size=3)
    return st.none() | values if case.version in spec.nullable else values


def struct_class(api: ApiSpec, struct: StructSpec) -> Callable[..., Any]:
    made: Callable[..., Any] = getattr(import_module(f"kohort.wire.messages.{api.module}"), struct.name)
    return made


def filled(
    case: Case, *, elements: tuple[int, ...] = (2, 2, 2, 1), string: str = "tö", blob: bytes = b"123"
) -> Any:
    """A message in which nothing is null, zero or left out: the same one every time.

    `elements` says how long arrays are: those of the message, those in their structs, and so on;
    the last holds for all that are deeper.
    """
    plain = {"bool": True, "float64": 1.5, "string": string, "bytes": blob, "records": blob}
    plain["uuid"] = bytes(range(1, 17))

    def struct_of(struct: StructSpec, depth: int) -> Any:
        here = [spec for spec in struct.fields if case.version in spec.versions]
        return struct_class(case.api, struct)(**{spec.name: value_of(spec, depth) for spec in here})

    def value_of(spec: FieldSpec, depth: int) -> Any:
        if spec.type[0].isupper():
            value = struct_of(case.api.structs[spec.type], depth + 1)
        else:
            value = plain.get(spec.type, 1)
        return [value] * elements[min(depth, len(elements) - 1)] if spec.is_array else value

    return struct_of(case.message, 0)


def nulled(case: Case) -> Any:
    """A message in which what can be null is, arrays are empty, and every other field has its default."""
    here = [spec for spec in case.message.fields if case.version in spec.versions]
    values: dict[str, Any] = {spec.name: [] for spec in here if spec.is_array}
    values |= {spec.name: None for spec in here if case.version in spec.nullable}
    return struct_class(case.api, case.message)(**values)
