"""Bytes that are wrong: the outcome is a message or BadFrame, and memory is never given for a promise."""

from __future__ import annotations

import random
import re
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.wire.compiler.notation import FieldSpec, StructSpec
from kohort.wire.errors import BadFrame
from kohort.wire.struct import Message
from kohort.wire.varint import read_uvarint, write_uvarint
from tests.wire.strategies import Case, all_cases, filled, messages


def by_api(wanted: Callable[[Case], bool]) -> dict[str, list[Case]]:
    """The layouts of each API that has any of the wanted ones."""
    apis: dict[str, list[Case]] = {}
    for case in all_cases():
        if wanted(case):
            apis.setdefault(case.api.name, []).append(case)
    return apis


BY_API = by_api(lambda case: True)
FLEXIBLE = by_api(lambda case: case.version in case.api.flexible)
OLDEST_AND_NEWEST = by_api(lambda case: case.version in (case.api.versions.first, case.api.versions.last))
FIXED = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}


@dataclass
class Place:
    """Where a length or count stands in the bytes of a message."""

    kind: str  # "string", "bytes" (records too), "array"; "tags", "tag" and "tag size" in flexible versions
    start: int
    end: int
    nullable: bool = False
    in_tag: bool = False
    value_end: int = 0  # where what it counts ends


class Walk:
    """Reads a valid message by its notation, field by field, and notes where lengths and counts stand.

    Slow and plain on purpose: it shares nothing with the compiled decoders.
    """

    def __init__(self, case: Case, body: bytes) -> None:
        self.case, self.body, self.pos = case, memoryview(body), 0
        self.flexible = case.version in case.api.flexible
        self.places: list[Place] = []
        self.depth_of_tags = 0
        self.struct(case.message)
        assert self.pos == len(body)

    def struct(self, struct_spec: StructSpec) -> None:
        here = [spec for spec in struct_spec.fields if self.case.version in spec.versions]
        for spec in here:
            if spec.tag is None:
                self.value(spec)
        if self.flexible:
            tagged = {spec.tag: spec for spec in here if spec.tag is not None}
            count = self.uvarint("tags")
            place = self.places[-1]
            self.depth_of_tags += 1
            for _ in range(count):
                tag = self.uvarint("tag")
                self.uvarint("tag size")
                self.value(tagged[tag])
            self.depth_of_tags -= 1
            place.value_end = self.pos

    def value(self, spec: FieldSpec) -> None:
        nullable = self.case.version in spec.nullable
        if not spec.is_array:
            self.element(spec, nullable)
            return
        count = self.length("array", 4, nullable)
        place = self.places[-1]
        for _ in range(count):
            self.element(spec, False)
        place.value_end = self.pos

    def element(self, spec: FieldSpec, nullable: bool) -> None:
        if spec.type in FIXED:
            self.pos += FIXED[spec.type]
        elif spec.type in ("string", "bytes", "records"):
            kind, width = ("string", 2) if spec.type == "string" else ("bytes", 4)
            size = self.length(kind, width, nullable)
            self.pos += size
            self.places[-1].value_end = self.pos
        else:
            self.pos += nullable  # the byte that says whether there is a struct
            self.struct(self.case.api.structs[spec.type])

    def length(self, kind: str, width: int, nullable: bool) -> int:
        if self.flexible:
            size = self.uvarint(kind) - 1
        else:
            size = int.from_bytes(self.body[self.pos : self.pos + width], "big", signed=True)
            self.note(kind, self.pos + width)
        self.places[-1].nullable = nullable
        return size

    def uvarint(self, kind: str) -> int:
        value, end = read_uvarint(self.body, self.pos)
        self.note(kind, end)
        return value

    def note(self, kind: str, end: int) -> None:
        self.places.append(Place(kind, self.pos, end, in_tag=self.depth_of_tags > 0))
        self.pos = end

    def lengths(self) -> list[Place]:
        return [place for place in self.places if place.kind in ("string", "bytes", "array")]


def outcome(case: Case, body: bytes, *, as_view: bool = True) -> Message | BadFrame:
    """What decoding gives; any exception but BadFrame fails the test."""
    try:
        return case.decode(memoryview(body) if as_view else body)
    except BadFrame as error:
        return error
    except Exception as error:
        error.add_note(f"{case} given {body.hex()}")
        raise


def assert_bad(case: Case, body: bytes, because: str = "") -> None:
    got = outcome(case, body)
    assert isinstance(got, BadFrame), f"{case} took {body.hex()} for {got}"
    assert re.search(because, str(got)), f"{case} given {body.hex()}: {got}"


@pytest.mark.parametrize("api", BY_API)
def test_a_message_cut_short_at_any_byte_is_bad(api: str) -> None:
    for case in BY_API[api]:
        body = case.encode(filled(case))
        for size in range(len(body)):
            assert_bad(case, body[:size])


@pytest.mark.parametrize("api", BY_API)
def test_bytes_after_the_message_are_bad(api: str) -> None:
    for case in BY_API[api]:
        body = case.encode(filled(case))
        assert_bad(case, body + b"\0")
        assert_bad(case, body + bytes(range(100)))


@pytest.mark.parametrize("api", BY_API)
def test_a_length_that_promises_more_than_the_frame_has_is_bad(api: str) -> None:
    for case in BY_API[api]:
        body = case.encode(filled(case))
        flexible = case.version in case.api.flexible
        for place in Walk(case, body).lengths():
            for size in (len(body), 2**15 - 1, 2**16, 2**31 - 1):
                if flexible:
                    promise = write_uvarint(size + 1)
                elif place.kind == "string":
                    promise = struct.pack(">h", min(size, 2**15 - 1))
                else:
                    promise = struct.pack(">i", size)
                promised = body[: place.start] + promise + body[place.end :]
                # Noticed at the length itself, not when the bytes have run out.
                because = "more elements than bytes" if place.kind == "array" else "is longer than"
                assert_bad(case, promised, because)


@pytest.mark.parametrize("api", BY_API)
def test_a_negative_length_is_bad_unless_it_says_null(api: str) -> None:
    for case in BY_API[api]:
        body = case.encode(filled(case))
        flexible = case.version in case.api.flexible
        for place in Walk(case, body).lengths():
            before, after = body[: place.start], body[place.end :]
            if flexible:
                # None is negative here: 2^32 - 1 is what -2 would be; six bytes or 35 bits are too long.
                for promise in (
                    write_uvarint(2**32 - 1),
                    b"\xff\xff\xff\xff\xff\x01",
                    b"\xff\xff\xff\xff\x7f",
                ):
                    assert_bad(case, before + promise + after)
            else:
                width = place.end - place.start
                for size in (-2, -(2 ** (8 * width - 1))):
                    negative = size.to_bytes(width, "big", signed=True)
                    assert_bad(case, before + negative + after, "has a negative length")
                    assert_bad(case, before + negative + body[place.value_end :], "has a negative length")


@pytest.mark.parametrize("api", BY_API)
def test_null_is_taken_where_the_version_allows_it_and_nowhere_else(api: str) -> None:
    for case in BY_API[api]:
        body = case.encode(filled(case))
        for place in Walk(case, body).lengths():
            null = b"\0" if case.version in case.api.flexible else b"\xff" * (place.end - place.start)
            if not place.nullable:
                assert_bad(case, body[: place.start] + null + body[place.end :])
            elif not place.in_tag:  # there it would also change the size of the tag
                got = case.decode(body[: place.start] + null + body[place.value_end :])
                assert "None" in repr(got)


@pytest.mark.parametrize("api", BY_API)
def test_a_string_that_is_not_utf8_is_bad(api: str) -> None:
    for case in BY_API[api]:
        body = case.encode(filled(case, string="tö"))
        good = "tö".encode()
        assert body.count(good) == sum(place.kind == "string" for place in Walk(case, body).places)
        at = body.find(good)
        while at >= 0:
            assert_bad(case, body[:at] + b"t\xff\xfe" + body[at + len(good) :])
            at = body.find(good, at + 1)


@pytest.mark.parametrize("api", BY_API)
def test_any_byte_may_be_any_other(api: str) -> None:
    for case in BY_API[api]:
        body = bytearray(case.encode(filled(case)))
        for at, good in enumerate(body):
            for byte in (0, 1, 0x7F, 0x80, 0xFF, good ^ 1):
                body[at] = byte
                outcome(case, bytes(body))
            body[at] = good


@pytest.mark.parametrize("api", BY_API)
@settings(max_examples=100, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_damaged_message_is_a_message_or_bad(api: str, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(BY_API[api]))
    body = bytearray(case.encode(data.draw(messages(case))))
    rng = data.draw(st.randoms(use_true_random=True))
    for _ in range(20):
        damage(body, rng)
        outcome(case, bytes(body))


def damage(body: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(body) + 1)
    size = rng.choice((1, 1, 2, 4, 8))
    what = rng.choice((bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), rng.randbytes(size)))
    action = rng.randrange(3)
    if action == 0:
        body[at : at + size] = what
    elif action == 1:
        body[at:at] = what
    else:
        del body[at : at + size]


@pytest.mark.parametrize("api", BY_API)
@settings(max_examples=100, derandomize=True, deadline=None)
@given(body=st.binary(max_size=200), data=st.data())
def test_noise_is_a_message_or_bad(api: str, body: bytes, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(BY_API[api]))
    outcome(case, body)


@pytest.mark.parametrize("api", FLEXIBLE)
def test_unknown_tagged_fields_are_read_over_at_every_depth(api: str) -> None:
    for case in FLEXIBLE[api]:
        message = filled(case)
        body = case.encode(message)
        unknown = write_uvarint(5000) + write_uvarint(200) + bytes(200) + write_uvarint(5001) + b"\0"
        for place in Walk(case, body).places:
            if place.kind == "tags" and not place.in_tag:  # there it would also change the size of the tag
                more = write_uvarint(body[place.start] + 2)
                assert case.decode(body[: place.start] + more + unknown + body[place.end :]) == message


@pytest.mark.parametrize("api", FLEXIBLE)
def test_a_tag_that_comes_twice_is_taken_twice(api: str) -> None:
    for case in FLEXIBLE[api]:
        message = filled(case)
        body = case.encode(message)
        for place in Walk(case, body).places:
            if place.kind == "tags" and not place.in_tag:
                tags = body[place.end : place.value_end]
                more = write_uvarint(body[place.start] * 2)
                assert (
                    case.decode(body[: place.start] + more + tags + tags + body[place.value_end :]) == message
                )


@pytest.mark.parametrize("api", FLEXIBLE)
def test_a_tag_that_is_longer_than_the_frame_or_than_its_value_is_bad(api: str) -> None:
    for case in FLEXIBLE[api]:
        body = case.encode(filled(case))
        for place in Walk(case, body).places:
            if place.kind == "tag size":
                size, _ = read_uvarint(memoryview(body), place.start)
                for wrong in (0, size - 1, size + 1, len(body), 2**31 - 1, 2**32 - 1):
                    assert_bad(case, body[: place.start] + write_uvarint(wrong) + body[place.end :])
            elif place.kind == "tags":
                for count in (127, 2**31 - 1, 2**32 - 1):
                    assert_bad(case, body[: place.start] + write_uvarint(count) + body[place.end :])


def test_a_string_above_kafkas_limit_is_bad() -> None:
    """A compact length could say more than the classic one; Kafka takes 32767 bytes in both."""
    case = Case(12, 4, "request")  # Heartbeat
    assert_bad(case, case.encode(filled(case, string="g" * 32768)))


def needs_less_than(size: int, case: Case, body: bytes) -> bool:
    """Of memory. A thread that an earlier test left behind may take some of its own: then once more."""
    outcome(case, body)  # compiles the codec, which is not to be counted
    return any(peak_of(case, body) < size for _ in range(5))


def peak_of(case: Case, body: bytes) -> int:
    """The most memory that decoding held at one time, besides the frame: of a view it makes one copy as bytes."""
    tracemalloc.start()
    try:
        kept = outcome(case, body, as_view=False)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        del kept


@pytest.mark.parametrize("api", OLDEST_AND_NEWEST)
def test_a_promise_of_two_billion_costs_no_memory(api: str) -> None:
    for case in OLDEST_AND_NEWEST[api]:
        body = case.encode(filled(case))
        flexible = case.version in case.api.flexible
        for place in Walk(case, body).lengths():
            most = 2**15 - 1 if place.kind == "string" else 2**31 - 1
            promise = write_uvarint(2**31) if flexible else most.to_bytes(place.end - place.start, "big")
            # Much of it does come; nothing may be built before the promise is seen to be false.
            some = bytes(most * 2 // 3 if place.kind == "string" else 40_000)
            assert needs_less_than(16_384, case, body[: place.start] + promise + some)


@pytest.mark.parametrize("api", OLDEST_AND_NEWEST)
def test_memory_is_bounded_by_the_bytes_that_came(api: str) -> None:
    """Arrays whose elements do come, in as few bytes as elements can have."""
    for case in OLDEST_AND_NEWEST[api]:
        body = case.encode(filled(case, elements=(1, 1, 1), string="", blob=b""))
        flexible = case.version in case.api.flexible
        size = 8_000
        for place in Walk(case, body).lengths():
            if place.kind != "array":
                continue
            for count in (size, size // 2, size // 4, size // 8):
                promise = write_uvarint(count + 1) if flexible else struct.pack(">i", count)
                for filler in (bytes(size), b"\1" * size, b"\1\0" * (size // 2)):
                    frame = body[: place.start] + promise + filler
                    assert needs_less_than(64 * len(frame), case, frame)
