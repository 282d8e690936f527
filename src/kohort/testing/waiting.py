"""Waits that end: until something is so, or until the time is over. In two forms, blocking and for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_PAUSE_S = 0.002


def wait_until(is_so: Callable[[], bool], timeout: float, otherwise: Callable[[], str]) -> None:
    """TimeoutError with the words of `otherwise` if it is not so after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not is_so():
        if time.monotonic() >= deadline:
            raise TimeoutError(otherwise())
        time.sleep(_PAUSE_S)


async def wait_until_async(
    is_so: Callable[[], bool],
    timeout: float,
    otherwise: Callable[[], str],
) -> None:
    """As `wait_until`; the caller's event loop goes on meanwhile."""
    deadline = time.monotonic() + timeout
    while not is_so():
        if time.monotonic() >= deadline:
            raise TimeoutError(otherwise())
        await asyncio.sleep(_PAUSE_S)
