"""Does on the engine's thread what a producer's front asks for: metadata of topics, commands, delivery callbacks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from kohort.client.core.arguments import shown
from kohort.client.produce.sender import Sender

_log = logging.getLogger("kohort.client.producer")


class ProducerPart:
    """A part that sends nothing itself; it comes before the sender in the engine."""

    def __init__(
        self,
        sender: Sender,
        on_change: Callable[[], None],
        waker: Callable[[], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.topics: deque[str] = deque()
        self.commands: deque[Callable[[], None]] = deque()
        self.failure: Exception | None = None
        """Why metadata cannot be had, for callers that wait for a topic."""
        self._sender = sender
        self._on_change = on_change
        self._waker = waker
        self._on_error = on_error
        self._asleep = False
        self._telling = 0

    def wake(self) -> None:
        """Wakes the engine if it sleeps; called from any thread after a change here or in the accumulator."""
        if self._asleep:
            self._asleep = False
            self._waker()

    def tick(self, now_ms: int) -> None:
        self._asleep = False
        while self.topics:
            self._sender.want_topic(self.topics.popleft(), now_ms)
        while self.commands:
            self.commands.popleft()()
        self._tell()

    def tick_failed(self) -> None:
        """Calls the callbacks and waiters of all batches that were ended when the engine failed; no tick follows."""
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

    def changed(self) -> None:
        """Has those who wait look again: something ended that is no batch."""
        self._on_change()

    @property
    def is_quiet(self) -> bool:
        """Whether the callbacks of all batches that are done have returned."""
        return not self._telling and not self._sender.completed

    def next_deadline_ms(self) -> int | None:
        # The flag is set before the look: a thread that comes between the two is either seen or wakes the engine.
        self._asleep = True
        return 0 if self.topics or self.commands or self._sender.completed else None


def log_failed_callback(error: BaseException) -> None:
    """Logs what a delivery callback raised; that ends neither the producer's thread nor the program."""
    _log.error("a delivery callback failed: %s", shown(error), exc_info=error)
