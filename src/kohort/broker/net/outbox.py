"""Sends what goes out on one connection, in order: bytes by writev, pieces of files by sendfile.

The transport is used for reading only; writes go to its descriptor. So one queue holds bytes and file slices, nothing
is copied into a second buffer, and it is known how much is waiting.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from kohort.broker.call import release
from kohort.log.storage.files import Slice
from kohort.log.storage.system_calls import send_file
from kohort.wire.compiler.compile import Chunk

_BUFFERS_A_CALL = 256


class Outbox:
    """The queue of one connection. `drained` is called when a flush that had to wait has ended."""

    __slots__ = ("_drained", "_fd", "_loop", "_queue", "_writable_fd", "is_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, drained: Callable[[], None]) -> None:
        self._loop = loop
        self._fd = fd
        self._drained = drained
        self._queue: deque[Chunk] = deque()
        self.is_waiting = False  # the client does not take what is queued
        # The event loop does not let us watch a descriptor that a transport owns; a duplicate may be watched.
        self._writable_fd = -1

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Queues an answer. File slices must be pinned; they are unpinned when sent or dropped."""
        for chunk in chunks:
            if chunk.__class__ is Slice and chunk.file.fd is None:
                self._queue.extend(chunk.chunks())
                chunk.file.unpin()
            elif len(chunk):
                self._queue.append(chunk)

    def flush(self) -> None:
        """Sends what the socket takes, and the rest when it takes more. Raises OSError if the client is gone."""
        if not self.is_waiting and not self._send():
            self._watch()
            self.is_waiting = True

    def _watch(self) -> None:
        self._writable_fd = os.dup(self._fd)
        self._loop.add_writer(self._writable_fd, self._on_writable)

    def _unwatch(self) -> None:
        self._loop.remove_writer(self._writable_fd)
        os.close(self._writable_fd)

    def _on_writable(self) -> None:
        try:
            done = self._send()
        except OSError:
            done = True  # the reading side notices it too, and closes
        if done:
            self._stop_watching()
            self._drained()

    def _stop_watching(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self._unwatch()
            self._writable_fd = -1

    def _send(self) -> bool:
        """Sends what the socket takes; True when the queue is empty."""
        queue = self._queue
        try:
            while queue:
                head = queue[0]
                if head.__class__ is Slice:
                    self._send_slice(head)
                elif len(queue) == 1:
                    sent = os.write(self._fd, head)
                    if sent == len(head):
                        queue.popleft()
                    else:
                        queue[0] = memoryview(head)[sent:]
                else:
                    self._send_buffers()
        except BlockingIOError:
            return False
        return True

    def _send_slice(self, piece: Slice) -> None:
        fd = piece.file.fd
        assert fd is not None, "a queued slice is pinned"
        sent = send_file(self._fd, fd, piece.position, piece.length)
        if sent == 0:
            raise OSError(f"{piece.file.path} ends before the bytes that were to be sent from it")
        if sent == piece.length:
            self._queue.popleft()
            piece.file.unpin()
        else:
            piece.position += sent
            piece.length -= sent

    def _send_buffers(self) -> None:
        queue = self._queue
        buffers = []
        for chunk in islice(queue, _BUFFERS_A_CALL):
            if chunk.__class__ is Slice:
                break
            buffers.append(chunk)
        sent = os.writev(self._fd, buffers)
        for chunk in buffers:
            if sent < len(chunk):
                if sent:
                    queue[0] = memoryview(chunk)[sent:]
                return
            sent -= len(chunk)
            queue.popleft()

    def drop(self) -> None:
        """Forgets what was queued, because the client is gone."""
        self._stop_watching()
        release(self._queue)
        self._queue.clear()
