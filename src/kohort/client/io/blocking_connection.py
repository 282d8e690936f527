"""One blocking connection to a broker that sends any request in any version; for tests and benchmarks."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from kohort.wire.compiler.compile import codec
from kohort.wire.frame import read_response_header, request_frame
from kohort.wire.messages import APIS
from kohort.wire.struct import Message


class BlockingConnection:
    """Sends requests one at a time, or pipelined with `send` and `receive`; answers come in their order.

    with BlockingConnection("127.0.0.1:9092") as broker:
        broker.call(MetadataRequest(), version=12).topics
    """

    def __init__(self, address: str, *, client_id: str | None = "kohort", timeout_s: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_id = 0
        self._expected: list[tuple[int, int, int]] = []  # correlation id, API key, version

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Message, version: int | None = None) -> Any:
        """Sends a request and waits for its response; without a version the newest that has a layout here."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Message, version: int | None = None, *, answered: bool = True) -> None:
        """Sends a request. `answered=False` is for a Produce with acks=0."""
        key = request.API_KEY
        chosen = APIS[key].last if version is None else version
        self._correlation_id += 1
        api_codec = codec(key, chosen)
        body = api_codec.encode_request(request)
        self.send_bytes(request_frame(api_codec, self._correlation_id, self._client_id, body))
        if answered:
            self._expected.append((self._correlation_id, key, chosen))

    def send_bytes(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> Any:
        """Returns the response to the oldest request that has none yet; raises ConnectionError if the broker closed."""
        correlation_id, key, version = self._expected.pop(0)
        api_codec = codec(key, version)
        frame = memoryview(self.receive_frame())
        answered, body = read_response_header(api_codec, frame)
        if answered != correlation_id:
            raise ConnectionError(f"the answer to request {answered} came, {correlation_id} was expected")
        return api_codec.decode_response(frame, body)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def receive_into(self, buffer: memoryview) -> memoryview:
        """Receives the next frame into a buffer of the caller, which is large enough for it."""
        self._fill(buffer[:4])
        frame = buffer[: struct.unpack(">i", buffer[:4])[0]]
        self._fill(frame)
        return frame

    def _receive_exactly(self, size: int) -> bytes:
        buffer = bytearray(size)
        self._fill(memoryview(buffer))
        return bytes(buffer)

    def _fill(self, view: memoryview) -> None:
        while len(view):
            received = self._socket.recv_into(view)
            if not received:
                raise ConnectionError("the broker closed the connection")
            view = view[received:]
