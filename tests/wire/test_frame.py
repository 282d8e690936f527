"""Frames and headers, byte by byte and against kio."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as RequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeader2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from kohort.wire.compiler.compile import codec
from kohort.wire.errors import BadFrame
from kohort.wire.frame import (
    body_of,
    read_request_header,
    read_response_header,
    request_frame,
    response_chunks,
)
from tests.wire.strategies import Case, all_cases, filled

HEARTBEAT, API_VERSIONS = 12, 18
CLASSIC = codec(HEARTBEAT, 3)
FLEXIBLE = codec(HEARTBEAT, 4)
REQUESTS = [case for case in all_cases() if case.which == "request"]
RESPONSES = [case for case in all_cases() if case.which == "response"]


def view(hexed: str) -> memoryview:
    return memoryview(bytes.fromhex(hexed))


def test_a_classic_request_header_is_version_1() -> None:
    frame = request_frame(CLASSIC, 7, "me", [b"body"])
    assert frame == bytes.fromhex("00000010 000c 0003 00000007 0002 6d65") + b"body"
    assert read_request_header(memoryview(frame)[4:]) == (HEARTBEAT, 3, 7, "me", 12)


def test_a_flexible_request_header_is_version_2_with_a_classic_client_id() -> None:
    frame = request_frame(FLEXIBLE, 7, "me", [b"body"])
    assert frame == bytes.fromhex("00000011 000c 0004 00000007 0002 6d65 00") + b"body"
    assert read_request_header(memoryview(frame)[4:]) == (HEARTBEAT, 4, 7, "me", 12)
    assert body_of(memoryview(frame)[4:], 12) == 13


@pytest.mark.parametrize(("client_id", "raw"), [(None, "ffff"), ("", "0000"), ("é", "0002 c3a9")])
def test_client_id_is_a_nullable_string_in_both(client_id: str | None, raw: str) -> None:
    for functions in (CLASSIC, FLEXIBLE):
        frame = request_frame(functions, -1, client_id, [])
        tags = b"\0" if functions.flexible else b""
        assert frame[12:] == bytes.fromhex(raw) + tags
        assert read_request_header(memoryview(frame)[4:])[3:] == (client_id, len(frame) - 4 - len(tags))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=20) | st.just("c" * 32767),
    version=st.integers(0, 4),
)
def test_request_headers_are_those_of_kio(correlation_id: int, client_id: str | None, version: int) -> None:
    made = RequestHeader2 if version == 4 else RequestHeader1
    header = made(
        request_api_key=i16(HEARTBEAT),
        request_api_version=i16(version),
        correlation_id=i32(correlation_id),
        client_id=client_id,
    )
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    frame = request_frame(codec(HEARTBEAT, version), correlation_id, client_id, [])
    assert frame[4:] == buffer.getvalue()


def test_unknown_tags_in_a_flexible_header_are_read_over() -> None:
    frame = view("000c 0004 00000007 ffff 02 00 01 aa 8101 02 bbbb")
    _, _, _, _, pos = read_request_header(frame)
    assert body_of(frame, pos) == len(frame)


def test_a_classic_response_header_is_the_correlation_id() -> None:
    chunks = response_chunks(CLASSIC, 7, [b"bo", b"dy"])
    assert b"".join(chunks) == bytes.fromhex("00000008 00000007") + b"body"
    assert read_response_header(CLASSIC, view("00000007 626f6479")) == (7, 4)


def test_a_flexible_response_header_has_tags() -> None:
    chunks = response_chunks(FLEXIBLE, 7, [b"body"])
    assert b"".join(chunks) == bytes.fromhex("00000009 00000007 00") + b"body"
    assert read_response_header(FLEXIBLE, view("00000007 00 626f6479")) == (7, 5)
    assert read_response_header(FLEXIBLE, view("00000007 01 05 02 aabb 626f6479")) == (7, 9)


def test_the_response_header_of_api_versions_never_has_tags() -> None:
    for version in range(5):
        functions = codec(API_VERSIONS, version)
        assert (
            b"".join(response_chunks(functions, 7, [b"body"])) == bytes.fromhex("00000008 00000007") + b"body"
        )
        assert read_response_header(functions, view("00000007 626f6479")) == (7, 4)
    # Its requests are like all others.
    assert request_frame(codec(API_VERSIONS, 3), 7, None, []).endswith(b"\xff\xff\0")


def test_a_file_slice_passes_through_a_response_untouched() -> None:
    class FileSlice:
        def __len__(self) -> int:
            return 1000

    file_slice = FileSlice()
    chunks = response_chunks(FLEXIBLE, 1, [b"ab", file_slice])
    assert chunks[-1] is file_slice
    assert chunks[0][:4] == struct.pack(">i", 1 + 4 + 2 + 1000)


@pytest.mark.parametrize("case", REQUESTS, ids=str)
def test_a_request_goes_round(case: Case) -> None:
    functions, message = codec(case.key, case.version), filled(case)
    frame = memoryview(request_frame(functions, 99, "client", functions.encode_request(message)))
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    api_key, version, correlation_id, client_id, pos = read_request_header(frame[4:])
    assert (api_key, version, correlation_id, client_id) == (case.key, case.version, 99, "client")
    if functions.flexible:
        pos = body_of(frame[4:], pos)
    assert functions.decode_request(frame[4:], pos) == message


@pytest.mark.parametrize("case", RESPONSES, ids=str)
def test_a_response_goes_round(case: Case) -> None:
    functions, message = codec(case.key, case.version), filled(case)
    frame = memoryview(b"".join(response_chunks(functions, 99, functions.encode_response(message))))
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    correlation_id, pos = read_response_header(functions, frame[4:])
    assert correlation_id == 99
    assert functions.decode_response(frame[4:], pos) == message


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        ("", "shorter than a request header"),
        ("000c 0004 00000007 00", "shorter than a request header"),
        ("000c 0004 00000007 fffe", "client_id has a negative length"),
        ("000c 0004 00000007 8000", "client_id has a negative length"),
        ("000c 0004 00000007 0003 6d65", "client_id is longer than the frame"),
        ("000c 0004 00000007 7fff 6d65", "client_id is longer than the frame"),
        ("000c 0004 00000007 0002 c328", "client_id is not UTF-8"),
    ],
)
def test_a_request_header_that_is_wrong_is_a_bad_frame(frame: str, complaint: str) -> None:
    with pytest.raises(BadFrame, match=complaint):
        read_request_header(view(frame))


@pytest.mark.parametrize(
    "tags", ["", "01", "01 00", "01 00 05 aa", "ff", "ffffffffff01", "ffffffff0f", "01 00 ffffffff0f"]
)
def test_tags_of_a_header_that_are_wrong_are_a_bad_frame(tags: str) -> None:
    with pytest.raises(BadFrame):
        body_of(view(tags), 0)
    with pytest.raises(BadFrame):
        read_response_header(FLEXIBLE, view("00000007" + tags))


def test_a_response_shorter_than_its_header_is_a_bad_frame() -> None:
    for size in range(4):
        with pytest.raises(BadFrame, match="shorter than a response header"):
            read_response_header(CLASSIC, memoryview(bytes(size)))


@settings(max_examples=300, derandomize=True, deadline=None)
@given(frame=st.binary(max_size=40))
def test_noise_is_a_header_or_a_bad_frame(frame: bytes) -> None:
    try:
        *_, pos = read_request_header(memoryview(frame))
        assert 10 <= body_of(memoryview(frame), pos) <= len(frame)
    except BadFrame:
        pass
