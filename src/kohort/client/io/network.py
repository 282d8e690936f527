"""Owns all connections of a client: chooses the node of a request, connects again, and ends what is too late.

`submit` never blocks; every Send is answered once, by its timeout at the latest. A request to a certain node fails
as soon as that node cannot be reached, so that its sender can look whether another has taken over. A request to any
node goes on from node to node until its time is up. All methods are called under the engine's lock.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kohort.client.config import ClientConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Lane, Send
from kohort.client.core.metadata import Metadata
from kohort.client.core.metrics import MetricSource
from kohort.client.core.warning_limits import AWAY_EVERY_MS, LastingCondition
from kohort.client.io.network_metrics import NETWORK, NetworkMetrics
from kohort.client.io.node_connection import (
    ConnectionState,
    Hooks,
    InFlightRequest,
    NodeConnection,
    VersionRanges,
    remove_all,
)
from kohort.client.io.reactor import Reactor
from kohort.client.io.tls import security_for
from kohort.client.io.transport import Security
from kohort.settings import SettingError

_log = logging.getLogger("kohort.client.network")

AddressKey = tuple[str, int]
GRACE_MS = 100
"""A connection that is too late but still delivers is looked at again after this."""


@dataclass(slots=True, eq=False)
class Peer:
    """An address: the connections to it, the requests that wait for them, and how connecting went."""

    host: str
    port: int
    connections: dict[Lane, NodeConnection] = field(default_factory=dict)
    waiting: dict[Lane, deque[InFlightRequest]] = field(
        default_factory=lambda: {lane: deque() for lane in Lane}
    )
    versions: VersionRanges = field(default_factory=dict)
    failures: int = 0
    retry_ms: int = 0
    throttled_until_ms: int = 0
    error: str = ""
    away: LastingCondition = field(default_factory=lambda: LastingCondition(0, AWAY_EVERY_MS))
    untold: int = 0
    """How many attempts to connect have failed since the last one that was logged as a warning."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def load(self) -> int:
        under_way = sum(len(connection.in_flight) for connection in self.connections.values())
        return under_way + sum(map(len, self.waiting.values()))

    def is_ready(self, lane: Lane, now_ms: int) -> bool:
        connection = self.connections.get(lane)
        return (
            connection is not None
            and connection.state is ConnectionState.READY
            and now_ms >= self.throttled_until_ms
            and not (connection.session is not None and connection.is_expired(now_ms))
        )


class Network:
    """See the module's docstring."""

    def __init__(
        self,
        metadata: Metadata,
        reactor: Reactor,
        config: ClientConfig,
        *,
        security: Security | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self.last_error = ""
        """Why the last connection failed, with its address: the text of a TimedOut should say it."""
        self.changes = 0
        """Counts connections that became ready or were closed."""
        self._metadata, self._reactor, self._config = metadata, reactor, config
        self._security = security or security_for(config)
        self._jitter = jitter
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, jitter)
        self._setup = Backoff(
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
            _no_jitter,
        )
        self._bootstrap = [parse_address(text) for text in config.bootstrap_servers]
        self._peers: dict[AddressKey, Peer] = {}
        self._retiring: list[NodeConnection] = []
        self._metrics = NetworkMetrics(config.metric_window())
        self._hooks = Hooks(self._on_ready, self._on_closed, self._on_answered, self._metrics)
        self._closed = False

    # --- in --------------------------------------------------------------------------------------

    def submit(self, send: Send, done: Callable[[Answer], None]) -> None:
        """Sends it now or as soon as its node can be reached; `done` gets its one Answer, perhaps at once."""
        now_ms = self._reactor.now_ms()
        self._route(InFlightRequest(send, done, now_ms + send.timeout_ms), now_ms)

    def _route(self, request: InFlightRequest, now_ms: int) -> None:
        send = request.send
        assert send is not None
        if self._closed:
            request.fail(Failure(FailureKind.DISCONNECTED, "the client is closed"))
            return
        if send.node_id == ANY_NODE:
            peer = self._least_loaded(send.lane, now_ms)
        else:
            node = self._metadata.node(send.node_id)
            if node is None:
                request.fail(Failure(FailureKind.DISCONNECTED, f"node {send.node_id} is not known"))
                return
            peer = self._peer((node.host, node.port))
        connection = peer.connections.get(send.lane)
        if connection is not None and connection.session is not None:
            connection.renew_if_due(now_ms)
        if peer.is_ready(send.lane, now_ms) and not peer.waiting[send.lane]:
            peer.connections[send.lane].take(request, now_ms)
        else:
            peer.waiting[send.lane].append(request)
            self._connect_if_due(peer, send.lane, now_ms)

    def _peer(self, key: AddressKey) -> Peer:
        peer = self._peers.get(key)
        if peer is None:
            peer = self._peers[key] = Peer(*key)
        return peer

    def _least_loaded(self, lane: Lane, now_ms: int) -> Peer:
        """Returns a ready node with the least to do, else one that may be tried now, else the one to be tried first.

        When every known node has failed, bootstrap.servers are asked too, unless that is switched off.
        """
        known = [self._peer((n.host, n.port)) for n in self._metadata.cluster.nodes.values()]
        if not known or (
            self._config.metadata_recovery_strategy == "rebootstrap" and all(peer.failures for peer in known)
        ):
            known += [peer for peer in map(self._peer, self._bootstrap) if peer not in known]

        def rank(peer: Peer) -> tuple[bool, int, bool, int, float]:
            ready = peer.is_ready(lane, now_ms)
            trying = bool(peer.connections) and not peer.failures
            wait_ms = 0 if ready or trying else max(0, peer.retry_ms - now_ms)
            return not ready, wait_ms, not trying, peer.load, self._jitter()

        return min(known, key=rank)

    # --- connections -----------------------------------------------------------------------------

    def _connect_if_due(self, peer: Peer, lane: Lane, now_ms: int) -> None:
        connection = peer.connections.get(lane)
        if connection is not None and connection.session is not None and connection.is_expired(now_ms):
            if connection.session.in_place:
                connection.renew_if_due(now_ms)
            else:
                self._retire(peer, connection)
            connection = peer.connections.get(lane)
        if self._closed or connection is not None or now_ms < max(peer.retry_ms, peer.throttled_until_ms):
            return
        connection = NodeConnection(
            peer.host,
            peer.port,
            lane,
            self._reactor,
            self._config,
            self._security,
            self._hooks,
            self._setup.after(peer.failures + 1),
            self._jitter,
            is_strange=not peer.versions,
        )
        peer.connections[lane] = connection
        connection.start(now_ms)

    def _retire(self, peer: Peer, connection: NodeConnection) -> None:
        """Uses a connection no more whose session is too short to be renewed; requests under way end on it."""
        del peer.connections[connection.lane]
        self._retiring.append(connection)
        if not connection.in_flight:
            connection.close(Failure(FailureKind.DISCONNECTED, "its session has ended"))

    def _on_ready(self, connection: NodeConnection) -> None:
        self.changes += 1
        if self._config.security_protocol.startswith("SASL_"):
            is_first = connection.logins == 1
            made = self._metrics.authenticated if is_first else self._metrics.renewed
            made.record(1, self._reactor.now_ms())
        peer = self._peer((connection.host, connection.port))
        peer.failures, peer.retry_ms, peer.error, peer.untold = 0, 0, "", 0
        peer.away.is_over()
        if self.last_error.startswith(f"{peer}:"):
            self.last_error = ""
        peer.versions = connection.versions
        self._metadata.learn_features(connection.features_epoch, connection.features)
        self._send_waiting(peer, connection.lane, self._reactor.now_ms())

    def _send_waiting(self, peer: Peer, lane: Lane, now_ms: int) -> None:
        waiting = peer.waiting[lane]
        while waiting and peer.is_ready(lane, now_ms):
            peer.connections[lane].take(waiting.popleft(), now_ms)

    def _on_answered(self, connection: NodeConnection, request: InFlightRequest, response: Any) -> None:
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            peer = self._peer((connection.host, connection.port))
            peer.throttled_until_ms = max(peer.throttled_until_ms, connection.used_ms + throttle_ms)
        request.finish(response)
        if connection in self._retiring and not connection.in_flight:
            connection.close(Failure(FailureKind.DISCONNECTED, "its session has ended"))

    def _on_closed(
        self, connection: NodeConnection, failure: Failure, requests: list[InFlightRequest]
    ) -> None:
        self.changes += 1
        if failure.kind is FailureKind.AUTHENTICATION:
            refused = self._metrics.not_renewed if connection.logins else self._metrics.refused
            refused.record(1, self._reactor.now_ms())
        if connection in self._retiring:
            self._retiring.remove(connection)
            _fail_all(requests, failure)
            return
        peer = self._peer((connection.host, connection.port))
        peer.connections.pop(connection.lane, None)
        # A session that was refused when it was to be renewed is like a connection that was refused.
        was_ready = connection.setup_done and failure.kind is not FailureKind.AUTHENTICATION
        now_ms = self._reactor.now_ms()
        if requests or not was_ready:
            self._note_failure(peer, connection, failure, now_ms)
        failed = Failure(failure.kind, f"{peer}: {failure.message}")
        _fail_all(requests, failed)
        if was_ready:
            if peer.waiting[connection.lane]:
                self._connect_if_due(peer, connection.lane, now_ms)
            return
        waiting, peer.waiting[connection.lane] = peer.waiting[connection.lane], deque()
        for request in waiting:
            assert request.send is not None
            if request.send.node_id == ANY_NODE and failure.kind is not FailureKind.AUTHENTICATION:
                self._route(request, now_ms)
            else:
                request.fail(failed)

    def _note_failure(self, peer: Peer, connection: NodeConnection, failure: Failure, now_ms: int) -> None:
        peer.failures += 1
        peer.retry_ms = now_ms + self._backoff.after(peer.failures)
        peer.error = failure.message
        if not self._closed:
            self.last_error = f"{peer}: {failure.message}"
            self._tell(peer, connection, failure, now_ms)
            if any(
                (node.host, node.port) == (peer.host, peer.port)
                for node in self._metadata.cluster.nodes.values()
            ):
                self._metadata.request_update(f"lost {peer}")

    def _tell(self, peer: Peer, connection: NodeConnection, failure: Failure, now_ms: int) -> None:
        """Warns of a node that no connection can be made to; a connection that ended and is made again is no news."""
        if connection.setup_done:
            _log.info("connection to %s: %s", peer, failure.message)
            return
        peer.untold += 1
        if not peer.away.is_worth_a_warning(now_ms):
            _log.debug("connection to %s: %s", peer, failure.message)
            return
        attempts = f"after {peer.untold} more attempts; " if peer.untold > 1 else ""
        text = f"cannot connect to {peer}: {failure.message}; {attempts}trying again"
        self._metadata.warnings.warn(_log, str(peer), now_ms, text)
        peer.untold = 0

    # --- time ------------------------------------------------------------------------------------

    def tick(self, now_ms: int, *, only: Lane | None = None) -> None:
        """Closes what is too late or idle, connects where the backoff is over; with `only` on that lane alone."""
        for peer in list(self._peers.values()):
            for lane in Lane if only is None else (only,):
                connection = peer.connections.get(lane)
                if connection is not None:
                    self._check(peer, connection, now_ms)
                waiting = peer.waiting[lane]
                if waiting:
                    self._expire_waiting(peer, waiting, now_ms)
                if waiting:
                    self._connect_if_due(peer, lane, now_ms)
                    self._send_waiting(peer, lane, now_ms)
        for connection in list(self._retiring):
            if only is None or connection.lane is only:
                self._check_late(connection, now_ms)

    def _check(self, peer: Peer, connection: NodeConnection, now_ms: int) -> None:
        if connection.deadline_ms is not None:
            self._check_late(connection, now_ms)
        elif 0 <= self._config.connections_max_idle_ms <= now_ms - connection.used_ms:
            connection.close(Failure(FailureKind.DISCONNECTED, "it was not used"))

    def _check_late(self, connection: NodeConnection, now_ms: int) -> None:
        deadline_ms = connection.deadline_ms
        if deadline_ms is None or now_ms < deadline_ms:
            return
        # Nobody may have looked at the socket for long, because user code was at work: look before judging.
        if connection.receive():
            connection.grant_until(now_ms + GRACE_MS)
            return
        if connection.setup_done and connection.state is not ConnectionState.CLOSED:
            late = connection.take_late(now_ms)
            peer = f"{connection.host}:{connection.port}"
            first = late[0].send
            message = (
                "its session could not be renewed in time"
                if first is None
                else f"no answer for {first.timeout_ms} ms"
            )
            connection.close(Failure(FailureKind.DISCONNECTED, message))
            _fail_all(late, Failure(FailureKind.TIMED_OUT, f"{peer}: {message}"))
        elif connection.state is not ConnectionState.CLOSED:
            connection.setup_is_late()

    def _expire_waiting(self, peer: Peer, waiting: deque[InFlightRequest], now_ms: int) -> None:
        late = [request for request in waiting if request.deadline_ms <= now_ms]
        if late:
            remove_all(waiting, late)
            why = peer.error or "it is still being connected"
            if not peer.error and self.last_error:
                why += f"; before that {self.last_error}"
            _fail_all(late, Failure(FailureKind.TIMED_OUT, f"{peer} could not be reached: {why}"))

    def next_deadline_ms(self, *, only: Lane | None = None) -> int | None:
        return min(self._deadlines(only), default=None)

    def _deadlines(self, only: Lane | None) -> Iterator[int]:
        for peer in self._peers.values():
            for lane in Lane if only is None else (only,):
                connection = peer.connections.get(lane)
                if connection is not None:
                    late_ms = connection.deadline_ms
                    if late_ms is not None:
                        yield late_ms
                    elif self._config.connections_max_idle_ms >= 0:
                        yield connection.used_ms + self._config.connections_max_idle_ms
                if peer.waiting[lane]:
                    yield min(request.deadline_ms for request in peer.waiting[lane])
                    if connection is None:
                        yield max(peer.retry_ms, peer.throttled_until_ms)
                    elif connection.state is ConnectionState.READY:
                        yield peer.throttled_until_ms
        for connection in self._retiring:
            if connection.deadline_ms is not None and only in (None, connection.lane):
                yield connection.deadline_ms

    # --- what others ask -------------------------------------------------------------------------

    def metric_sources(self) -> Iterator[MetricSource]:
        yield MetricSource(NETWORK, self._metrics)

    def is_ready(self, node_id: int, lane: Lane = Lane.DATA) -> bool:
        """Whether there is a connection on which a request would leave at once."""
        node = self._metadata.node(node_id)
        peer = self._peers.get((node.host, node.port)) if node is not None else None
        return peer is not None and peer.is_ready(lane, self._reactor.now_ms())

    def versions_of(self, node_id: int) -> VersionRanges:
        """Returns the first and last version of each API that both sides have; empty before it was connected."""
        node = self._metadata.node(node_id)
        peer = self._peers.get((node.host, node.port)) if node is not None else None
        return peer.versions if peer is not None else {}

    def close(self) -> None:
        """Closes all connections; what is under way fails."""
        self._closed = True
        failure = Failure(FailureKind.DISCONNECTED, "the client is closed")
        for peer in list(self._peers.values()):
            for connection in list(peer.connections.values()):
                connection.close(failure)
            for waiting in peer.waiting.values():
                requests = list(waiting)
                waiting.clear()
                _fail_all(requests, failure)
        for connection in list(self._retiring):
            connection.close(failure)

    def abandon(self) -> None:
        """Frees the descriptors of a forked child, and tells nobody."""
        self._closed = True
        for peer in self._peers.values():
            for connection in peer.connections.values():
                connection.abandon()
        for connection in self._retiring:
            connection.abandon()


def parse_address(text: str) -> AddressKey:
    """Reads `host:port` or `[::1]:port`; raises SettingError for anything else."""
    host, colon, port = text.strip().rpartition(":")
    bare = host[host.find("://") + 3 :] if "://" in host else host
    if not colon or not bare or not port.isdigit() or not 0 < int(port) < 65536:
        raise SettingError(f"bootstrap.servers: {text!r} is not host:port, as in 127.0.0.1:9092")
    return bare.strip("[]"), int(port)


def _no_jitter() -> float:
    return 0.5


def _fail_all(requests: list[InFlightRequest], failure: Failure) -> None:
    for request in requests:
        request.fail(failure)
