"""The calls about metrics that all six clients have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.client.core import arguments
from kohort.client.core.metrics import Metrics

if TYPE_CHECKING:
    from kohort.client.io.engine import Pump


class MeasuredClient:
    """A client that counts what it does; `kohort.prometheus` and others read it off `metrics()`."""

    _engine: Pump

    def metrics(self) -> Metrics:
        """Returns what this client has counted, by Kafka's names. From any thread, also after `close`.

        Look one up by its name, and by tags: `consumer.metrics().value("records-lag", topic="orders", partition=0)`.
        """
        return self._engine.metrics()

    def on_close(self, call: Callable[[], object]) -> None:
        """Has `call()` called when this client is closed: for what shows its metrics elsewhere."""
        arguments.function(call, "the function to call on close", optional=False)
        self._engine.on_close(call)
