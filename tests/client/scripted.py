"""Brokers that do as they are told: real sockets on threads, answers from a script. Several form a cluster.

with ScriptedCluster(2) as cluster:
    cluster.add_topic("orders", leaders=[1, 2])
    cluster[1].on(1, lambda request: FetchResponse(...))        # every Fetch
    cluster[2].script(1, CLOSE, Raw(b"garbage"), FetchResponse(...))  # the first three; then what `on` says
    ...
    assert cluster[1].requests_of(1)[0].message.max_wait_ms == 500

ApiVersions and Metadata are answered by themselves; everything else must be scripted, and is a surprise otherwise:
the connection is closed, and leaving the `with` fails.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from kohort.wire.compiler.compile import codec
from kohort.wire.compiler.notation import all_apis
from kohort.wire.errors import ErrorCode
from kohort.wire.frame import body_of, read_request_header, response_chunks
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kohort.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.struct import ZERO_UUID, Message

METADATA, API_VERSIONS = 3, 18
PATIENCE_S = 60.0  # only ends a test that hangs: a machine may be busy
Versions = dict[int, tuple[int, int]]


class _Word:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


CLOSE = _Word("CLOSE")
"""Closes the connection instead of an answer."""
RESET = _Word("RESET")
"""The same, rudely."""
HALF_CLOSE = _Word("HALF_CLOSE")
"""Writes no more, and goes on reading."""
SILENCE = _Word("SILENCE")
"""No answer; the connection stays."""


@dataclass(frozen=True)
class Raw:
    """These bytes instead of a frame."""

    data: bytes


@dataclass(frozen=True)
class Part:
    """The answer's frame up to this many bytes, then the connection is closed."""

    reply: Message
    size: int


@dataclass(frozen=True)
class WrongId:
    """The answer with another correlation id."""

    reply: Message


@dataclass
class Held:
    """The answer waits until the test calls `release`."""

    reply: Any
    _released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self._released.set()

    def wait(self) -> Any:
        self._released.wait(PATIENCE_S)
        return self.reply


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    api_key: int
    version: int
    client_id: str | None
    message: Any
    connection: int
    """Counts the connections of this broker."""
    at: float


Reply = Message | _Word | Raw | Part | WrongId | Held
Handler = Callable[[Received], Reply]


class ScriptedBroker:
    """One node. `versions` are those it serves: all that are ours if not given."""

    def __init__(
        self,
        node_id: int = 1,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        versions: Versions | None = None,
        tls: ssl.SSLContext | None = None,
        metadata: Callable[[Received], MetadataResponse] | None = None,
    ) -> None:
        self.node_id, self.host, self.port = node_id, host, port
        self.versions = dict(versions) if versions is not None else all_versions()
        self.requests: list[Received] = []
        self.surprises: list[str] = []
        self.connection_count = 0
        self._tls = tls
        self._metadata = metadata or self._alone
        self._handlers: dict[int, Handler] = {}
        self._scripts: dict[int, deque[Reply | Handler]] = {}
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._reservation: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._sockets: set[socket.socket] = set()

    # --- the script ------------------------------------------------------------------------------

    def on(self, api_key: int, reply: Reply | Handler) -> None:
        """Every request of this API from now on (after what `script` says)."""
        self._handlers[api_key] = reply if callable(reply) else lambda request: reply

    def script(self, api_key: int, *replies: Reply | Handler) -> None:
        """The next requests of this API, one reply each."""
        with self._lock:
            self._scripts.setdefault(api_key, deque()).extend(replies)

    def requests_of(self, api_key: int) -> list[Received]:
        with self._lock:
            return [request for request in self.requests if request.api_key == api_key]

    # --- life ------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> ScriptedBroker:
        self.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()
        assert error is not None or not self.surprises, self.surprises

    def start(self) -> None:
        """Listens, on the port it had before if it was stopped."""
        if self._reservation is None:
            self._reservation = _reserve(self.host, self.port)
            self.port = self._reservation.getsockname()[1]
        self._listener = listener = socket.create_server((self.host, self.port))
        self._begin(self._accept, listener)

    def stop(self) -> None:
        """Gone: the port is closed and all connections are."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            self._threads[0].join(PATIENCE_S)  # who accepts: from now on there are no more connections
            listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._threads.clear()

    def end(self) -> None:
        """Stopped for good: others may have the port."""
        self.stop()
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None

    def drop_connections(self) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _begin(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    # --- connections -----------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._sockets.add(sock)
            self.connection_count += 1
            self._begin(self._serve, sock, self.connection_count)

    def _serve(self, sock: socket.socket, number: int) -> None:
        stream = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                with self._lock:
                    stream = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                    self._sockets.add(stream)
                stream.do_handshake()
            while (frame := _read_frame(stream)) is not None:
                if not self._reply(stream, frame, number):
                    break
        except OSError:
            pass
        finally:
            with self._lock:
                self._sockets -= {sock, stream}
            stream.close()
            sock.close()

    def _reply(self, sock: socket.socket, frame: memoryview, number: int) -> bool:
        key, version, correlation_id, client_id, pos = read_request_header(frame)
        message: Any = None
        if version in all_apis()[key].versions:
            layout = codec(key, version)
            message = layout.decode_request(frame, body_of(frame, pos) if layout.flexible else pos)
        request = Received(key, version, client_id, message, number, time.monotonic())
        with self._lock:
            self.requests.append(request)
            script = self._scripts.get(key)
            step = script.popleft() if script else self._handlers.get(key) or self._default(key)
        reply = step(request) if callable(step) else step
        if isinstance(reply, Held):
            reply = reply.wait()
        return self._write(sock, request, correlation_id, reply)

    def _write(self, sock: socket.socket, request: Received, correlation_id: int, reply: Any) -> bool:
        if reply is SILENCE:
            return True
        if reply is HALF_CLOSE:
            sock.shutdown(socket.SHUT_WR)
            return True
        if reply is RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if reply is CLOSE:
            return False
        if isinstance(reply, Raw):
            sock.sendall(reply.data)
            return True
        limit = None
        if isinstance(reply, WrongId):
            reply, correlation_id = reply.reply, correlation_id + 1000
        elif isinstance(reply, Part):
            reply, limit = reply.reply, reply.size
        layout = codec(request.api_key, self._layout(request, reply))
        data = b"".join(map(bytes, response_chunks(layout, correlation_id, layout.encode_response(reply))))
        sock.sendall(data[:limit])
        return limit is None

    def _layout(self, request: Received, reply: Message) -> int:
        refused = isinstance(reply, ApiVersionsResponse) and reply.error_code == ErrorCode.UNSUPPORTED_VERSION
        return 0 if refused else request.version

    # --- what it answers by itself ---------------------------------------------------------------

    def _default(self, key: int) -> Handler:
        return {API_VERSIONS: self._api_versions, METADATA: self._metadata}.get(key, self._surprised)

    def _surprised(self, request: Received) -> Reply:
        self.surprises.append(f"node {self.node_id}: {all_apis()[request.api_key].name} v{request.version}")
        return CLOSE

    def _api_versions(self, request: Received) -> Reply:
        keys = [ApiVersion(key, first, last) for key, (first, last) in self.versions.items()]
        first, last = self.versions[API_VERSIONS]
        if not first <= request.version <= last:
            return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, keys)
        return ApiVersionsResponse(0, keys)

    def _alone(self, request: Received) -> MetadataResponse:
        me = MetadataResponseBroker(self.node_id, self.host, self.port)
        asked = [topic.name for topic in request.message.topics or ()]
        unknown = [MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name) for name in asked]
        return MetadataResponse(brokers=[me], cluster_id="scripted", topics=unknown)


class ScriptedCluster:
    """Nodes 1 to n that share their metadata. `versions` are those of all of them."""

    def __init__(self, nodes: int = 1, *, versions: Versions | None = None) -> None:
        self.topics: dict[str, list[tuple[int, int]]] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.internal: set[str] = set()
        self.errors: dict[str, ErrorCode] = {}
        self.nodes = {
            i: ScriptedBroker(i, versions=versions, metadata=self.metadata) for i in range(1, nodes + 1)
        }

    def __getitem__(self, node_id: int) -> ScriptedBroker:
        return self.nodes[node_id]

    def __enter__(self) -> ScriptedCluster:
        for broker in self.nodes.values():
            broker.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for broker in self.nodes.values():
            broker.end()
        surprises = [surprise for broker in self.nodes.values() for surprise in broker.surprises]
        assert error is not None or not surprises, surprises

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.nodes.values())

    def on(self, api_key: int, reply: Reply | Handler) -> None:
        """On every node."""
        for broker in self.nodes.values():
            broker.on(api_key, reply)

    def add_topic(self, name: str, leaders: list[int], *, leader_epoch: int = 0) -> bytes:
        """A topic with one partition per leader; returns its id."""
        self.topics[name] = [(leader, leader_epoch) for leader in leaders]
        self.topic_ids[name] = topic_id = (len(self.topic_ids) + 1).to_bytes(16, "big")
        return topic_id

    def move_leader(self, name: str, partition: int, to: int) -> None:
        """Another node leads, in the next epoch; -1: nobody does."""
        _, epoch = self.topics[name][partition]
        self.topics[name][partition] = (to, epoch + 1)

    def metadata(self, request: Received) -> MetadataResponse:
        asked = request.message.topics
        ids = {topic_id: name for name, topic_id in self.topic_ids.items()}
        everything = asked is None or (request.version == 0 and not asked)
        names = list(self.topics) if everything else [t.name or ids.get(t.topic_id) for t in asked]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(b.node_id, b.host, b.port) for b in self.nodes.values()],
            cluster_id="scripted",
            controller_id=1,
            topics=[self._topic(name) for name in names if name is not None],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        code = self.errors.get(name, ErrorCode.NONE if name in self.topics else None)
        if code is None or code:
            return MetadataResponseTopic(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        nodes = list(self.nodes)
        partitions = [
            MetadataResponsePartition(
                ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else 0, index, leader, epoch, nodes, nodes
            )
            for index, (leader, epoch) in enumerate(self.topics[name])
        ]
        topic_id = self.topic_ids.get(name, ZERO_UUID)
        return MetadataResponseTopic(0, name, topic_id, name in self.internal, partitions)


def all_versions(**newest: int) -> Versions:
    """All APIs and versions that are ours; `all_versions(fetch=4)` is a broker whose newest Fetch is 4."""
    found = {key: (api.versions.first, api.versions.last) for key, api in all_apis().items()}
    for key, api in all_apis().items():
        if api.module in newest:
            found[key] = (api.versions.first, newest[api.module])
    return found


def _reserve(host: str, port: int) -> socket.socket:
    """Binds the port without listening, so that the system gives it to nobody while the broker is stopped."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((host, port))
    return reserved


def _read_frame(sock: socket.socket) -> memoryview | None:
    size = _read_exactly(sock, 4)
    if size is None:
        return None
    frame = _read_exactly(sock, int.from_bytes(size, "big"))
    return None if frame is None else memoryview(frame)


def _read_exactly(sock: socket.socket, size: int) -> bytes | None:
    buffer = bytearray()
    while len(buffer) < size:
        got = sock.recv(min(size - len(buffer), 1 << 20))
        if not got:
            return None
        buffer += got
    return bytes(buffer)
