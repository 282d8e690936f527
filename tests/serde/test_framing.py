"""The frame of a record with a schema id: the bytes that Confluent's serializers write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.serde.errors import DataMismatch
from kohort.serde.framing import frame, frame_message, split, split_message


def test_a_frame_is_the_magic_byte_and_a_big_endian_id() -> None:
    assert frame(258) == b"\x00\x00\x00\x01\x02"
    assert split(b"\x00\x00\x00\x01\x02payload") == (258, 5)
    assert split(frame(2**32 - 1)) == (2**32 - 1, 5)


def test_the_first_message_of_a_file_has_the_short_form() -> None:
    assert frame_message(1, [0]) == b"\x00\x00\x00\x00\x01\x00"
    assert split_message(b"\x00\x00\x00\x00\x01\x00rest") == (1, (0,), 6)
    assert split_message(b"\x00\x00\x00\x00\x01\x02\x00rest") == (1, (0,), 7)  # the long form of the same


def test_other_messages_have_their_path_in_zigzag_varints() -> None:
    assert frame_message(1, [1, 0]) == b"\x00\x00\x00\x00\x01\x04\x02\x00"
    assert frame_message(1, [100]) == b"\x00\x00\x00\x00\x01\x02\xc8\x01"


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20), st.binary())
def test_what_is_framed_is_split_again(schema_id: int, indexes: list[int], payload: bytes) -> None:
    data = frame_message(schema_id, indexes) + payload
    assert split_message(data) == (schema_id, tuple(indexes), len(data) - len(payload))


@given(st.binary(max_size=40))
def test_any_bytes_are_split_or_refused(data: bytes) -> None:
    try:
        schema_id, indexes, at = split_message(data)
    except DataMismatch:
        return
    assert 5 < at <= len(data)
    assert 0 <= schema_id < 2**32
    assert indexes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes are too few"),
        (b"\x00\x00\x00\x00", "4 bytes are too few"),
        (b'{"a": 1}', "begins with 7b 22 61 22 3a 20 31 7d, not with the magic byte"),
        (b"\x01" + bytes(16), "__value_schema_id are not supported"),
    ],
)
def test_what_has_no_frame_is_told(data: bytes, words: str) -> None:
    with pytest.raises(DataMismatch, match=words):
        split(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x00\x00\x00\x01", "ends within the Protobuf message indexes"),
        (b"\x00\x00\x00\x00\x01\x04\x00", "ends within the Protobuf message indexes"),
        (b"\x00\x00\x00\x00\x01\x01", "-1 message indexes"),
        (b"\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff", "not numbers of at most 5 bytes"),
    ],
)
def test_wrong_message_indexes_are_told(data: bytes, words: str) -> None:
    with pytest.raises(DataMismatch, match=words):
        split_message(data)
