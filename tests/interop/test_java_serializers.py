"""Kafka's Java serdes beside ours: the same bytes for text, numbers and UUIDs."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

import pytest

from kohort import serde

from .conftest import Run

pytestmark = pytest.mark.interop
THINGS: list[tuple[str, Any]] = [
    ("String", "grün 😀"),
    ("String", "x"),
    *(("Short", number) for number in (0, -1, 2**15 - 1, -(2**15))),
    *(("Integer", number) for number in (0, -1, 258, 2**31 - 1, -(2**31))),
    *(("Long", number) for number in (0, -1, 2**63 - 1, -(2**63))),
    *(("Float", number) for number in (0.0, -0.0, 1.5, -3.25, math.inf)),
    *(("Double", number) for number in (0.0, 0.1, -1e300, 5e-324, -math.inf)),
    ("UUID", UUID("123e4567-e89b-12d3-a456-426614174000")),
]


def as_java_reads(thing: Any) -> str:
    return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(thing, str(thing))


def test_the_bytes_are_those_of_java(java: Run) -> None:
    arguments = [f"{kind}:{as_java_reads(thing).encode().hex()}" for kind, thing in THINGS]
    lines = java("Serializers", *arguments).splitlines()
    assert len(lines) == len(THINGS)
    for (kind, thing), line in zip(THINGS, lines, strict=True):
        data, read = line.split()
        assert read == "true"
        assert getattr(serde, f"{kind}Serializer")()("topic", thing) == bytes.fromhex(data), (kind, thing)
        assert getattr(serde, f"{kind}Deserializer")()("topic", bytes.fromhex(data)) == thing
