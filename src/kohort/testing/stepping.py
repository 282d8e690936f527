"""Moves the time of a broker forward; all timers on the way fire in order, each at its time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.broker.groups.coordinator import Groups
    from kohort.broker.net.server import Server
    from kohort.broker.transactions.coordinator import BrokerTransactions

_MOST_STEPS = 10_000
_PAUSE_S = 0.001
_LONGEST_WAIT_S = 30.0


async def advance(server: Server, ms: int) -> None:
    """Moves the clock of a node forward, on its loop; what fell due is done and durable when this returns."""
    broker = server.broker
    end_ms = broker.clock.shift_ms + ms
    await _step_coordinators(broker, end_ms, ms // _MOST_STEPS)
    broker.clock.shift_ms = end_ms
    await _fire_due(broker)
    await _run_retention(server)


async def _step_coordinators(broker: Broker, end_ms: int, at_least_ms: int) -> None:
    """Goes from deadline to deadline; a long time is passed in larger steps, so that a year does not take one."""
    clock = broker.clock
    for _ in range(2 * _MOST_STEPS):
        deadlines = [each.runtime.next_deadline_ms() for each in _coordinators(broker)]
        if broker.has_shares:
            deadlines.append(broker.shares.next_deadline_ms())
        deadline_ms = min((each for each in deadlines if each is not None), default=None)
        if deadline_ms is None:
            return
        step_ms = max(deadline_ms - clock.steady_ms(), at_least_ms, 0)
        if clock.shift_ms + step_ms > end_ms:
            return
        clock.shift_ms += step_ms
        await _fire_due(broker)


def _coordinators(broker: Broker) -> list[Groups | BrokerTransactions]:
    found: list[Groups | BrokerTransactions] = [broker.groups] if broker.has_groups else []
    return [*found, broker.transactions] if broker.has_transactions else found


async def _fire_due(broker: Broker) -> None:
    """Does what is due, and waits until what it has written is durable; in memory it is at once."""
    if broker.has_shares:
        broker.shares.fire_due()
        await _until_written(broker.share_states.shards)
    for coordinator in _coordinators(broker):
        coordinator.fire_due()
        await _until_written(coordinator.runtime.shards)


class _Shard(Protocol):
    @property
    def writes(self) -> Sized: ...


async def _until_written(shards: Sequence[_Shard]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LONGEST_WAIT_S
    while any(len(shard.writes) for shard in shards):
        if loop.time() > deadline:
            raise TimeoutError(f"the disk has not answered for {_LONGEST_WAIT_S:.0f} s")
        await asyncio.sleep(_PAUSE_S)


async def _run_retention(server: Server) -> None:
    """Runs a round of retention and compaction now, whenever the next one would be due."""
    store = server.broker.store
    await _wait_until_idle(server)
    store.upkeep.next_retention_ms = 0
    for topic in store.topics.values():
        for index in range(len(topic.due_ms)):
            topic.due_ms[index] = 0
    server.housekeeping()
    await _wait_until_idle(server)


async def _wait_until_idle(server: Server) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LONGEST_WAIT_S
    while server.broker.store.upkeep.is_busy:
        if loop.time() > deadline:
            raise TimeoutError(f"retention and compaction have not ended within {_LONGEST_WAIT_S:.0f} s")
        await asyncio.sleep(_PAUSE_S)
