"""What the routes share: the connection to the cluster, the sampler, the events, and who may change something."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from kohort.client.admin import Admin
from kohort.console.errors import RequestRefused
from kohort.console.events import EventHub
from kohort.console.learning import PastLearner
from kohort.console.sampler import Sampler, Snapshot

Pipelines = Callable[[], Sequence[Mapping[str, Any]]]
"""Returns the status of each pipeline, as `kohort pipeline list --json` prints it. The console knows no Spark."""

MOST_READS = 4
"""How many requests may read messages at the same time: each may hold a large message."""


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """What the routes share; they get it by the annotation `Context`."""

    settings: Mapping[str, str]
    admin: Admin
    sampler: Sampler
    past: PastLearner
    hub: EventHub
    read_only: bool
    pipelines: Pipelines | None
    reads: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(MOST_READS))

    def snapshot(self) -> Snapshot:
        """Returns what is known of the cluster; RequestRefused if there never was a sample."""
        snapshot = self.sampler.latest()
        if snapshot is None:
            raise RequestRefused(503, f"the cluster cannot be reached: {self.sampler.reachability.problem}")
        return snapshot


def _context(request: Request) -> ConsoleContext:
    context: ConsoleContext = request.app.state.context
    return context


Context = Annotated[ConsoleContext, Depends(_context)]
