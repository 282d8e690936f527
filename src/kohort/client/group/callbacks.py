"""The queue of rebalance callbacks that the user's thread is to run: revoked, then assigned; or lost.

The user's functions run in the user's own thread, one at a time. What must be done with the subscription before and
after each is kept here with it, so that the user sees the assignment as Kafka shows it: partitions are still owned
while `revoked` runs, and already owned while `assigned` runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from kohort.client.core.arguments import raised_by
from kohort.client.types import TopicPartition


class CallbackKind(Enum):
    """Which of the user's functions is called."""

    REVOKED = "revoked"
    ASSIGNED = "assigned"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Callback:
    """A call that the front is to make: the user's function for `kind`, with these partitions (sorted)."""

    kind: CallbackKind
    partitions: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return f"{self.kind.value} {names(self.partitions)}"


@dataclass(frozen=True, slots=True)
class _Step:
    callback: Callback
    before: Callable[[], None] | None
    after: Callable[[], None] | None


class Callbacks:
    """Callbacks in their order. All of them run, whatever they raise; the first exception is kept."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()
        self.first_error: Exception | None = None

    def add(
        self,
        kind: CallbackKind,
        partitions: Iterable[TopicPartition],
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self._steps.append(_Step(Callback(kind, tuple(sorted(partitions))), before, after))

    def begin(self) -> None:
        """Makes the first callback ready to be run."""
        if self._steps and (before := self._steps[0].before) is not None:
            self.keep(_run(before))

    @property
    def current(self) -> Callback | None:
        return self._steps[0].callback if self._steps else None

    def done(self, error: BaseException | None) -> bool:
        """The current callback has run. Returns whether it was the last."""
        step = self._steps.popleft()
        self.keep(error)
        if step.after is not None:
            step.after()
        self.begin()
        return not self._steps

    def drop(self) -> None:
        """Forgets the callbacks that have not run: what follows tells the user everything."""
        self._steps.clear()

    def keep(self, error: BaseException | None) -> None:
        if self.first_error is None and isinstance(error, Exception):
            self.first_error = error

    def take_error(self) -> Exception | None:
        error, self.first_error = self.first_error, None
        return error


def _run(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except BaseException as error:  # from on_assignment of an assignor; others may need this thread
        return raised_by("on_assignment of the assignor", error)
    return None


def names(partitions: Iterable[TopicPartition]) -> str:
    """The partitions for people, as in "orders-0, orders-3"."""
    return ", ".join(map(str, sorted(partitions))) or "nothing"
