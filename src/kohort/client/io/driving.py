"""Runs the steps of a call (core/steps.py) on an engine, blocking or on an event loop."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from kohort.client.config import ClientConfig
from kohort.client.core import arguments
from kohort.client.core.steps import Look, Steps, T, Until
from kohort.client.io.engine import Engine

if TYPE_CHECKING:
    from kohort.client.io.async_engine import AsyncEngine  # a program without asyncio does not load it


def deadline_after(engine: Engine | AsyncEngine, config: ClientConfig, timeout: float | None) -> int:
    """Returns a deadline in the engine's milliseconds; without a timeout `default.api.timeout.ms` holds."""
    if timeout is None:
        return engine.now_ms() + config.default_api_timeout_ms
    return engine.now_ms() + int(arguments.seconds(timeout) * 1000)


def run_steps(engine: Engine, steps: Steps[T], *, wakeable: bool = True, pump: bool = True) -> T:
    """Runs the steps under the engine's lock and the user's code without it.

    With `pump` the engine sends at once what the steps have asked for.
    """
    value: Any = None
    error: BaseException | None = None
    while True:
        with engine.shielded():
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                if pump:
                    engine.pump()
                return end.value  # type: ignore[no-any-return]
        value = error = None
        try:
            if isinstance(step, Until):
                value = engine.run(step.condition, step.deadline_ms, wakeable=wakeable)
            elif isinstance(step, Look):
                engine.look(wakeable=wakeable)
            else:
                value = step.function(*step.arguments)
        except BaseException as raised:
            error = raised


async def run_steps_async(
    engine: AsyncEngine, steps: Steps[T], *, wakeable: bool = True, pump: bool = True
) -> T:
    """Runs the steps on an event loop, where no lock is needed. The user's code may be a coroutine function."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            if pump:
                engine.drive()
            return end.value  # type: ignore[no-any-return]
        value = error = None
        try:
            if isinstance(step, Until):
                value = await engine.wait(step.condition, step.deadline_ms, wakeable=wakeable)
            elif isinstance(step, Look):
                await engine.look(wakeable=wakeable)
            else:
                value = step.function(*step.arguments)
                if inspect.isawaitable(value):
                    value = await value
        except BaseException as raised:
            error = raised
