"""Sends what goes out on one connection with TLS: bytes and pieces of files, encrypted by OpenSSL into the socket.

OpenSSL makes a record of at most 16 KB of each write and sends it by itself. So small pieces of an answer are put
together first, and files are read into the same buffer: one record has the head of an answer and its first bytes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from kohort.broker.net.outbox import Outbox
from kohort.log.storage.files import Slice


class TlsOutbox(Outbox):
    """The queue of one connection with TLS. `staging` is a buffer that all of them share."""

    __slots__ = ("_sock", "_staging")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, drained: Callable[[], None], staging: memoryview
    ) -> None:
        super().__init__(loop, fd, drained)
        self._staging = staging
        self._sock: ssl.SSLSocket | None = None

    def secured(self, sock: ssl.SSLSocket) -> None:
        """Says that the handshake is done; nothing is sent before."""
        self._sock = sock

    def _watch(self) -> None:
        self._writable_fd = self._fd  # no transport of the loop owns it
        self._loop.add_writer(self._fd, self._on_writable)

    def _unwatch(self) -> None:
        self._loop.remove_writer(self._fd)

    def _send(self) -> bool:
        """Sends what the socket takes; True when the queue is empty.

        A write that has to wait is repeated later from the same place: OpenSSL has kept the record that it encrypted,
        and wants the same bytes, wherever they lie, with any number of others behind them.
        """
        queue, sock, staging = self._queue, self._sock, self._staging
        assert sock is not None or not queue, "nothing is answered before the handshake"
        try:
            while queue:
                head = queue[0]
                if head.__class__ is Slice or (len(queue) > 1 and len(head) < len(staging)):
                    data = staging[: self._stage()]
                else:
                    data = memoryview(head)
                self._send_all(data)
        except ssl.SSLWantWriteError:
            return False
        return True

    def _send_all(self, data: memoryview) -> None:
        sock, sent, size = self._sock, 0, len(data)
        assert sock is not None
        try:
            while sent < size:
                sent += sock.send(data[sent:])
        finally:
            self._forget(sent)

    def _stage(self) -> int:
        """Copies the beginning of the queue into the buffer, and returns how many bytes there are."""
        staging, filled = self._staging, 0
        room = len(staging)
        for chunk in self._queue:
            size = min(len(chunk), room - filled)
            if chunk.__class__ is Slice:
                size = chunk.file.read_into(staging[filled : filled + size], chunk.position)
                if size == 0:
                    raise OSError(f"{chunk.file.path} ends before the bytes that were to be sent from it")
            else:
                staging[filled : filled + size] = chunk[:size]
            filled += size
            if size < len(chunk):
                break
        return filled

    def _forget(self, sent: int) -> None:
        """Takes what was sent off the queue."""
        queue = self._queue
        while sent:
            head = queue[0]
            if sent < len(head):
                if head.__class__ is Slice:
                    head.position += sent
                    head.length -= sent
                else:
                    queue[0] = memoryview(head)[sent:]
                return
            sent -= len(head)
            queue.popleft()
            if head.__class__ is Slice:
                head.file.unpin()
