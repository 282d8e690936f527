"""The stream of events: a page learns from it when to ask again."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from kohort.console.context import Context
from kohort.console.errors import ERRORS, RequestRefused
from kohort.console.events import MOST_PAGES

router = APIRouter(responses=ERRORS, tags=["events"])


@router.get(
    "/api/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Events, until one side ends."}},
)
async def events(context: Context) -> StreamingResponse:
    """Streams server-sent events, for as long as the page is open.

    - `sample` {at_ms}: the cluster was looked at again
    - `cluster` {reachable, since_ms, problem}: the cluster cannot be reached any more, or can again
    - `rebalance` {group, rebalance}: a rebalance began or went on; `rebalance` is as in /api/group/rebalances
    """
    if context.hub.is_full:
        raise RequestRefused(503, f"{MOST_PAGES} pages listen already: close some", "too_many_pages")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(context.hub.listen(), media_type="text/event-stream", headers=headers)
