"""Encodes Fetch answers without making messages: one `struct` call per partition.

The codec of `wire` makes an object for each partition and visits each of its fields. This module writes the same bytes;
tests/broker/test_fetch_answers.py compares them in every version. Answers with a diverging epoch or with aborted
transactions, which are rare, are left to the codec.
"""

from __future__ import annotations

import errno
from functools import cache
from operator import itemgetter
from struct import Struct
from typing import TypeAlias

from kohort.broker.call import release
from kohort.broker.fetch_sessions import Wanted
from kohort.log.storage.files import Slice
from kohort.wire.compiler.compile import Chunk, Codec, codec
from kohort.wire.errors import ErrorCode
from kohort.wire.frame import response_chunks
from kohort.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kohort.wire.struct import Message
from kohort.wire.varint import uvarint_bytes

NOTHING = b""
NOT_HERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_NOT_READ = (*NOT_HERE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

# One partition: what was asked for, error code, high watermark, last stable offset, log start offset, records, and what
# is rare: where the logs diverge, or the transactions that were aborted.
Rare: TypeAlias = EpochEndOffset | list[AbortedTransaction]
PartitionAnswer: TypeAlias = tuple[Wanted, int, int, int, int, Slice | bytes, Rare | None]

# Few bytes of records are copied and sent with the head by one `write`: sendfile would be one more system call and one
# more packet, and a third for what follows it since v12. Copies stay in memory until they are sent, hence the limit.
COPIED_BYTES = 32 * 1024

_FETCH = 1
_INT32 = Struct(">i").pack
_rare = itemgetter(6)


class Layout:
    """Writes the answers of one version."""

    __slots__ = ("_aborted", "_empty", "_flexible", "_head", "_part", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._flexible = flexible = version >= 12
        self._aborted = (0, 1) if flexible else (-1, 0)  # aborted transactions: null, none
        # length, correlation id, (no tags), throttle time, (no error, session id), (number of topics)
        self._head = Struct(">iibihi" if flexible else ">iiihii" if version >= 7 else ">iiii").pack
        # index, error, high watermark, last stable offset, (log start), aborted, (preferred replica), (size of records)
        part = ">ihqqq" if version >= 5 else ">ihqq"
        self._part = Struct(part + ("bi" if flexible else "iii" if version >= 11 else "ii")).pack
        self._empty = Struct(part + "bi2s").pack  # of a flexible version: with no records, and no tags

    def frame(
        self, correlation_id: int, session_id: int, answers: list[PartitionAnswer], read_committed: bool
    ) -> list[Chunk]:
        """Returns a whole answer: bytes and, between them, views and slices of files. The slices' files are pinned."""
        if any(map(_rare, answers)):
            return self._frame_by_codec(correlation_id, session_id, answers, read_committed)
        chunks: list[Chunk] = []
        try:
            topics = self._add_topics(chunks, answers, read_committed)
        except OSError:
            release(chunks)
            raise
        size = sum(map(len, chunks))
        if self._flexible:
            count = uvarint_bytes(topics + 1)
            head = self._head(15 + len(count) + size, correlation_id, 0, 0, 0, session_id) + count
        elif self._version >= 7:
            head = self._head(18 + size, correlation_id, 0, 0, session_id, topics)
        else:
            head = self._head(12 + size, correlation_id, 0, topics)
        chunks[0] = head + chunks[0]
        return chunks

    def _add_topics(self, chunks: list[Chunk], answers: list[PartitionAnswer], read_committed: bool) -> int:
        """Adds all that follows the number of topics, and returns that number: bytes, then slices and bytes in turn."""
        version, flexible, part = self._version, self._flexible, self._part
        null, none = self._aborted
        aborted = none if read_committed else null
        run: list[bytes | memoryview] = []  # bytes that are not in `chunks` yet
        room = COPIED_BYTES
        topics = self._by_topic(answers)
        for name, group in topics.items():
            self._begin_topic(run, name, len(group))
            for wanted, error, end, stable, start, records, _ in group:
                size, index = len(records), wanted.key[2]
                # Kafka sends an empty list for what it did not try to read; for other errors what it sends without.
                told = none if error and error in _NOT_READ else aborted
                if flexible:
                    if not size:
                        run.append(self._empty(index, error, end, stable, start, told, -1, b"\1\0"))
                        continue
                    run += (part(index, error, end, stable, start, told, -1), uvarint_bytes(size + 1))
                elif version >= 11:
                    run.append(part(index, error, end, stable, start, told, -1, size))
                elif version >= 5:
                    run.append(part(index, error, end, stable, start, told, size))
                else:
                    run.append(part(index, error, end, stable, told, size))
                if size > room and isinstance(records, Slice) and records.file.may_be_pinned:
                    records.file.pin()
                    chunks += (b"".join(run), records)
                    run = []
                elif size:
                    run += _copy(records)
                    room -= size
                if flexible:
                    run.append(b"\0")
            if flexible:
                run.append(b"\0")
        if flexible:
            run.append(b"\0")
        if run or not chunks:
            chunks.append(b"".join(run))
        return len(topics)

    def _by_topic(self, answers: list[PartitionAnswer]) -> dict[str | bytes, list[PartitionAnswer]]:
        by_id = self._version >= 13
        topics: dict[str | bytes, list[PartitionAnswer]] = {}
        for answer in answers:
            key = answer[0].key
            name = key[1] if by_id else key[0]
            group = topics.get(name)
            if group is None:
                group = topics[name] = []
            group.append(answer)
        return topics

    def _begin_topic(self, run: list[bytes | memoryview], name: str | bytes, partitions: int) -> None:
        if isinstance(name, bytes):
            run += (name, uvarint_bytes(partitions + 1))
            return
        raw = name.encode()
        if self._flexible:
            run += (uvarint_bytes(len(raw) + 1), raw, uvarint_bytes(partitions + 1))
        else:
            run += (len(raw).to_bytes(2, "big"), raw, _INT32(partitions))

    def _frame_by_codec(
        self, correlation_id: int, session_id: int, answers: list[PartitionAnswer], read_committed: bool
    ) -> list[Chunk]:
        response = response_of(session_id, answers, read_committed)
        return pinned_frame(codec(_FETCH, self._version), correlation_id, response)


layout = cache(Layout)


def pinned_frame(codec_: Codec, correlation_id: int, response: Message) -> list[Chunk]:
    """Returns an answer whose records are slices of files: bytes, and slices whose files are pinned."""
    chunks = response_chunks(codec_, correlation_id, codec_.encode_response(response))
    pinned: list[Chunk] = []
    try:
        for number, chunk in enumerate(chunks):
            if isinstance(chunk, Slice) and len(chunk) > COPIED_BYTES and chunk.file.may_be_pinned:
                chunk.file.pin()
                pinned.append(chunk)
            elif isinstance(chunk, Slice):
                chunks[number] = b"".join(_copy(chunk))
    except OSError:
        release(pinned)
        raise
    return chunks


def response_of(session_id: int, answers: list[PartitionAnswer], read_committed: bool) -> FetchResponse:
    """Returns the same answer as a message."""
    response = FetchResponse(session_id=session_id)
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for wanted, error, end, stable, start, records, rare in answers:
        name = wanted.key[:2]
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchableTopicResponse(*name)
            response.responses.append(topic)
        data = PartitionData(wanted.key.partition, error, end, stable, start, records=records)
        if read_committed or error in _NOT_READ:
            data.aborted_transactions = rare if isinstance(rare, list) else []
        if isinstance(rare, EpochEndOffset):
            data.diverging_epoch = rare
        topic.partitions.append(data)
    return response


def _copy(records: Slice | bytes) -> list[bytes | memoryview]:
    if not isinstance(records, Slice):
        return [records]
    pieces = records.chunks()
    if sum(map(len, pieces)) != records.length:
        raise OSError(
            errno.EIO, "the file ends before the bytes that were to be sent from it", records.file.path
        )
    return pieces
