"""Server-sent events: what happens is told to every page that is open. Slow pages are cut off, not waited for."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

MOST_PAGES = 100
_QUEUE = 200
_KEEP_ALIVE_S = 15.0
_RETRY_MS = 2_000


class EventHub:
    """Hands events from any thread to the pages that listen."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.watched = threading.Event()
        """Set while somebody listens."""
        self.arrived = threading.Event()
        """Set when somebody has begun to listen; whoever waits for it clears it."""

    def open(self) -> None:
        """Begins to work, on the loop that runs."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Ends all streams; on the loop."""
        for queue in self._queues:
            _put(queue, None)
        self._loop = None

    def tell(self, event: str, data: dict[str, Any]) -> None:
        """Tells all pages; from any thread. Nothing is kept for pages that come later."""
        loop = self._loop
        if loop is None or not self.watched.is_set():
            return
        text = f"event: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
        try:
            loop.call_soon_threadsafe(self._tell, text)
        except RuntimeError:
            pass  # the loop has ended meanwhile

    def _tell(self, text: str) -> None:
        for queue in list(self._queues):
            _put(queue, text)

    @property
    def is_full(self) -> bool:
        """Whether no more page may listen."""
        return len(self._queues) >= MOST_PAGES

    async def listen(self) -> AsyncIterator[str]:
        """Yields what one page is sent, until the page is gone, falls behind, or the server ends."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(_QUEUE)
        self._queues.add(queue)
        self.watched.set()
        self.arrived.set()
        try:
            yield f"retry: {_RETRY_MS}\n\n"
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), _KEEP_ALIVE_S)
                except TimeoutError:
                    text = ": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self._queues.discard(queue)
            if not self._queues:
                self.watched.clear()


def _put(queue: asyncio.Queue[str | None], text: str | None) -> None:
    """Puts a text into a queue. A page that has fallen behind is cut off; it connects again by itself."""
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        text = None
    queue.put_nowait(text)
