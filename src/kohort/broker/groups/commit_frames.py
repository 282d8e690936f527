"""Recognizes OffsetCommit requests that differ from an earlier one only in their offsets, instead of decoding them.

A consumer sends the same request again and again, except for the offsets. Bytes that came twice become a layout, which
takes the offsets out of the next such request with one call of `struct`, and compares the rest with one comparison. A
request that is not recognized is decoded the ordinary way. A layout is made with the ordinary codec, too.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

from kohort.wire.compiler.compile import Codec, codec
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from kohort.wire.template import int64_fields

KEY = 8
MOST_PARTITIONS = 1_000  # in one layout
MOST_IN_ALL = 100_000  # partitions in all layouts of a version: some 50 MB
MOST_SUSPECTED = 16 << 20  # bytes of requests that came once
LONGEST = 32 << 10  # bytes of a request


class FrameLayout:
    """The body of a request without its offsets. It takes over `message` and changes it."""

    __slots__ = ("count", "message", "pieces", "prepared", "size", "unpack", "used", "wait")

    def __init__(self, ordinary: Codec, message: OffsetCommitRequest, wait: int) -> None:
        zeros, ones = _encoded_with(0, message, ordinary), _encoded_with(-1, message, ordinary)
        fields = int64_fields(zeros, ones)
        self.message = message
        self.size = len(zeros)
        self.unpack = fields.unpack
        self.pieces = fields.unpack(zeros)[::2]
        self.count = len(self.pieces) - 1
        self.used = False
        self.wait = wait
        self.prepared: Any = None  # what the handler of OffsetCommit keeps with the layout

    def offsets_in(self, body: bytes) -> tuple[int, ...] | None:
        """Returns the offsets in a body; None if it differs in anything else."""
        if len(body) != self.size:
            return None
        values = self.unpack(body)
        return values[1::2] if values[::2] == self.pieces else None


def _encoded_with(offset: int, message: OffsetCommitRequest, ordinary: Codec) -> bytes:
    for topic in message.topics:
        for partition in topic.partitions:
            partition.committed_offset = offset
    return b"".join(ordinary.encode_request(message))


class LaidOutRequest:
    """A request that was recognized: a layout and its offsets."""

    __slots__ = ("layout", "offsets")

    def __init__(self, layout: FrameLayout, offsets: tuple[int, ...]) -> None:
        self.layout = layout
        self.offsets = offsets

    def message(self) -> OffsetCommitRequest:
        """Returns the message that the ordinary codec would decode."""
        message, offsets = copy(self.layout.message), iter(self.offsets)
        message.topics = [copy(topic) for topic in message.topics]
        for topic in message.topics:
            topic.partitions = [copy(partition) for partition in topic.partitions]
            for partition in topic.partitions:
                partition.committed_offset = next(offsets)
        return message


@dataclass(slots=True)
class Suspect:
    """A request that was not recognized. After `left` more that begin alike, a layout is tried."""

    body: bytes
    left: int
    wait: int


class CommitCodec(Codec):
    """The codec of OffsetCommit in a version; `decode_request` may return a LaidOutRequest."""

    def __init__(self, version: int) -> None:
        self._ordinary = ordinary = codec(KEY, version)
        super().__init__(ordinary._api, version)
        self._layouts: dict[bytes, FrameLayout] = {}
        self._in_all = 0
        self._suspects: dict[bytes, Suspect] = {}
        self._suspected = 0

    def decode_request(self, frame: memoryview, pos: int = 0, slack: int = 0) -> Any:
        body = bytes(frame[pos:])
        try:
            start = self._start(body)
        except IndexError:  # shorter than any request
            return self._ordinary.decode_request(body, 0, slack)
        layout = self._layouts.get(start)
        if layout is not None:
            offsets = layout.offsets_in(body)
            if offsets is not None:
                layout.used = True
                return LaidOutRequest(layout, offsets)
        message: Any = self._ordinary.decode_request(body, 0, slack)
        if len(body) > LONGEST:
            return message
        if layout is not None:
            self._outdated(start, body, layout)
            return message
        suspect = self._suspects.get(start)
        if suspect is None:
            self._suspect(start, Suspect(body, 0, 0))
        elif suspect.left:
            suspect.left -= 1
        else:
            self._try_layout(start, body, suspect)
        return message

    def _start(self, body: bytes) -> bytes:
        """Returns the bytes before the first offset, by which layouts are found.

        A length that takes more than one byte, which is rare, leads to other bytes. That does no harm, because
        a layout compares the whole request.
        """
        if self.flexible:
            at = body[0] + 4  # group id, generation
            at += body[at] or 1  # member id
            at += body[at] or 1  # instance id
            at += 1  # number of topics
            at += 16 if self.version >= 10 else body[at] or 1
            return body[: at + 5]  # number of partitions, index
        at = 6 + (body[0] << 8 | body[1])
        at += 2 + (body[at] << 8 | body[at + 1])
        if self.version >= 7:
            size = body[at] << 8 | body[at + 1]
            at += 2 if size == 0xFFFF else 2 + size
        elif self.version <= 4:
            at += 8  # retention time
        at += 4
        at += 2 + (body[at] << 8 | body[at + 1])
        return body[: at + 8]

    # --- making layouts ----------------------------------------------------------------------------

    def _suspect(self, start: bytes, suspect: Suspect) -> None:
        self._suspects[start] = suspect
        self._suspected += len(suspect.body)
        while self._suspected > MOST_SUSPECTED:
            self._clear(next(iter(self._suspects)))

    def _clear(self, start: bytes) -> None:
        self._suspected -= len(self._suspects.pop(start).body)

    def _outdated(self, start: bytes, body: bytes, layout: FrameLayout) -> None:
        """Drops a layout, because a request begins like it and continues differently."""
        del self._layouts[start]
        self._in_all -= layout.count
        wait = 0 if layout.used else _longer(layout.wait)
        self._suspect(start, Suspect(body, wait, wait))

    def _try_layout(self, start: bytes, body: bytes, suspect: Suspect) -> None:
        """Makes a layout if it fits the request that came before, too.

        Requests that continue differently each time (metadata that changes with each commit, partitions in any order)
        are tried more and more rarely.
        """
        self._clear(start)
        message: Any = self._ordinary.decode_request(body)
        layout = FrameLayout(self._ordinary, message, suspect.wait)
        same = layout.offsets_in(body) is not None and layout.offsets_in(suspect.body) is not None
        if same and self._has_room(layout):
            self._layouts[start] = layout
            self._in_all += layout.count
        else:
            wait = _longer(suspect.wait)
            self._suspect(start, Suspect(body, wait, wait))

    def _has_room(self, layout: FrameLayout) -> bool:
        """Tells whether a layout may be added; layouts that were used lately are kept, others are dropped for it."""
        while self._in_all + layout.count > MOST_IN_ALL:
            start = next(iter(self._layouts))
            oldest = self._layouts.pop(start)
            if oldest.used:
                oldest.used = False
                self._layouts[start] = oldest
                return False
            self._in_all -= oldest.count
        return 0 < layout.count <= MOST_PARTITIONS


def _longer(wait: int) -> int:
    return min(2 * wait + 1, 1023)
