"""One connection to a node: it connects, shakes hands (TLS, ApiVersions, SASL), sends requests and reads answers.

It never waits and never retries: it begins connecting, becomes ready once or fails, and ends closed. Every request that
it took is finished exactly once, with the response or with a failure.

A session that the broker ends after some time is renewed on the same connection (KIP-368): the login follows the
requests that are under way, and requests that come meanwhile wait until it is done. So all keep their order.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

from kohort import __version__
from kohort.client.config import ClientConfig
from kohort.client.core.backoff import Jitter
from kohort.client.core.effects import Answer, Failure, FailureKind, Lane, Rejected, Send
from kohort.client.core.sasl_login import SessionTimes, session_times
from kohort.client.io.framing import ChunkWriter, FrameReader, request_chunks
from kohort.client.io.network_metrics import NetworkMetrics
from kohort.client.io.reactor import Reactor, SocketAddress
from kohort.client.io.transport import NO_TLS_PORT, PlainTransport, Security, Transport
from kohort.loopback import send_at_once
from kohort.wire.compiler.compile import Codec, codec
from kohort.wire.errors import BadFrame, ErrorCode
from kohort.wire.frame import read_response_header
from kohort.wire.messages import APIS
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.struct import Message

_log = logging.getLogger("kohort.client.network")

HANDSHAKE_LIMIT = 4 << 20
"""The longest response of a peer that is not known to be a broker yet: HTTP and TLS look like lengths of gigabytes."""
FRAME_LIMIT = 2**31 - 1
RENEWAL_RETRY_MS = 5_000
"""If a session cannot be renewed yet (no token), that is tried again after this."""
FRAME_HEAD = 4  # bytes before a frame, which say how long it is

VersionRanges = dict[int, tuple[int, int]]
Handshake = Generator[tuple[int, int, Message], Any, None]
"""Yields the requests (key, version, message) that come before the first of a user; is sent each response."""
_IN_PROGRESS = (0, errno.EINPROGRESS, getattr(errno, "WSAEWOULDBLOCK", errno.EINPROGRESS))


TLS_ALERT = b"\x15\x03"
"""How the answer of a TLS port to plain bytes begins; read as a length it is 352518912 and more."""


class ConnectionState(Enum):
    """How far a connection is; the values are for people."""

    PREPARING = "waiting for a token"
    CONNECTING = "connecting"
    SECURING = "in its TLS handshake"
    HANDSHAKE = "negotiating"
    READY = "ready"
    RENEWING = "renewing its session"
    CLOSED = "closed"


_RECEIVING = (ConnectionState.HANDSHAKE, ConnectionState.READY, ConnectionState.RENEWING)


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A Send on its way, or (without one) a request of the handshake."""

    send: Send | None
    done: Callable[[Answer], None]
    deadline_ms: int
    codec: Codec | None = None
    correlation_id: int = -1
    sent_ms: int = 0

    def finish(self, response: Any) -> None:
        assert self.send is not None
        assert self.codec is not None
        self.done(Answer(self.send, self.codec.version, response))

    def fail(self, failure: Failure) -> None:
        if self.send is not None:
            self.done(Answer(self.send, failure=failure))


@dataclass(slots=True)
class Hooks:
    """The functions of its owner that a connection calls."""

    on_ready: Callable[[NodeConnection], None]
    on_closed: Callable[[NodeConnection, Failure, list[InFlightRequest]], None]
    """It gets the requests that were under way and fails them."""
    on_answered: Callable[[NodeConnection, InFlightRequest, Any], None]
    metrics: NetworkMetrics


@dataclass(slots=True, eq=False)
class NodeConnection:
    """See the module's docstring. The network reads its fields; only its own methods write them."""

    host: str
    port: int
    lane: Lane
    reactor: Reactor
    config: ClientConfig
    security: Security
    hooks: Hooks
    setup_timeout_ms: int
    jitter: Jitter
    is_strange: bool
    """No connection to this address was ever ready: it may be no port of the kind that the settings say."""
    state: ConnectionState = ConnectionState.PREPARING
    versions: VersionRanges = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    """The levels of the cluster's finalized features, by name."""
    features_epoch: int = -1
    in_flight: deque[InFlightRequest] = field(default_factory=deque)
    used_ms: int = 0
    session: SessionTimes | None = None
    """When the broker ends this session (KIP-368): from then on the connection takes no new requests."""
    logins: int = 0
    """How often SASL has accepted us on it."""
    setup_deadline_ms: int = 0
    setup_done: bool = False
    _sock: socket.socket | None = None
    _transport: Transport | None = None
    _addresses: list[SocketAddress] = field(default_factory=list)
    _address: SocketAddress | None = None
    _cut_off: Failure | None = (
        None  # in the TLS handshake: whether the port speaks without TLS is being looked at
    )
    _unanswered: list[InFlightRequest] = field(
        default_factory=list
    )  # they get no response; their bytes must leave
    _reader: FrameReader = field(default_factory=lambda: FrameReader(HANDSHAKE_LIMIT))
    _writer: ChunkWriter = field(default_factory=ChunkWriter)
    _handshake: Handshake | None = None
    _is_preparing: bool = False  # the renewal of its session
    _correlation_id: int = 0
    _client_id: bytes = b""
    _is_counted: bool = False  # as connected
    _was_answered: bool = False  # a request of a user, at least once

    # --- connecting ------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        self._client_id = self.config.client_id.encode()
        self.used_ms = now_ms
        self.setup_deadline_ms = now_ms + self._preparation_timeout_ms
        self.security.prepare(self.reactor, self._prepared)

    def _prepared(self, failure: Failure | None) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        if failure is not None:
            self.close(failure)
            return
        self.state = ConnectionState.CONNECTING
        self.setup_deadline_ms = self.reactor.now_ms() + self.setup_timeout_ms
        self.reactor.resolve(self.host, self.port, self._resolved)

    def _resolved(self, addresses: list[SocketAddress], error: OSError | None) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        self._addresses = list(addresses)
        self._connect_next(error or OSError("the name has no address"))

    def _connect_next(self, error: OSError) -> None:
        """Connects to the next address of the name; closes with the last error if there is none left."""
        self._drop_socket()
        while self._addresses:
            self._address = family, address = self._addresses.pop(0)
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as cannot:
                error = cannot
                continue
            self._sock = sock
            sock.setblocking(False)
            self._set_options(sock)
            code = sock.connect_ex(address)
            if code in _IN_PROGRESS:
                self.setup_deadline_ms = self.reactor.now_ms() + self.setup_timeout_ms
                self.reactor.register(sock, self.lane, self._on_readable)
                self.reactor.want_write(sock, self._on_connected)
                return
            error = OSError(code, os.strerror(code))
            self._drop_socket()
        self.close(Failure(FailureKind.DISCONNECTED, _words(error)))

    def _set_options(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.config.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.config.send_buffer_bytes)
        if self.config.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.config.receive_buffer_bytes)

    def _on_connected(self) -> None:
        assert self._sock is not None
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._connect_next(OSError(code, os.strerror(code)))
            return
        send_at_once(self._sock)
        self._is_counted = True
        self.hooks.metrics.connected(self.reactor.now_ms())
        self.reactor.want_write(self._sock, None)
        self.setup_deadline_ms = self.reactor.now_ms() + self._handshake_timeout_ms
        self.state = ConnectionState.SECURING
        try:
            is_plain = self._cut_off is not None
            secured = PlainTransport if is_plain else partial(self.security.transport, host=self.host)
            self._transport = secured(self._sock)
            self._sock = self._transport.sock
        except (OSError, ValueError) as error:  # ValueError: a name that no certificate can have
            self.close(Failure(FailureKind.AUTHENTICATION, str(error)))
            return
        self._secure()

    def _secure(self) -> None:
        """Makes one step of the TLS handshake, which is done at once without TLS."""
        assert self._sock is not None
        assert self._transport is not None
        try:
            wants_write = self._transport.handshake()
        except OSError as error:
            self._not_secured(self._transport.why(error))
            return
        if wants_write is not None:
            self.reactor.want_write(self._sock, self._secure if wants_write else None)
            return
        self.reactor.want_write(self._sock, None)
        self.state = ConnectionState.HANDSHAKE
        self._handshake = self._shake_hands()
        self._go_on_with_handshake(None)

    def _not_secured(self, failure: Failure) -> None:
        """Ends it after a failed TLS handshake; looks first whether the port speaks without TLS, which just closes."""
        if failure.kind is not FailureKind.DISCONNECTED or not self.is_strange or self._address is None:
            self.close(failure)
            return
        self._cut_off = failure
        self._addresses = [self._address]
        self.state = ConnectionState.CONNECTING
        self._connect_next(OSError(failure.message))

    # --- handshake -------------------------------------------------------------------------------

    def _shake_hands(self) -> Handshake:
        asked = APIS[ApiVersionsRequest.API_KEY].last
        while True:
            request = ApiVersionsRequest("kohort", __version__)
            response: ApiVersionsResponse = yield ApiVersionsRequest.API_KEY, asked, request
            if self._cut_off is not None:
                raise Rejected(Failure(FailureKind.AUTHENTICATION, NO_TLS_PORT))
            ranges = {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or asked == 0:
                break
            # An older broker answers with what it has, in the oldest layout (KIP-511); or with nothing.
            _, newest = ranges.get(ApiVersionsRequest.API_KEY, (0, 0))
            asked = min(newest, asked - 1) if newest >= 0 else 0
        if response.error_code:
            raise Rejected(
                Failure(FailureKind.UNSUPPORTED_VERSION, f"ApiVersions: error {response.error_code}")
            )
        self.versions = common_versions(ranges)
        self.features_epoch = response.finalized_features_epoch
        self.features = {each.name: each.max_version_level for each in response.finalized_features}
        yield from self._log_in()

    def _log_in(self) -> Handshake:
        lifetime_ms = yield from self.security.login(self.versions)
        self.session = session_times(self.reactor.now_ms(), lifetime_ms, self.jitter())
        self.logins += 1

    def _go_on_with_handshake(self, response: Any) -> None:
        assert self._handshake is not None
        try:
            key, version, message = self._handshake.send(response)
        except StopIteration:
            self._handshake = None
            self.state, self.setup_done = ConnectionState.READY, True
            self._reader.limit = FRAME_LIMIT
            self.hooks.on_ready(self)
        except Rejected as rejected:
            self.close(rejected.failure)
        else:
            with_codec = codec(key, version)
            chunks = self._encoded(with_codec, message)
            self._put(InFlightRequest(None, _nobody, self._login_deadline_ms()), with_codec, chunks)

    def _login_deadline_ms(self) -> int:
        """Returns until when a request of the handshake has time; one that renews comes after all that is under way."""
        if self.state is not ConnectionState.RENEWING:
            return self.setup_deadline_ms
        before_ms = max((request.deadline_ms for request in self.in_flight), default=0)
        return max(before_ms, self.reactor.now_ms()) + self._handshake_timeout_ms

    # --- renewing the session --------------------------------------------------------------------

    def renew_if_due(self, now_ms: int) -> None:
        """Begins to renew the session if it is time; until the login can begin, requests are taken as before."""
        session = self.session
        if (
            session is not None
            and session.in_place
            and now_ms >= session.renew_ms
            and self.state is ConnectionState.READY
            and not self._is_preparing
        ):
            self._is_preparing = True
            self.security.prepare(self.reactor, self._renew)

    def _renew(self, failure: Failure | None) -> None:
        self._is_preparing = False
        if self.state is not ConnectionState.READY:
            return
        assert self.session is not None
        now_ms = self.reactor.now_ms()
        if failure is None:
            self.state = ConnectionState.RENEWING
            self._handshake = self._log_in()
            self._go_on_with_handshake(None)
        elif now_ms < self.session.expires_ms:
            again_ms = min(now_ms + RENEWAL_RETRY_MS, self.session.expires_ms)
            self.session = replace(self.session, renew_ms=again_ms)
            _log.warning(
                "the session with %s:%d is not renewed yet: %s", self.host, self.port, failure.message
            )
        else:
            self.close(failure)

    def is_expired(self, now_ms: int) -> bool:
        """Whether its session is over, or nearly so."""
        return self.session is not None and now_ms >= self.session.expires_ms

    # --- requests --------------------------------------------------------------------------------

    def choose_version(self, send: Send) -> int | None:
        """Returns the newest version that both sides and the sender have; None if there is none."""
        first, last = self.versions.get(send.api_key, (0, -1))
        if send.max_version is not None:
            last = min(last, send.max_version)
        return last if first <= last else None

    def take(self, request: InFlightRequest, now_ms: int) -> None:
        """Sends a request on a connection that is ready."""
        send = request.send
        assert send is not None
        assert self.state is ConnectionState.READY
        version = self.choose_version(send)
        if version is None:
            request.fail(Failure(FailureKind.UNSUPPORTED_VERSION, self._no_version(send)))
            return
        try:
            message = send.make(version)
        except ValueError as error:
            request.fail(Failure(FailureKind.UNSUPPORTED_VERSION, str(error)))
            return
        with_codec = codec(send.api_key, version)
        try:
            chunks = self._encoded(with_codec, message)
        except Exception as error:  # its own operation fails, and no other
            words = f"{APIS[send.api_key].name} v{version}: {error!r}"
            _log.error("a request cannot be encoded: %s", words, exc_info=error)
            request.fail(Failure(FailureKind.UNENCODABLE, words))
            return
        self.used_ms = request.sent_ms = now_ms
        self._put(request, with_codec, chunks)

    def _no_version(self, send: Send) -> str:
        ours = APIS[send.api_key]
        return (
            f"{self.host}:{self.port} serves no version of {ours.name} that this client has "
            f"({ours.first}-{ours.last})"
        )

    def _encoded(self, with_codec: Codec, message: Message) -> list[Any]:
        """Returns the frame of a request, with a correlation id of its own. If this fails, nothing has changed."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        body = with_codec.encode_request(message)
        return request_chunks(with_codec, self._correlation_id, self._client_id, body)

    def _put(self, request: InFlightRequest, with_codec: Codec, chunks: list[Any]) -> None:
        request.codec, request.correlation_id = with_codec, self._correlation_id
        self.hooks.metrics.sent.record(sum(map(len, chunks)), self.reactor.now_ms())
        self._writer.add(chunks)
        if request.send is None or request.send.answered:
            self.in_flight.append(request)
        else:
            self._unanswered.append(request)
        self._flush()

    def _flush(self) -> None:
        if self._transport is None or self._sock is None:
            return
        try:
            self._writer.write(self._transport.send)
        except (BlockingIOError, InterruptedError):
            self.reactor.want_write(self._sock, self._flush)
            return
        except OSError as error:
            self.close(self._transport.why(error))
            return
        self.reactor.want_write(self._sock, None)
        sent, self._unanswered = self._unanswered, []
        for request in sent:
            request.finish(None)

    def _on_readable(self) -> None:
        if self.state is ConnectionState.CONNECTING:
            self._on_connected()  # a refused connection is readable too
        elif self.state is ConnectionState.SECURING:
            self._secure()
        else:
            self.receive()

    def receive(self) -> bool:
        """Reads what has arrived; returns whether that was anything."""
        if self.state not in _RECEIVING:
            return False
        assert self._transport is not None
        before, transport = self._reader.received, self._transport
        try:
            while self._reader.read(transport.receive, self._on_frame) or transport.holds_more:
                if self._transport is not transport:
                    break  # closed by what an answer set off
        except (BlockingIOError, InterruptedError):
            pass
        except BadFrame as error:
            self.close(self._bad_frame(error))
        except OSError as error:
            self.close(self._why(transport, error))
        return self._reader.received > before

    def _bad_frame(self, error: BadFrame) -> Failure:
        if self.state is ConnectionState.HANDSHAKE and self._reader.begins_with(TLS_ALERT):
            return Failure(
                FailureKind.AUTHENTICATION,
                f"this is a TLS port: set security.protocol to {self._with_tls}, or take the port of a listener "
                "without TLS",
            )
        return Failure(FailureKind.BAD_ANSWER, f"not an answer of Kafka's protocol: {error}")

    @property
    def _with_tls(self) -> str:
        return "SASL_SSL" if self.config.security_protocol.startswith("SASL") else "SSL"

    def _why(self, transport: Transport, error: OSError) -> Failure:
        failure = transport.why(error)
        if failure.kind is not FailureKind.DISCONNECTED:
            return failure
        if self.state is ConnectionState.HANDSHAKE:
            # This is what a broker does to a client that does not speak TLS, or speaks it where it should not.
            hint = f"{failure.message} before it said who it is (is security.protocol right?)"
            return Failure(failure.kind, hint)
        if not self._was_answered and not self.config.security_protocol.startswith("SASL"):
            # This is what a listener with SASL does to a client that does not log in.
            hint = "before it answered any request (does this listener want SASL? see security.protocol)"
            return Failure(failure.kind, f"{failure.message} {hint}")
        return failure

    def _on_frame(self, frame: memoryview) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        if not self.in_flight:
            raise BadFrame("an answer that nobody asked for")
        request = self.in_flight[0]
        assert request.codec is not None
        correlation_id, pos = read_response_header(request.codec, frame)
        if correlation_id != request.correlation_id:
            raise BadFrame(f"the answer to request {correlation_id}, {request.correlation_id} was expected")
        response = _layout(request.codec, frame, pos).decode_response(frame, pos)
        self.in_flight.popleft()
        now_ms = self.reactor.now_ms()
        self.hooks.metrics.received.record(len(frame) + FRAME_HEAD, now_ms)
        if request.send is None:
            self._go_on_with_handshake(response)
        else:
            self.used_ms = now_ms
            self._was_answered = True
            self.hooks.on_answered(self, request, response)

    # --- time ------------------------------------------------------------------------------------

    def grant_until(self, deadline_ms: int) -> None:
        """Gives all requests under way at least until this time."""
        for request in self.in_flight:
            request.deadline_ms = max(request.deadline_ms, deadline_ms)

    def take_late(self, now_ms: int) -> list[InFlightRequest]:
        """Takes out the requests whose time is up; their owner fails them."""
        late = [request for request in self.in_flight if request.deadline_ms <= now_ms]
        remove_all(self.in_flight, late)
        return late

    @property
    def deadline_ms(self) -> int | None:
        """When the first thing that it waits for is too late."""
        if self.state not in (ConnectionState.READY, ConnectionState.RENEWING):
            return self.setup_deadline_ms
        return min([r.deadline_ms for r in self.in_flight], default=None)

    @property
    def _handshake_timeout_ms(self) -> int:
        return min(self.setup_timeout_ms, self.config.request_timeout_ms)

    @property
    def _preparation_timeout_ms(self) -> int:
        """How long a token may take: as long as a request of ours, for a token is one to somebody else."""
        return max(self.setup_timeout_ms, self.config.request_timeout_ms)

    def setup_is_late(self) -> None:
        """Tries the next address of the name, or gives up, because the time to become ready is up."""
        if self.state is ConnectionState.CONNECTING:
            limit_ms = self.setup_timeout_ms
            self._connect_next(OSError(errno.ETIMEDOUT, f"no connection after {limit_ms} ms"))
        else:
            is_preparing = self.state is ConnectionState.PREPARING
            limit_ms = self._preparation_timeout_ms if is_preparing else self._handshake_timeout_ms
            message = f"still {self.state.value} after {limit_ms} ms"
            self.close(Failure(FailureKind.DISCONNECTED, message))

    # --- the end ---------------------------------------------------------------------------------

    def close(self, failure: Failure) -> None:
        """Ends the connection; the owner is told once."""
        if self.state is ConnectionState.CLOSED:
            return
        if self._cut_off is not None and failure.kind is not FailureKind.AUTHENTICATION:
            failure = self._cut_off
        was, self.state = self.state, ConnectionState.CLOSED
        _log.debug("%s:%d %s was %s: %s", self.host, self.port, self.lane.name, was.value, failure.message)
        self._drop_socket()
        requests = [r for r in (*self.in_flight, *self._unanswered) if r.send is not None]
        self.in_flight.clear()
        self._unanswered.clear()
        if self._handshake is not None:
            self._handshake.close()
        self.hooks.on_closed(self, failure, requests)

    def abandon(self) -> None:
        """Frees the descriptor of a forked child, and leaves everything alone that is shared with the parent."""
        self.state = ConnectionState.CLOSED
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def _drop_socket(self) -> None:
        sock, self._sock, self._transport = self._sock, None, None
        if self._is_counted:
            self._is_counted = False
            self.hooks.metrics.disconnected(self.reactor.now_ms())
        if sock is not None:
            self.reactor.unregister(sock)
            sock.close()


def remove_all(queue: deque[InFlightRequest], gone: list[InFlightRequest]) -> None:
    left = [request for request in queue if request not in gone]
    queue.clear()
    queue.extend(left)


def common_versions(ranges: VersionRanges) -> VersionRanges:
    """Returns the versions that both sides have."""
    both = {
        key: (max(first, APIS[key].first), min(last, APIS[key].last))
        for key, (first, last) in ranges.items()
        if key in APIS
    }
    return {key: (first, last) for key, (first, last) in both.items() if first <= last}


def _layout(asked: Codec, frame: memoryview, pos: int) -> Codec:
    """Returns the codec of a response: a broker that does not know a version of ApiVersions answers in version 0."""
    if asked.api_key == ApiVersionsRequest.API_KEY and asked.version > 0:
        code = int.from_bytes(frame[pos : pos + 2], "big")
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return codec(asked.api_key, 0)
    return asked


def _nobody(answer: Answer) -> None:
    raise AssertionError("requests of the handshake have no owner")


def _words(error: OSError) -> str:
    return error.strerror or str(error)
