"""The bytes of Fetch answers: what is written by hand is what the codec writes, in every version."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.apis.fetch_answers import COPIED_BYTES, layout, response_of
from kohort.broker.apis.table import TABLE
from kohort.broker.call import release
from kohort.broker.fetch_sessions import Key, Wanted
from kohort.log.storage.files import DiskDirectory, File, FilePool, Slice
from kohort.log.storage.memory import MemoryDirectory
from kohort.wire.errors import ErrorCode
from kohort.wire.frame import response_chunks
from kohort.wire.messages.fetch import AbortedTransaction, EpochEndOffset

VERSIONS = range(TABLE[1].first, TABLE[1].last + 1)
CONTENT = os.urandom(4 * COPIED_BYTES)

offsets = st.integers(-1, 2**63 - 1)
topics = st.sampled_from([("orders", b"\1" * 16), ("größe-" + "x" * 200, b"\2" * 16), ("t", b"\3" * 16)])
errors = st.sampled_from([0, 0, 0, *ErrorCode])
sizes = st.integers(0, 300) | st.sampled_from([COPIED_BYTES - 1, COPIED_BYTES, COPIED_BYTES + 1, 99_999])
diverging = st.builds(EpochEndOffset, st.integers(0, 9), st.integers(0, 9))
aborted = st.lists(st.builds(AbortedTransaction, offsets, offsets), min_size=1, max_size=3)
rare = st.none() | st.none() | diverging | aborted
partitions = st.tuples(topics, st.integers(0, 2**31 - 1), errors, offsets, offsets, offsets, sizes, rare)


@pytest.fixture(scope="module", params=["disk", "memory"])
def file(request, tmp_path_factory):
    directory = (
        DiskDirectory(tmp_path_factory.mktemp("log")) if request.param == "disk" else MemoryDirectory()
    )
    opened = directory.open("a.log")
    for at in range(0, len(CONTENT), 10_000):
        opened.append(CONTENT[at : at + 10_000])
    yield opened
    opened.close()


def bytes_of(chunks: list) -> bytes:
    return b"".join(b"".join(c.chunks()) if isinstance(c, Slice) else c for c in chunks)


def answers_in(file: File, version: int, drawn: list) -> list:
    answers = []
    for (name, topic_id), index, error, end, stable, start, size, told in drawn:
        # as requests name topics: by name before v13, by id since
        key = Key("", topic_id, index) if version >= 13 else Key(name, bytes(16), index)
        records = Slice(file, index % 1000, size) if size else b""
        told = None if isinstance(told, EpochEndOffset) and version < 12 else told
        answers.append((Wanted(key), error, end, stable, start, records, told))
    return answers


@pytest.mark.parametrize("version", VERSIONS)
@settings(deadline=None)
@given(st.lists(partitions, max_size=6), st.integers(0, 2**31 - 1), st.booleans())
def test_the_bytes_are_those_of_the_codec(file, version, drawn, session_id, read_committed):
    answers = answers_in(file, version, drawn)
    frame = layout(version).frame(77, session_id, answers, read_committed)
    codec = TABLE[1].codec(version)
    message = response_of(session_id, answers, read_committed)
    assert bytes_of(frame) == bytes_of(response_chunks(codec, 77, codec.encode_response(message)))
    release(frame)
    assert not file.is_pinned


def test_records_that_are_few_leave_with_the_head_and_pin_no_file(file):
    few, many = answers_in(
        file, 17, [(("t", b"t" * 16), 0, 0, 1, 1, 0, size, None) for size in (100, 50_000)]
    )
    assert [type(chunk) for chunk in layout(17).frame(1, 0, [few], False)] == [bytes]
    assert not file.is_pinned
    frame = layout(17).frame(1, 0, [few, many, few], False)
    assert [type(chunk) for chunk in frame] == [bytes, Slice, bytes]
    release(frame)


def test_what_is_copied_into_one_answer_has_a_limit(file):
    each = COPIED_BYTES // 4
    answers = answers_in(file, 11, [(("t", bytes(16)), i, 0, 1, 1, 0, each, None) for i in range(20)])
    frame = layout(11).frame(1, 0, answers, False)
    assert sum(isinstance(chunk, Slice) for chunk in frame) == 16
    release(frame)


@pytest.mark.parametrize("parted", [None, EpochEndOffset(1, 2)], ids=["by hand", "by the codec"])
def test_no_more_files_are_pinned_than_the_pool_may_have_open(tmp_path, parted):
    """An answer of thousands of partitions must not take the descriptors that connections and the log need."""
    pool = FilePool(4)
    directory, answers = DiskDirectory(tmp_path, pool), []
    for index in range(10):
        file = directory.open(f"{index}.log")
        file.append(CONTENT)
        answers += answers_in(file, 12, [(("t", bytes(16)), index, 0, 1, 1, 0, COPIED_BYTES + 1, parted)])
    frame = layout(12).frame(1, 0, answers, False)
    assert sum(isinstance(chunk, Slice) for chunk in frame) == pool.pinned == 4
    codec, message = TABLE[1].codec(12), response_of(0, answers, False)
    assert bytes_of(frame) == bytes_of(response_chunks(codec, 1, codec.encode_response(message)))
    release(frame)
    assert pool.pinned == 0
    pool.close()


def test_a_file_that_ends_too_early_fails_and_leaves_nothing_pinned(tmp_path):
    file = DiskDirectory(tmp_path).open("a.log")
    file.append(CONTENT)
    drawn = [(("t", bytes(16)), 0, 0, 1, 1, 0, size, None) for size in (COPIED_BYTES + 1, 100)]
    answers = answers_in(file, 11, drawn)
    os.truncate(file.path, 50)
    with pytest.raises(OSError, match="ends before the bytes"):
        layout(11).frame(1, 0, answers, False)
    assert not file.is_pinned
    file.close()
