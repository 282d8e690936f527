"""The packages of the extra `serde`: loaded when they are used, and what is said when one is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kohort.serde import (
    AvroSerializer,
    JsonDeserializer,
    JsonSerializer,
    MissingPackage,
    ProtobufDeserializer,
    SchemaRegistry,
    WrongSchema,
)
from kohort.serde.protobuf import compiled

PACKAGES = ("fastavro", "orjson", "google.protobuf", "grpc_tools", "httpx", "jsonschema")


@pytest.mark.parametrize(
    ("missing", "use", "words"),
    [
        ("fastavro", lambda: AvroSerializer(schema='"int"'), "Avro needs the package fastavro"),
        ("orjson", lambda: JsonSerializer(), "JSON needs the package orjson"),
        (
            "google.protobuf.message",
            lambda: ProtobufDeserializer(registry="http://a"),
            "needs the package google",
        ),
        ("grpc_tools", lambda: compiled("a.proto", 'syntax = "proto3";', {}), "needs the package grpc_tools"),
        (
            "httpx",
            lambda: SchemaRegistry("http://127.0.0.1:9").schema(1),
            "a schema registry needs the package httpx",
        ),
    ],
)
def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, missing: str, use: Any, words: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    with pytest.raises(MissingPackage, match=rf'{words}.*: pip install "kohort\[serde\]"$'):
        use()


def test_a_package_that_is_not_of_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(
        MissingPackage, match=r"validate=True needs the package jsonschema.*: pip install jsonschema$"
    ):
        JsonDeserializer(schema="{}", validate=True)
    with pytest.raises(WrongSchema):
        JsonSerializer(schema="{")  # what needs no validation needs no package for it


def test_an_import_pulls_no_package_in() -> None:
    code = """
import sys
from kohort.serde import *
StringSerializer()("t", "text")
SchemaRegistry("http://127.0.0.1:9")
print(*sorted(sys.modules))
"""
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180
    )
    assert set(loaded.stdout.split()).isdisjoint(PACKAGES)
