"""The steps of a call that waits, written once for the blocking and the asyncio front.

A call is a generator. Where it must wait it yields `Until`; where it wants what has arrived, `Look`; where the user's
own code must run, `CallUser`. The front does that in its own way and sends the result in: whether the condition came
true in time, or what the user's function returned (or raised: the exception is thrown in).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Until:
    """Waits for the condition, at most until the deadline."""

    condition: Callable[[], bool]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Look:
    """Reads what has arrived, without waiting. Other tasks of an event loop may run."""


@dataclass(frozen=True, slots=True)
class CallUser:
    """Runs the user's code, with nothing locked. The asyncio front awaits a coroutine function."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Steps = Generator[Until | Look | CallUser, Any, T]
