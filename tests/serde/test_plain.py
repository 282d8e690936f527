"""Kafka's built-in serializers: the bytes of the Java classes of the same names."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort import SettingError, serde
from kohort.serde import DataMismatch

ID = UUID("123e4567-e89b-12d3-a456-426614174000")


# The bytes are those that Java's serializers return (ByteBuffer is big-endian, UUIDSerializer writes toString()).
@pytest.mark.parametrize(
    ("name", "thing", "data"),
    [
        ("String", "grün", b"gr\xc3\xbcn"),
        ("Bytes", b"\x00\xff", b"\x00\xff"),
        ("Short", -2, b"\xff\xfe"),
        ("Integer", 258, b"\x00\x00\x01\x02"),
        ("Long", -1, b"\xff" * 8),
        ("Float", 1.5, b"\x3f\xc0\x00\x00"),
        ("Double", 1.5, b"\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        ("UUID", ID, b"123e4567-e89b-12d3-a456-426614174000"),
    ],
)
def test_both_ways(name: str, thing: Any, data: bytes) -> None:
    serializer, deserializer = getattr(serde, f"{name}Serializer")(), getattr(serde, f"{name}Deserializer")()
    assert serializer("t", thing) == data
    assert deserializer("t", data) == thing
    assert serializer("t", None) is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long(number: int) -> None:
    data = serde.LongSerializer()("t", number)
    assert data is not None
    assert serde.LongDeserializer()("t", data) == number


def test_other_encodings() -> None:
    assert serde.StringSerializer("latin-1")("t", "ü") == b"\xfc"
    assert serde.StringDeserializer("latin-1")("t", b"\xfc") == "ü"
    with pytest.raises(SettingError, match="latin-77 is no encoding"):
        serde.StringSerializer("latin-77")


@pytest.mark.parametrize(
    ("serializer", "thing", "words"),
    [
        (serde.StringSerializer(), 5, "takes a str, not an int"),
        (serde.StringSerializer("ascii"), "ü", "cannot be written in ascii"),
        (serde.BytesSerializer(), "text", "takes bytes, not a str"),
        (serde.ShortSerializer(), 2**15, "32768 does not fit into the 2 bytes"),
        (serde.IntegerSerializer(), True, "takes an int, not a bool"),
        (serde.IntegerSerializer(), "5", "an IntegerSerializer takes an int, not a str"),
        (serde.FloatSerializer(), 1e300, "does not fit into the 4 bytes"),
        (serde.UUIDSerializer(), str(ID), "takes a uuid.UUID, not a str"),
    ],
)
def test_a_wrong_object_is_told(serializer: Any, thing: Any, words: str) -> None:
    with pytest.raises(DataMismatch, match=words):
        serializer("t", thing)


@pytest.mark.parametrize(
    ("deserializer", "data", "words"),
    [
        (serde.StringDeserializer(), b"\xff", "is no text in utf-8"),
        (serde.IntegerDeserializer(), b"\x00" * 8, "reads 4 bytes, and the data has 8"),
        (serde.LongDeserializer(), b"", "reads 8 bytes, and the data has 0"),
        (serde.UUIDDeserializer(), b"123", "is no UUID"),
        (serde.UUIDDeserializer(), b"\xff", "is no UUID"),
    ],
)
def test_wrong_bytes_are_told(deserializer: Any, data: bytes, words: str) -> None:
    with pytest.raises(DataMismatch, match=words):
        deserializer("t", data)
