"""Ctrl-C and SIGTERM between records: none is lost, and none is counted or committed that was not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from kohort.cli.frame.exit_codes import ExitCode


class Interrupts:
    """Keeps a signal until the work of the moment is done; where a program waits, it comes at once.

    A second signal does not wait.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        """How the program must end; None if no signal came."""
        self._may_raise = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Lets a signal raise KeyboardInterrupt within the `with`."""
        self._may_raise = True
        try:
            if self.exit_code is not None:
                raise KeyboardInterrupt
            yield
        finally:
            self._may_raise = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = self.exit_code is not None
        self.exit_code = ExitCode.INTERRUPTED if number == signal.SIGINT else 128 + number
        if self._may_raise or again:
            raise KeyboardInterrupt
