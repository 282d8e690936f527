"""A connection that counts its requests, for a broker whose metrics are served.

Only this class counts: a broker without metrics uses `Connection`. Each request costs two readings of the clock and
some additions. `benchmarks/metrics.py` measures what that is of the broker's CPU.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from kohort.broker.call import Call
from kohort.broker.listeners import Address
from kohort.broker.net.connection import Connection
from kohort.broker.request_meter import BOUNDS_S, SHORTEST_S

if TYPE_CHECKING:
    from kohort.broker.net.server import Server

log = logging.getLogger("kohort.broker")

_HEAD = struct.Struct(">ih").unpack_from  # the size of a frame, the key of its API
_handle_frames = Connection._consume


class MeteredConnection(Connection):
    """As `Connection`. A request takes from when its frame is complete until its answer goes to the socket.

    Requests that are answered at once, as most are, have begun at `last_active`. When others are left, `_marks` has
    the beginning of each, in the order of `_calls`. If all requests of a read are of one API and answered at once,
    their bytes are those that have arrived.
    """

    def __init__(self, server: Server, told: Address | None) -> None:
        super().__init__(server, told)
        meter = server.broker.meter
        assert meter is not None, "a metered connection belongs to a metered broker"
        self._meter = meter
        self._apis = meter.requests.apis
        self._marks: deque[float] = deque()
        self._arrived = 0  # bytes in the shared buffer that are not counted yet

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self._closing:
            self._meter.connections_refused += 1
        else:
            self._meter.connections_opened += 1

    def buffer_updated(self, nbytes: int) -> None:
        """As that of `Connection`, which reads the clock too: so the beginning of a request is known for nothing."""
        self.last_active = monotonic()
        if self._own is not None:
            self._filled += nbytes
            self._consume_own()
            return
        self._arrived = nbytes
        data = self._server.scratch[:nbytes]
        used = _handle_frames(self, data)
        if self._arrived:
            self._count(data[:used])
        if used < nbytes:
            if not self._arrived:
                self._apis[_HEAD(data)[1]].request_bytes -= nbytes - used
            if not self._closing:
                self._keep(data[used:])

    def _consume(self, data: memoryview) -> int:
        """Handles frames that came in pieces or had to wait."""
        self.last_active, self._arrived = monotonic(), 0
        used = _handle_frames(self, data)
        self._count(data[:used])
        return used

    def _count(self, frames: memoryview) -> None:
        """Counts the bytes of requests one by one, and notes when those began that are not answered yet."""
        missing = len(self._calls) - len(self._marks)
        if missing:
            self._marks.extend([self.last_active] * missing)
        position, apis = 0, self._apis
        while position + 6 <= len(frames):
            size, key = _HEAD(frames, position)
            if 0 <= key < len(apis):  # a raw token of SASL has no key
                apis[key].request_bytes += size + 4
            position += size + 4

    def _flush(self) -> None:
        calls, outbox = self._calls, self._outbox
        try:
            if calls and (chunks := calls[0].chunks) is not None:
                if len(calls) == 1 and len(chunks) == 1 and not self._marks:
                    codec = calls.popleft().codec
                    api = codec.kept or self._apis[codec.api_key]
                    took = monotonic() - self.last_active
                    if took <= SHORTEST_S:
                        api.quick += 1
                    else:
                        api.buckets[bisect_left(BOUNDS_S, took)] += 1
                    api.seconds += took
                    api.request_bytes += self._arrived
                    self._arrived = 0
                    api.response_bytes += len(chunks[0])
                    outbox.add(chunks)
                else:
                    self._take_answers()
            outbox.flush()
        except OSError as error:
            self._went_away(error)

    def _take_answers(self) -> None:
        """Counts and queues the answers that are ready, up to the first that is not.

        Requests of one API that came in one read, as those of producers do, are counted together.
        """
        calls, marks, add, now = self._calls, self._marks, self._outbox.add, monotonic()
        begun = marks[0] if marks else self.last_active
        codec, count, size, is_one_api = calls[0].codec, 0, 0, not marks
        while calls and (chunks := calls[0].chunks) is not None:
            call, began = calls.popleft(), marks.popleft() if marks else self.last_active
            if call.codec is not codec or began != begun:
                self._apis[codec.api_key].add(count, now - begun, size)
                is_one_api = is_one_api and call.codec is codec
                codec, begun, count, size = call.codec, began, 0, 0
            count += 1
            for chunk in chunks:
                size += len(chunk)
            add(chunks)
        api = self._apis[codec.api_key]
        api.add(count, now - begun, size)
        if is_one_api and not calls:
            api.request_bytes += self._arrived
            self._arrived = 0

    def failed(self, call: Call, errors: Sequence[int]) -> None:
        self._apis[call.codec.api_key].errors.update(errors)
