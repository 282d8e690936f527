"""Serves one client: reads frames, calls handlers, and sends the answers in the order of the requests.

Reading: small requests are parsed where they arrive, in one buffer that all connections share (the loop reads one
socket at a time). Only a frame that is not complete yet is kept in a buffer of the connection's own, which grows with
the bytes that have arrived, never with the length that a frame announces.

Order: each request gets its position in `_calls`; an answer is sent when all before it have been. A parked call (a
long poll) stops the reading, as in Kafka; a Produce that waits for the disk does not, so that one sync serves all that
a client has sent. While a client does not read its answers, nothing more is read from it. A client that has exceeded
a quota gets its answer and is not read for a time: the connection is muted.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from kohort.broker.api_row import TOO_MANY_BYTES, unsupported_version
from kohort.broker.call import Call, release
from kohort.broker.listeners import Address
from kohort.broker.missing import api_of
from kohort.broker.net.hosts import host_of
from kohort.broker.net.outbox import Outbox
from kohort.loopback import send_at_once
from kohort.security.acls import ANONYMOUS
from kohort.security.authorizer import NOTHING_GRANTED
from kohort.wire.compiler.compile import codec
from kohort.wire.errors import BadFrame
from kohort.wire.frame import body_of, read_request_header, response_chunks
from kohort.wire.messages.api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from kohort.broker.net.server import Server

log = logging.getLogger("kohort.broker")

_API_VERSIONS = ApiVersionsResponse.API_KEY
_LENGTH = struct.Struct(">i").unpack_from
_FIRST_BUFFER = 64 * 1024
_MOST_TRUSTED = 1024 * 1024
SPARE_BYTES = 1024 * 1024  # of the buffers for large frames that all connections share
MOST_SPARES = 8
_MOST_CALLS = 1024  # requests that wait for the disk on one connection
_TLS_HELLOS = frozenset(
    {0x160300, 0x160301, 0x160302, 0x160303}
)  # how TLS begins; read as a size it is 369 MB


class _NotThere(Exception):
    """Raised for an API that Kafka has and Kohort has not: its name, the feature, the client's id."""


class WrongFrameSize(BadFrame):
    """Raised for a frame that is too long, or whose length is negative."""


class Mute:
    """Keeps a connection from being read for a time, as a parked call does; the answers still leave."""

    __slots__ = ("_connection", "_deadline", "_timer", "on_stop")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.on_stop = self.on_close  # nothing has to be answered

    def last(self, seconds: float) -> None:
        """Lasts so long from now on, if that is longer than it would last already."""
        loop = self._connection.loop
        deadline = loop.time() + seconds
        if deadline > self._deadline:
            self.on_close()
            self._deadline, self._timer = deadline, loop.call_at(deadline, self._connection.unmute)

    def on_close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connection(asyncio.BufferedProtocol):
    """The connection of one client."""

    is_authenticated = True  # who is not known on a listener without SASL is User:ANONYMOUS

    def __init__(self, server: Server, told: Address | None) -> None:
        self._server = server
        # Where this node is, for clients of this listener; None if it is not advertised to them.
        self.told = told
        self._broker = server.broker
        self._rows = server.table
        self._max_bytes = server.broker.config.socket_request_max_bytes
        self._calls: deque[Call] = deque()
        self._parked: Call | Mute | None = None  # what keeps it from being read
        self._mute: Mute | None = None  # is parked when nothing else is
        self._own: bytearray | None = None  # an incomplete frame, or what arrived while reading was paused
        self._filled = 0
        self._trusted = _FIRST_BUFFER  # the size of the largest frame that has arrived, up to a limit
        self._consuming = False
        self._flush_scheduled = False
        self._closing = False
        self._paused = False
        self._at_end = False
        self.answers_at_end = True  # a client that sends no more still gets its answers, as in Kafka
        self.peer = "?"
        self.address = ""
        self._principal = ANONYMOUS
        self.granted: AbstractSet[object] = NOTHING_GRANTED
        self.last_active = self.begun_s = 0.0

    # --- what the event loop calls -----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self.loop = self._server.loop
        self.last_active = self.begun_s = self.loop.time()
        peer = transport.get_extra_info("peername")
        # A socket for all interfaces shows IPv4 addresses as IPv6 ones.
        host = peer[0].removeprefix("::ffff:") if peer else ""
        self.peer = str(Address(host, peer[1])) if peer else "?"
        sock = transport.get_extra_info("socket")
        send_at_once(sock)
        outbox_of = transport.get_extra_info("outbox_of")  # TLS writes in its own way
        self._outbox: Outbox = (outbox_of or Outbox)(self.loop, sock.fileno(), self._on_drained)
        address, quotas = host_of(peer), self._broker.quotas
        hold_ms = 0 if quotas is None else quotas.hold_ms(address)
        if not self._server.admit(self, address):
            self._closing = True
            transport.abort()
        elif hold_ms:
            self._hold(hold_ms)

    def _hold(self, ms: int) -> None:
        """Closes later what comes too fast, and reads nothing, so that its client does not try again at once."""
        self._closing = True
        self._pause()
        self.loop.call_later(ms / 1000, self._transport.abort)

    @property
    def principal(self) -> str:
        """Who the client is."""
        return self._principal

    @principal.setter
    def principal(self, principal: str) -> None:
        self._principal = principal
        self.granted = NOTHING_GRANTED  # that was another's

    def is_in_handshake(self) -> None:
        """Hears from a transport with TLS that `secured` comes later, if the client goes through with it."""
        if not self._closing:
            self._server.admission.is_unknown(self)

    def secured(self, principal: str) -> None:
        """Hears from a transport with TLS that the handshake is done, and who the client is by its certificate."""
        self.principal = principal
        self._server.admission.is_known(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._outbox.drop()
        mute, self._mute = self._mute, None
        if mute is not None:
            mute.on_close()
        parked, self._parked = self._parked, None
        if parked is not None and parked.on_close is not None:
            parked.on_close()
        for call in self._calls:
            release(call.chunks or ())
        self._calls.clear()
        self._give_back()
        if self._server.broker.has_shares:
            self._server.broker.shares.connection_lost(self)
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._own is None:
            return self._server.scratch
        return memoryview(self._own)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self.loop.time()
        if self._own is None:
            data = self._server.scratch[:nbytes]
            used = self._consume(data)
            if used < nbytes and not self._closing:
                self._keep(data[used:])
        else:
            self._filled += nbytes
            self._consume_own()

    def eof_received(self) -> bool:
        self._at_end = True
        return self.answers_at_end and not self.is_idle

    # --- frames ------------------------------------------------------------------------------------

    def _consume_own(self) -> None:
        """Handles the frames that are complete in the connection's own buffer."""
        own = self._own
        assert own is not None
        view = memoryview(own)
        used = self._consume(view[: self._filled])
        if self._closing:
            return
        rest = self._filled - used
        if rest == 0:
            self._give_back()
            return
        if used:
            view[:rest] = view[used : self._filled]
            self._filled = rest
        self._make_room()

    def _keep(self, data: memoryview) -> None:
        """Moves what is left in the shared buffer to a buffer of the connection's own."""
        size, wanted = len(data), self._frame_size(data)
        spares = self._server.spares
        if wanted > _FIRST_BUFFER and size < SPARE_BYTES and spares:
            self._own = spares.pop()
        else:
            self._own = bytearray(max(min(wanted, self._trusted), size + 1))
        self._own[:size] = data
        self._filled = size

    def _give_back(self) -> None:
        """Reads into the shared buffer again, because no frame is incomplete any more."""
        own, spares = self._own, self._server.spares
        if own is not None and len(own) == SPARE_BYTES and len(spares) < MOST_SPARES:
            spares.append(own)
        self._own = None
        self._filled = 0

    def _make_room(self) -> None:
        """Doubles the buffer of an incomplete frame once it is full: an announced length alone allocates nothing."""
        own = self._own
        assert own is not None
        wanted = self._frame_size(memoryview(own)[: self._filled])
        if self._filled == len(own) and wanted > self._filled:
            filled = self._filled
            self._give_back()
            self._own, self._filled = bytearray(min(wanted, 2 * len(own))), filled
            self._own[:filled] = own

    @staticmethod
    def _frame_size(data: memoryview) -> int:
        return 4 + int(_LENGTH(data)[0]) if len(data) >= 4 else 4

    def _is_blocked(self) -> bool:
        return self._parked is not None or self._outbox.is_waiting or len(self._calls) >= _MOST_CALLS

    def _consume(self, data: memoryview) -> int:
        """Handles the complete frames at the beginning of `data`, and returns how many bytes they took."""
        position, end = 0, len(data)
        self._consuming = True
        try:
            while end - position >= 4 and not self._is_blocked() and not self._closing:
                (size,) = _LENGTH(data, position)
                if not 0 <= size <= self._max_bytes:
                    raise WrongFrameSize(self._wrong_size(size))
                stop = position + 4 + size
                if stop > end:
                    break
                self._handle(data[position + 4 : stop])
                position = stop
                if size >= self._trusted < _MOST_TRUSTED:
                    self._trusted = min(size + 4, _MOST_TRUSTED)
        except _NotThere as error:
            api, feature, client_id = error.args
            now_ms = self._broker.clock.steady_ms()
            self._broker.missing.tell(feature, api, client_id, self.peer, now_ms)
            self._close_after_answers()
        except BadFrame as error:
            self._refuse_frame(error)
        except Exception:
            log.exception("closing the connection of %s: a request could not be handled", self.peer)
            self._close_after_answers()
        self._consuming = False
        self._flush()
        # During a long poll the socket is read until something comes, so that a reset of the connection is noticed.
        if not self._closing and self._is_blocked() and (position < end or self._parked is None):
            self._pause()
        return position

    def _refuse_frame(self, error: BadFrame) -> None:
        """Closes after a frame that is not taken."""
        self.close_because(str(error))

    def _wrong_size(self, size: int) -> str:
        """Says what is wrong with the announced size of a frame."""
        text = f"a frame of {size} bytes; socket.request.max.bytes is {self._max_bytes}"
        if size >> 8 in _TLS_HELLOS:
            text += (
                ". It is probably the beginning of TLS, which this listener does not speak: set the client's "
                "security.protocol to that of the listener, PLAINTEXT or SASL_PLAINTEXT"
            )
        return text

    def _handle(self, frame: memoryview) -> None:
        api_key, version, correlation_id, client_id, body = read_request_header(frame)
        row = self._rows.get(api_key)
        if row is None or not row.first <= version <= row.last:
            if api_key == _API_VERSIONS:
                self._answer_unknown_api_versions(correlation_id)
                return
            missing = api_of(api_key) if row is None else None
            if missing is not None:
                raise _NotThere(*missing, client_id)
            name = row.name if row else "unknown API"
            raise BadFrame(f"{name} (key {api_key}) version {version} is not served; client_id {client_id!r}")
        api_codec = row.codec(version)
        if api_codec.flexible:
            body = body_of(frame, body)
        quotas = self._broker.quotas
        if quotas is None:
            call = Call(
                self,
                api_codec,
                correlation_id,
                client_id,
                api_codec.decode_request(frame, body, TOO_MANY_BYTES),
            )
        else:
            began_ns = perf_counter_ns()
            request = api_codec.decode_request(frame, body, TOO_MANY_BYTES)
            call = quotas.call(self, api_codec, correlation_id, client_id, request, len(frame), began_ns)
        self._calls.append(call)
        if row.is_async:
            call.park()
            self._parked = call
            self._server.run(self._run(row.handler, call))
            return
        message = row.handler(self._broker, call)
        if message is not None:
            call.answer(message)
        elif call.chunks is None:
            if call.parked:
                self._parked = call
            if quotas is not None:
                call.waits()

    async def _run(self, handler: Any, call: Call) -> None:
        try:
            call.reply(await call.timed(handler(self._broker, call)))
        except Exception:
            log.exception("closing the connection of %s: a request could not be handled", self.peer)
            self._transport.abort()

    def _answer_unknown_api_versions(self, correlation_id: int) -> None:
        """Tells a client that is newer than this broker, in version 0, which versions of ApiVersions it may use."""
        row, oldest = self._rows[_API_VERSIONS], codec(_API_VERSIONS, 0)
        call = Call(self, oldest, correlation_id, None, None)
        message = oldest.encode_response(unsupported_version(row))
        call.chunks = response_chunks(oldest, correlation_id, message)
        self._calls.append(call)

    # --- answers -----------------------------------------------------------------------------------

    def answered(self, call: Call) -> None:
        """Sends what a handler answered later, together with all that is ready in this iteration of the loop."""
        if self._closing:
            release(call.chunks or ())
            return
        if self._parked is call:
            self._parked = self._mute
        if not self._consuming and not self._flush_scheduled:
            self._flush_scheduled = True
            self._server.flush_soon(self)

    def flush_and_go_on(self) -> None:
        """Sends the answers that are ready, and reads on."""
        self._flush_scheduled = False
        if self._closing:
            return
        self._flush()
        self._go_on()

    def _flush(self) -> None:
        """Sends the answers that are ready, up to the first that is not."""
        calls, outbox = self._calls, self._outbox
        try:
            while calls and (chunks := calls[0].chunks) is not None:
                calls.popleft()
                outbox.add(chunks)
            outbox.flush()
        except OSError as error:
            self._went_away(error)

    def _went_away(self, error: OSError) -> None:
        log.debug("%s went away: %s", self.peer, error)
        self._closing = True
        self._transport.abort()

    def failed(self, call: Call, errors: Sequence[int]) -> None:
        """Hears of error codes from handlers that tell of them; a metered connection counts them."""

    def _on_drained(self) -> None:
        self.last_active = self.loop.time()
        if not self._closing:
            self.flush_and_go_on()

    def _go_on(self) -> None:
        """Reads on, if nothing prevents it; what has already arrived comes first."""
        if self._closing or self._is_blocked() or self._server.is_stopping:
            return
        if self._at_end:
            if self.is_idle:
                self._transport.close()
            return
        if self._own is not None and self._filled:
            self._consume_own()
        if not self._closing and not self._is_blocked():
            self._resume()

    def mute(self, ms: int) -> None:
        """Reads nothing more for so long, because the client has exceeded a quota; a longer mute takes precedence."""
        if self._closing:
            return
        if self._mute is None:
            self._mute = Mute(self)
            if self._parked is None:
                self._parked = self._mute
        self._mute.last(ms / 1000)

    def unmute(self) -> None:
        """Reads on; what has arrived meanwhile comes first."""
        mute, self._mute = self._mute, None
        if self._parked is mute:
            self._parked = None
            self._go_on()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and not self._server.is_stopping:
            self._paused = False
            self._transport.resume_reading()

    # --- the end -----------------------------------------------------------------------------------

    def _close_after_answers(self) -> None:
        """Closes after bad input; answers that are ready to what was asked before it are still sent."""
        self._flush()
        self._closing = True
        self._transport.close()

    def close_because(self, reason: str) -> None:
        self.complain(reason)
        self._close_after_answers()

    def complain(self, reason: str) -> None:
        """Writes to the log why it is closed, unless that was written a moment ago."""
        self._server.admission.complain(self, reason)

    @property
    def is_idle(self) -> bool:
        return not self._calls and not self._outbox.is_waiting

    def stop_reading(self) -> None:
        """Reads nothing more, because the broker stops; what is under way is answered, a long poll at once."""
        if not self._closing:
            self._pause()
            parked = self._parked
            if parked is not None and parked.on_stop is not None:
                parked.on_stop()
            elif parked is not None and parked.on_close is not None:
                parked.on_close()
                self._transport.abort()

    def close(self) -> None:
        self._transport.abort()
