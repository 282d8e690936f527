"""How the blocking fronts run a call: the steps under the engine's lock, the user's code without it."""

from __future__ import annotations

from typing import Any

from kohort.client.config import ClientConfig
from kohort.client.engine import Engine
from kohort.client.steps import Steps, T, Until


def deadline_after(engine: Engine, config: ClientConfig, timeout: float | None) -> int:
    """In the engine's milliseconds; without a timeout `default.api.timeout.ms` holds."""
    if timeout is None:
        return engine.now_ms() + config.default_api_timeout_ms
    if timeout < 0:
        raise ValueError(f"a timeout cannot be negative: {timeout}")
    return engine.now_ms() + int(timeout * 1000)


def run_steps(engine: Engine, steps: Steps[T]) -> T:
    value: Any = None
    error: BaseException | None = None
    while True:
        with engine.lock:
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                engine.pump(engine.now_ms())
                return end.value  # type: ignore[no-any-return]
        value = error = None
        try:
            if isinstance(step, Until):
                value = engine.run(step.condition, step.deadline_ms)
            else:
                value = step.function(*step.arguments)
        except BaseException as raised:
            error = raised
