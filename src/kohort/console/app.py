"""The app of the console: pages at `/`, the API under `/api`, and what happens when it starts and ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from kohort import __version__
from kohort.client.admin import Admin
from kohort.console.context import ConsoleContext, Pipelines
from kohort.console.errors import answer_errors
from kohort.console.events import EventHub
from kohort.console.following import HistoryFollower
from kohort.console.learning import PastLearner
from kohort.console.routes import changes, cluster, events, groups, topics
from kohort.console.sampler import LONGEST_STEP_S, Sampler
from kohort.console.security import RequestGuard

STATIC = Path(__file__).parent / "static"
PATIENCE_MS = 15_000
"""How long a request waits for the cluster, unless the settings of the client say something else."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """How a console is to work."""

    token: str
    read_only: bool = False
    allowed_hosts: Collection[str] = ()
    """Names by which the console may be reached, besides `localhost` and IP addresses."""
    pipelines: Pipelines | None = None


def create_app(settings: Mapping[str, str], options: ConsoleOptions) -> FastAPI:
    """Makes the app for the cluster that the settings of a client name. The cluster need not be there."""
    settings = {"default.api.timeout.ms": str(PATIENCE_MS), **settings}
    timeout_s = min(LONGEST_STEP_S, int(settings["default.api.timeout.ms"]) / 1000)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        hub = EventHub()
        hub.open()
        with Admin(settings) as admin:
            sampler = Sampler(admin, hub, timeout_s=timeout_s)
            past = PastLearner(admin, settings, sampler)
            app.state.context = ConsoleContext(
                settings, admin, sampler, past, hub, options.read_only, options.pipelines
            )
            follower = HistoryFollower(admin, settings, hub)
            sampler.start()
            follower.start()
            try:
                yield
            finally:
                hub.close()
                admin.close()
                await to_thread.run_sync(sampler.close)
                await to_thread.run_sync(follower.close)
                await to_thread.run_sync(past.close)

    app = FastAPI(
        title="Kohort console",
        version=__version__,
        description="Groups, topics and nodes of a Kafka cluster. Names of groups and topics are query parameters.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=life,
    )
    answer_errors(app)
    for routes in (cluster, groups, topics, changes, events):
        app.include_router(routes.router)
    app.add_middleware(
        RequestGuard, allowed_hosts=options.allowed_hosts, token=options.token, read_only=options.read_only
    )
    app.mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False), name="static")
    return app
