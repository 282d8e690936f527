"""Holds the handlers of SIGINT, SIGTERM and SIGHUP back while a client is in the middle of a change.

A handler may raise: that of Ctrl-C does, and one for SIGTERM often ends the program with `sys.exit`. That would leave a
part of a client half done, and with it records that nobody sends or returns any more. So the handlers of signals that
ask a program to end are put aside meanwhile, and called at the next safe place. Handlers of timers are not: a profiler
or a watchdog needs to be called where the program is.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_get_ident = threading.get_ident
_main_ident = threading.main_thread().ident
_HELD = tuple(  # Windows has no SIGHUP
    int(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# Every call of a client comes through here. The `signal` module makes enums of the numbers, which takes 20 µs.
_signal: Any = importlib.import_module("_signal" if sys.implementation.name == "cpython" else "signal")


def new_lock() -> Any:
    """A lock for `with` where signals are not held: follow the `with` by `except BaseException: let_go(lock)`.

    Since Python 3.14 a handler may raise between taking the lock and entering the block: nobody would give it back.
    Only a lock that knows its owner tells whether that was so. Before 3.14 such a lock is slower, and not needed.
    """
    return threading.RLock() if sys.version_info >= (3, 14) else threading.Lock()


def let_go(lock: Any) -> None:
    """Releases a lock that this thread has taken without entering its block; see `new_lock`."""
    with HeldSignals():
        while hasattr(lock, "_is_owned") and lock._is_owned():
            lock.release()


class HeldSignals:
    """The handler meanwhile: it notes the signal and calls `wake`. Python calls handlers on the main thread only."""

    __slots__ = ("_aside", "_came", "_wake")

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self._aside: dict[int, Any] = {}
        self._came: list[int] = []
        self._wake = wake

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number not in self._came:
            self._came.append(number)
        if self._wake is not None:
            self._wake()

    def hold(self) -> bool:
        """Puts the handlers aside. Returns whether there were any: then the caller must `release` them."""
        if self._aside or _get_ident() != _main_ident:
            return False
        try:
            for number in _HELD:
                handler = _signal.getsignal(number)
                if callable(handler) and type(handler) is not HeldSignals:
                    self._aside[number] = handler
                    _signal.signal(number, self)
        except BaseException:  # a handler that was not put aside yet has raised
            self.release()
            raise
        return bool(self._aside)

    def release(self) -> None:
        """Puts the handlers back, and calls those whose signals came meanwhile: they may raise."""
        try:
            while self._aside:
                number = next(iter(self._aside))
                if _signal.getsignal(number) is self:  # else somebody has set another handler since
                    _signal.signal(number, self._aside[number])
                del self._aside[number]
            while self._came:
                _signal.raise_signal(self._came.pop())
        except BaseException:  # a handler that is back has raised
            self.release()
            raise

    def let_in(self) -> bool:
        """Calls, in a safe place, the handlers whose signals came until now. Returns whether there were any."""
        if not self._came or _get_ident() != _main_ident:
            return False
        self.release()
        self.hold()
        return True

    def __enter__(self) -> None:
        self.hold()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
