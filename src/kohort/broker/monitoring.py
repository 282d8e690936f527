"""Serves the metrics and the health of a running broker over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import TimeoutError as TooLate
from pathlib import Path
from typing import TypeVar

from kohort.broker.metrics import BrokerMetrics
from kohort.broker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kohort.broker.net.server import Server
from kohort.coordinator.shard import ShardStatus
from kohort.exposition import HealthReport, MetricsServer, Samples, metrics_address, registry_of
from kohort.transactions.shard import TransactionShardStatus

T = TypeVar("T")

_SCRAPE_S = 30.0
_HEALTH_S = 5.0
"""How long the event loop may take to answer before the broker counts as not alive."""


class Monitoring:
    """Metrics and health of one broker, until `close`. It is made on the event loop, and asked by other threads."""

    def __init__(self, server: Server, where: str) -> None:
        self._server = server
        self._metrics = BrokerMetrics(server)
        registry = registry_of(self._samples, of_process=True)
        self._http = MetricsServer(
            metrics_address(where), registry, healthz=self._healthz, readyz=self._readyz
        )
        if server.broker.meter is not None:
            server.broker.meter.watch(server.loop)

    @property
    def address(self) -> str:
        """Where the metrics are."""
        return self._http.address

    async def close(self) -> None:
        if self._server.broker.meter is not None:
            self._server.broker.meter.close()
        await self._server.loop.run_in_executor(None, self._http.close)

    # --- on threads of the HTTP server -------------------------------------------------------------

    def _on_loop(self, work: Callable[[], T], timeout_s: float) -> T:
        async def run() -> T:
            return work()

        running = asyncio.run_coroutine_threadsafe(run(), self._server.loop)
        try:
            return running.result(timeout_s)
        except TooLate:
            running.cancel()
            raise

    def _samples(self) -> Samples:
        return self._on_loop(self._metrics.samples, _SCRAPE_S)

    def _healthz(self) -> HealthReport:
        return self._report(lambda: HealthReport())

    def _readyz(self) -> HealthReport:
        report = self._report(lambda: readiness(self._server))
        directory = self._server.broker.store.directory
        if directory is not None and report.is_good and (problem := _disk_problem(directory)):
            return HealthReport((problem,), report.details)
        return report

    def _report(self, look: Callable[[], HealthReport]) -> HealthReport:
        try:
            return self._on_loop(look, _HEALTH_S)
        except TooLate:
            return HealthReport((f"the event loop has not answered for {_HEALTH_S:.0f} s",))


def readiness(server: Server) -> HealthReport:
    """Tells whether clients can be served, on the event loop: listeners accept, groups are loaded, writes work."""
    broker, problems = server.broker, []
    if not server.is_accepting:
        why = "the broker is stopping" if server.is_stopping else "a listener does not accept connections"
        problems.append(why)
    loading = failed = 0
    if broker.has_groups:
        statuses = [shard.status for shard in broker.groups.runtime.shards]
        loading = statuses.count(ShardStatus.LOADING)
        # Before the first group there is no topic to load from; after that a shard that is not loaded has failed.
        if OFFSETS_TOPIC in broker.store.topics:
            failed = statuses.count(ShardStatus.NOT_LOADED)
    if broker.has_transactions:
        states = [shard.status for shard in broker.transactions.runtime.shards]
        if left := states.count(TransactionShardStatus.LOADING):
            problems.append(
                f"transactional ids are being loaded: {left} partitions of __transaction_state are left"
            )
        broken = states.count(TransactionShardStatus.NOT_LOADED)
        if broken and TRANSACTIONS_TOPIC in broker.store.topics:
            problems.append(
                f"{broken} partitions of __transaction_state could not be loaded; the log says why"
            )
    if loading:
        problems.append(f"groups are being loaded: {loading} partitions of __consumer_offsets are left")
    if failed:
        problems.append(f"{failed} partitions of __consumer_offsets could not be loaded; the log says why")
    stopped = [
        f"{name}-{index}: {partition.stopped}"
        for name, topic in broker.store.topics.items()
        for index, partition in enumerate(topic.partitions)
        if partition.stopped is not None
    ]
    if stopped:
        problems.append(f"{len(stopped)} partitions take no records any more: {'; '.join(stopped[:3])}")
    listeners = [str(listener.told) for listener in server.listeners]
    return HealthReport(tuple(problems), {"node": broker.node_id, "listeners": listeners})


def _disk_problem(directory: Path) -> str | None:
    """Tells why the directory cannot be written to, if that can be seen without writing."""
    try:
        disk = os.statvfs(directory)
    except OSError as error:
        return f"the data directory {directory} cannot be read: {error.strerror}"
    if disk.f_bavail == 0:
        return f"the disk of {directory} is full"
    if not os.access(directory, os.W_OK):
        return f"the data directory {directory} cannot be written to"
    return None
