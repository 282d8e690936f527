"""How a call that waits is written once for the blocking and the asyncio front.

A call is a generator. Where it must wait it yields `Until`, where it wants what has arrived `Look`, where the user's
own code must run `Call`; the front does that in its own way and sends the result in: whether the condition came true
in time, or what the user's function returned (or raised: the exception is thrown in).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Until:
    """Wait for the condition, at most until the deadline."""

    condition: Callable[[], bool]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Look:
    """Read what has arrived, without waiting. Other tasks of an event loop get their turn."""


@dataclass(frozen=True, slots=True)
class Call:
    """Run the user's code, with nothing locked. A coroutine function is awaited by the asyncio front."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Steps = Generator[Until | Look | Call, Any, T]
