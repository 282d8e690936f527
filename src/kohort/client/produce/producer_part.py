"""What a producer's front leaves for the engine's thread: topics to ask for, commands, and telling who waits."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from kohort.client.core.arguments import shown
from kohort.client.produce.sender import Sender

_log = logging.getLogger("kohort.client.producer")


class ProducerPart:
    """A part that sends nothing itself. It comes before the sender in the engine."""

    def __init__(
        self,
        sender: Sender,
        on_change: Callable[[], None],
        wake: Callable[[], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.topics: deque[str] = deque()
        self.commands: deque[Callable[[], None]] = deque()
        self.failure: Exception | None = None
        """Why metadata cannot be had, for those who wait for a topic."""
        self._sender = sender
        self._on_change = on_change
        self._ring = wake
        self._on_error = on_error
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
        self._tell()

    def tick_failed(self) -> None:
        """Nobody ticks the parts any more: who waits for the records that were ended is told."""
        self._telling = 0
        self._tell()

    def _tell(self) -> None:
        completed = self._sender.completed
        while completed:
            self._telling += 1
            batches, completed[:] = list(completed), ()
            for batch in batches:
                batch.tell(self._on_error)
            self._telling -= 1
        self._on_change()

    @property
    def is_quiet(self) -> bool:
        """No batch is done whose callbacks have not returned."""
        return not self._telling and not self._sender.completed

    def next_deadline_ms(self) -> int | None:
        # First this, then a look: who comes between them either is seen or rings.
        self._asleep = True
        return 0 if self.topics or self.commands or self._sender.completed else None


def log_failed_callback(error: BaseException) -> None:
    """The thread goes on: a callback cannot end it, nor the program, with what it raises."""
    _log.error("a delivery callback failed: %s", shown(error), exc_info=error)
