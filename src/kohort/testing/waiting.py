"""Waits for a condition with a timeout, blocking or on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_PAUSE_S = 0.002


def wait_until(condition: Callable[[], bool], timeout: float, message: Callable[[], str]) -> None:
    """Waits until the condition holds; after `timeout` seconds raises TimeoutError with the words of `message`."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(message())
        time.sleep(_PAUSE_S)


async def wait_until_async(
    condition: Callable[[], bool],
    timeout: float,
    message: Callable[[], str],
) -> None:
    """Does what `wait_until` does, while the caller's event loop runs on."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(message())
        await asyncio.sleep(_PAUSE_S)
