"""Operation: what a caller waits for, such as a commit. A part finishes it; a front waits for it and raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Operation(Generic[T]):
    """Ends once, with a result or an error. Functions given to `on_done` are called then, or at once if it is done."""

    __slots__ = ("deadline_ms", "done", "result", "error", "_on_done")

    def __init__(self, deadline_ms: int | None = None) -> None:
        self.deadline_ms = deadline_ms
        self.done = False
        self.result: T | None = None
        self.error: Exception | None = None
        self._on_done: list[Callable[[Operation[T]], None]] = []

    @classmethod
    def of(cls, result: T) -> Operation[T]:
        """Makes an operation that is done."""
        made = cls()
        made.finish(result)
        return made

    def on_done(self, call: Callable[[Operation[T]], None]) -> None:
        if self.done:
            call(self)
        else:
            self._on_done.append(call)

    def finish(self, result: T) -> None:
        if not self.done:
            self.result = result
            self._close()

    def fail(self, error: Exception) -> None:
        if not self.done:
            self.error = error
            self._close()

    def value(self) -> T:
        """Returns the result of an operation that is done, or raises its error."""
        assert self.done, "the operation is still under way"
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]

    def _close(self) -> None:
        self.done = True
        calls, self._on_done = self._on_done, []
        for call in calls:
            call(self)
