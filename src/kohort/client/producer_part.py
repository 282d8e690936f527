"""What a producer's front leaves for the engine's thread: topics to ask for, commands, and telling who waits."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from kohort.client.effects import Answer
from kohort.client.sender import Sender

_log = logging.getLogger("kohort.client.producer")


class ProducerPart:
    """A part that sends nothing itself. It comes before the sender in the engine."""

    def __init__(self, sender: Sender, on_change: Callable[[], None], wake: Callable[[], None]) -> None:
        self.topics: deque[str] = deque()
        self.commands: deque[Callable[[], None]] = deque()
        self.failure: Exception | None = None
        """Why metadata cannot be had, for those who wait for a topic."""
        self._sender = sender
        self._on_change = on_change
        self._ring = wake
        self._asleep = False
        self._telling = 0

    def wake(self) -> None:
        """From any thread, after something was left here or in the accumulator: the engine looks, if it sleeps."""
        if self._asleep:
            self._asleep = False
            self._ring()

    def tick(self, now_ms: int) -> None:
        self._asleep = False
        while self.topics:
            self._sender.want_topic(self.topics.popleft(), now_ms)
        while self.commands:
            self.commands.popleft()()
        completed = self._sender.completed
        while completed:
            self._telling += 1
            batches, completed[:] = list(completed), ()
            for batch in batches:
                batch.tell(_failed_callback)
            self._telling -= 1
        self._on_change()

    @property
    def is_quiet(self) -> bool:
        """No batch is done whose callbacks have not returned."""
        return not self._telling and not self._sender.completed

    def answer(self, answer: Answer, now_ms: int) -> None:
        raise AssertionError(f"nothing was asked here: {answer.send.purpose}")

    def next_deadline_ms(self) -> int | None:
        # First this, then a look: who comes between them either is seen or rings.
        self._asleep = True
        return 0 if self.topics or self.commands or self._sender.completed else None


def _failed_callback(error: Exception) -> None:
    _log.error("a delivery callback failed: %r", error, exc_info=error)
