"""Rebalances for people: the reason first, then how it went."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kohort.cli.frame.output import short_ids
from kohort.coordinator.history import RUNNING, Rebalance


def rebalance_text(each: Rebalance) -> str:
    """Writes one rebalance as some lines."""
    return short_ids("\n".join(_lines(each)))


def _lines(each: Rebalance) -> Iterator[str]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.began_ms / 1000))
    after = "…" if each.generation_after is None else each.generation_after
    count, joined, synced = each.words
    yield f"{began}  {count} {each.generation_before} → {after}  {each.reason}"
    steps = []
    if each.join_ms is not None:
        last = f" (last {each.last_to_join})" if each.last_to_join else ""
        steps.append(f"{joined} in {each.join_ms} ms{last}")
    if each.sync_ms is not None:
        last = f" (last {each.last_to_sync})" if each.last_to_sync else ""
        steps.append(f"{synced} in {each.sync_ms} ms{last}")
    steps.append("under way" if each.outcome == RUNNING else f"{each.outcome}, {each.size} members")
    yield f"    {', '.join(steps)}"
    for member_id, what, since_ms in each.holding:
        since = time.strftime("%H:%M:%S", time.localtime(since_ms / 1000))
        yield f"    waits for: {member_id}, which has yet to give up {what} (since {since})"
    if each.came:
        yield f"    came: {', '.join(each.came)}"
    for member_id, why in each.went:
        yield f"    went: {member_id} ({why})"
    if each.moved:
        yield f"    new assignment: {', '.join(each.moved)}"
