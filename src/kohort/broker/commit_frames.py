"""OffsetCommit requests that are recognized instead of decoded.

A consumer sends the same request again and again, but for the offsets. Bytes that came twice become a layout, which
takes the offsets out of the next such request with one call of `struct`, and compares all else with one comparison.
Whatever is not recognized takes the ordinary way, which also is what a layout is made with.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kohort.wire.compile import Codec, codec
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from kohort.wire.template import int64_fields

if TYPE_CHECKING:
    from kohort.broker.group_offsets import PreparedCommit

KEY = 8
MOST_PARTITIONS = 1_000  # in one layout
MOST_IN_ALL = 100_000  # partitions in all layouts of a version: some 50 MB
MOST_SUSPECTS = 4_096
LONGEST_START = 1_024


class FrameLayout:
    """The body of a request, without its offsets."""

    __slots__ = ("count", "message", "pieces", "prepared", "size", "unpack", "used", "wait")

    def __init__(self, ordinary: Codec, message: OffsetCommitRequest, wait: int) -> None:
        zeros, ones = (b"".join(ordinary.encode_request(_with_offsets(message, n))) for n in (0, -1))
        fields = int64_fields(zeros, ones)
        self.message = message
        self.size = len(zeros)
        self.unpack = fields.unpack
        self.pieces = fields.unpack(zeros)[::2]
        self.count = len(self.pieces) - 1
        self.used = False
        self.wait = wait
        self.prepared: PreparedCommit | None = None

    def offsets_in(self, body: bytes) -> tuple[int, ...] | None:
        """None if this is another request."""
        if len(body) != self.size:
            return None
        values = self.unpack(body)
        return values[1::2] if values[::2] == self.pieces else None


def _with_offsets(message: OffsetCommitRequest, *offsets: int) -> OffsetCommitRequest:
    """A request with other offsets: one for each partition, or one for all."""
    changed, number = copy(message), 0
    changed.topics = [copy(topic) for topic in message.topics]
    for topic in changed.topics:
        topic.partitions = [copy(partition) for partition in topic.partitions]
        for partition in topic.partitions:
            partition.committed_offset = offsets[number % len(offsets)]
            number += 1
    return changed


class LaidOutRequest:
    """A request in a layout. Who asks for a field of the message gets it."""

    __slots__ = ("_message", "layout", "offsets")

    def __init__(self, layout: FrameLayout, offsets: tuple[int, ...]) -> None:
        self.layout = layout
        self.offsets = offsets

    def message(self) -> OffsetCommitRequest:
        return _with_offsets(self.layout.message, *self.offsets)

    def __getattr__(self, name: str) -> Any:
        if name == "_message":
            self._message = self.message()
            return self._message
        return getattr(self._message, name)


@dataclass(slots=True)
class Suspect:
    """The beginning of a request that came before. After `left` more of them a layout is made."""

    left: int
    wait: int


class CommitCodec(Codec):
    """The codec of OffsetCommit in a version: `decode_request` may give a LaidOutRequest."""

    def __init__(self, version: int) -> None:
        self._ordinary = ordinary = codec(KEY, version)
        super().__init__(ordinary._api, version)
        self._layouts: dict[bytes, FrameLayout] = {}
        self._in_all = 0
        self._suspects: dict[bytes, Suspect] = {}

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
        self._not_recognized(start, body, message, layout)
        return message

    def _start(self, body: bytes) -> bytes:
        """What comes before the first offset; of lengths that no client sends something else, with no harm."""
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

    def _not_recognized(
        self, start: bytes, body: bytes, message: OffsetCommitRequest, layout: FrameLayout | None
    ) -> None:
        """Makes a layout of what came twice. What begins the same and goes on in another way each time

        (metadata that changes with each commit, partitions in any order) is tried ever more seldom.
        """
        suspects = self._suspects
        if layout is not None:
            del self._layouts[start]
            self._in_all -= layout.count
            wait = 0 if layout.used else min(2 * layout.wait + 1, 1023)
            suspects[start] = Suspect(wait, wait)
            return
        suspect = suspects.get(start)
        if suspect is None:
            if len(start) <= LONGEST_START:
                if len(suspects) >= MOST_SUSPECTS:
                    del suspects[next(iter(suspects))]
                suspects[start] = Suspect(0, 0)
        elif suspect.left:
            suspect.left -= 1
        elif self._may_be_kept(message):
            del suspects[start]
            layout = FrameLayout(self._ordinary, message, suspect.wait)
            if layout.offsets_in(body) is not None:  # else it has fields that we do not know
                self._layouts[start] = layout
                self._in_all += layout.count

    def _may_be_kept(self, message: OffsetCommitRequest) -> bool:
        """Whether there is room. Who was recognized lately stays; a newcomer waits until somebody was not."""
        count = sum(len(topic.partitions) for topic in message.topics)
        if not 0 < count <= MOST_PARTITIONS:
            return False
        while self._in_all + count > MOST_IN_ALL:
            start = next(iter(self._layouts))
            oldest = self._layouts.pop(start)
            if oldest.used:
                oldest.used = False
                self._layouts[start] = oldest
                return False
            self._in_all -= oldest.count
        return True
