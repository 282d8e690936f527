"""Every layout against `kio`, another implementation of Kafka's protocol, generated from Kafka's own JSON.

kio has one dataclass per message and version; its fields stand in the order of the JSON, as ours do.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import classify_field, get_schema_field_type

from kohort.wire.compiler.notation import FieldSpec, StructSpec
from kohort.wire.errors import ErrorCode
from tests.wire.strategies import Case, Values, all_cases, filled, messages, nulled

CASES = list(all_cases())
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# kio's types are narrower than the wire in four places, and only there are the drawn values narrowed:
# an error code is an enum,
KNOWN_CODES = st.sampled_from([code.value for code in KioErrorCode])
# an int64 of milliseconds is a timedelta, whose milliseconds pass through a float,
EXACT_MS = st.integers(-(2**50), 2**50)
# a point in time is a datetime (years up to 9999) or None for -1. An int32 of milliseconds loses nothing.
TIMES = st.just(-1) | st.integers(0, 253_402_300_799_000)


def as_kio_can(spec: FieldSpec) -> Values | None:
    if spec.name.endswith("error_code"):
        return KNOWN_CODES
    if spec.name in ("retention_time_ms", "session_lifetime_ms"):
        return EXACT_MS
    return TIMES if spec.name == "log_append_time_ms" else None


def milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def point_in_time(value: int) -> datetime | None:
    return None if value == -1 else EPOCH + timedelta(milliseconds=value)


def uuid_or_none(value: bytes) -> UUID | None:
    return UUID(bytes=value) if any(value) else None


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "error_code": KioErrorCode,
    "timedelta_i32": milliseconds,
    "timedelta_i64": milliseconds,
    "datetime_i64": point_in_time,
    "uuid": uuid_or_none,
    "records": bytes,
}


def kio_class(case: Case) -> Any:
    module = import_module(f"kio.schema.{case.api.module}.v{case.version}.{case.which}")
    return getattr(module, case.message.name)


@cache
def to_kio(case: Case, struct: str, theirs: Any) -> Callable[[Any], Any]:
    """The function that turns one of our structs into kio's."""
    ours: StructSpec = case.api.structs[struct]
    pairs = []
    here = [spec for spec in ours.fields if case.version in spec.versions]
    for spec, their_field in zip(here, dataclasses.fields(theirs), strict=True):
        # kio says in the type what Kafka says at the end of the name.
        assert their_field.name in (spec.name, spec.name.removesuffix("_ms"))
        assert their_field.metadata.get("tag") == spec.tag
        kind = classify_field(their_field)
        assert kind.is_array == spec.is_array
        if spec.type[0].isupper():
            convert = to_kio(case, spec.type, kind.type_)
        else:
            convert = CONVERSIONS.get(get_schema_field_type(their_field), lambda value: value)
        pairs.append((spec.name, their_field.name, spec.is_array, convert))

    def build(message: Any) -> Any:
        values: dict[str, Any] = {}
        for our_name, their_name, is_array, convert in pairs:
            value = getattr(message, our_name)
            if value is not None:
                value = tuple(map(convert, value)) if is_array else convert(value)
            values[their_name] = value
        return theirs(**values)

    return build


def check(case: Case, message: Any) -> None:
    theirs = kio_class(case)
    entity = to_kio(case, case.message.name, theirs)(message)
    buffer = io.BytesIO()
    entity_writer(theirs)(buffer, entity)
    expected = buffer.getvalue()
    assert case.encode(message) == expected
    assert case.decode(memoryview(expected)) == case.decode(expected) == message


@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=25, derandomize=True, deadline=None)
@given(data=st.data())
def test_any_message_is_encoded_as_kio_encodes_it(case: Case, data: st.DataObject) -> None:
    check(case, data.draw(messages(case, as_kio_can)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_corners_are_encoded_as_kio_encodes_them(case: Case) -> None:
    check(case, nulled(case))
    check(case, filled(case))
    check(case, filled(case, elements=(0, 0, 0), string="", blob=b""))
    # Compact lengths and counts of two bytes, at each depth of nesting.
    check(case, filled(case, elements=(1, 1, 1), string="t" * 300, blob=bytes(300)))
    for elements in ((130, 1, 1), (1, 130, 1), (1, 1, 130)):
        check(case, filled(case, elements=elements))


def test_the_longest_string_that_kafka_allows() -> None:
    for version in (3, 4):  # Heartbeat is flexible since 4
        case = Case(12, version, "request")
        check(case, filled(case, string="g" * 32767))


def test_kio_knows_the_error_codes_that_we_know() -> None:
    assert {code.name.upper(): code.value for code in KioErrorCode} == {c.name: c.value for c in ErrorCode}
