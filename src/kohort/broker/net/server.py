"""Runs a broker: its listening sockets, its connections, and the jobs that run by the clock."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from kohort.broker.api_row import Row
from kohort.broker.broker import Broker
from kohort.broker.listeners import Listener
from kohort.broker.names import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kohort.broker.net.admission import Admission, Begin
from kohort.broker.net.connection import MOST_SPARES, SPARE_BYTES, Connection
from kohort.log.storage.files import files_that_fit
from kohort.log.storage.system_calls import open_files_limit

log = logging.getLogger("kohort.broker")

_SCRATCH_BYTES = 1024 * 1024
_OTHER_FILES = 64  # besides the pool of segment files and connections
_LONGEST_GOODBYE_S = 5.0
"""How long a stop waits for clients that do not read: a container is killed after 10 s, and files must be closed."""


class Server:
    """Serves one broker on its listeners until `stop`. Lives on one event loop."""

    def __init__(self, broker: Broker, table: dict[int, Row]) -> None:
        self.broker = broker
        self.table = table
        self.loop = asyncio.get_running_loop()
        # All connections read into this buffer: the loop handles what one has sent before it reads from the next.
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        # Buffers for large frames that come in pieces. They are reused, because fresh memory has to be zeroed; what
        # was not used yet is not resident.
        self.spares = [bytearray(SPARE_BYTES) for _ in range(MOST_SPARES)]
        self.is_stopping = False
        self._to_flush: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self.listeners: list[Listener] = []
        self.admission = Admission(broker, self.loop, _connections_that_fit())

    async def start(self, bound: Sequence[tuple[Listener, socket.socket]]) -> None:
        """Accepts connections on these sockets, loads the groups, and starts the timers."""
        config = self.broker.config
        for listener, sock in bound:
            self.listeners.append(listener)
            sock.listen(max(config.socket_listen_backlog_size, 1024))
            self.admission.accept(listener, sock, self._connections_of(listener), self._begins_on(listener))
        if config.connections_max_idle_ms > 0:
            self._every(min(config.connections_max_idle_ms / 2, 30_000), self._close_idle)
        if OFFSETS_TOPIC in self.broker.store.topics:
            self.broker.groups.begin_load()
        if TRANSACTIONS_TOPIC in self.broker.store.topics:
            self.broker.transactions.begin_load()
        if SHARE_TOPIC in self.broker.store.topics:
            self.broker.share_states.begin_load()
        # A partition that did not change since the last round costs nothing; retention has its own interval.
        pause_ms = min(config.log_retention_check_interval_ms, config.log_cleaner_backoff_ms)
        self._every(max(pause_ms, 100), self.housekeeping)

    def _begins_on(self, listener: Listener) -> Begin:
        """Returns what serves an accepted socket by a connection; TLS is loaded where it is needed."""
        if listener.uses_tls:
            from kohort.broker.net.tls_transport import begin_with_tls

            guard = self.broker.guard
            assert guard is not None, "a listener with TLS has a guard"
            return partial(begin_with_tls, self.loop, guard.tls[listener.name])
        return lambda connection, sock: self.run(self._begin(connection, sock))

    async def _begin(self, connection: Connection, sock: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: connection, sock)
        except OSError as error:  # the client is gone already
            log.debug("a connection ended before it began: %s", error)
            sock.close()
            self.admission.forget(connection)

    def _connections_of(self, listener: Listener) -> Callable[[], Connection]:
        """Returns what serves a new client of a listener; classes are loaded where they are needed."""
        is_metered, told = self.broker.meter is not None, listener.advertised
        if listener.uses_sasl:
            from kohort.broker.net import sasl_connection

            guard = self.broker.guard
            assert guard is not None, "a listener with SASL has a guard"
            if not is_metered:
                return partial(sasl_connection.SaslConnection, self, told, guard.offer(listener.name))
            from kohort.broker.net.metered_sasl import MeteredSaslConnection

            return partial(MeteredSaslConnection, self, told, guard.offer(listener.name))
        if not is_metered:
            return partial(Connection, self, told)
        from kohort.broker.net.metered import MeteredConnection

        return partial(MeteredConnection, self, told)

    # --- connections -------------------------------------------------------------------------------

    def admit(self, connection: Connection, address: str) -> bool:
        """Counts a new connection; False if it is not wanted."""
        return self.admission.admit(connection, address) and not self.is_stopping

    @property
    def is_accepting(self) -> bool:
        """Whether all listeners take connections."""
        return not self.is_stopping and self.admission.is_accepting

    @property
    def connection_count(self) -> int:
        return len(self.admission.connections)

    def forget(self, connection: Connection) -> None:
        self.admission.forget(connection)

    def flush_soon(self, connection: Connection) -> None:
        """Sends its answers at the end of this iteration of the loop, with those of all others, by one callback."""
        if not self._to_flush:
            self.loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        ready, self._to_flush = self._to_flush, []
        for connection in ready:
            try:
                connection.flush_and_go_on()
            except Exception:
                log.exception("closing the connection of %s: it cannot go on", connection.peer)
                connection.close()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a handler that waits for the disk."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- by the clock ------------------------------------------------------------------------------

    def _every(self, period_ms: float, job: Callable[[], None]) -> None:
        slot = len(self._timers)

        def fire() -> None:
            try:
                job()
            except Exception:
                log.exception("a background job failed")
            self._timers[slot] = self.loop.call_later(period_ms / 1000, fire)

        self._timers.append(self.loop.call_later(period_ms / 1000, fire))

    def _close_idle(self) -> None:
        oldest = self.loop.time() - self.broker.config.connections_max_idle_ms / 1000
        for connection in list(self.admission.connections):
            if connection.last_active < oldest and connection.is_idle:
                log.info("closing the connection of %s: idle", connection.peer)
                connection.close()

    def housekeeping(self) -> None:
        """Begins a round of retention and compaction with the settings of now."""
        if self.broker.quotas is not None:
            self.broker.quotas.forget_unused()
        config, store = self.broker.config, self.broker.store
        store.set_upkeep(
            compacts=config.log_cleaner_enable,
            max_keys=config.max_compaction_keys,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            retention_interval_ms=config.log_retention_check_interval_ms,
        )
        store.housekeeping(self.broker.now_ms())

    # --- the end -----------------------------------------------------------------------------------

    async def stop(self, *, keep_store: bool = False, patience_s: float = _LONGEST_GOODBYE_S) -> None:
        """Accepts nothing new, answers what is under way, and closes the store, unless another server takes it over."""
        self.is_stopping = True
        for timer in self._timers:
            timer.cancel()
        self.admission.close()
        for connection in list(self.admission.connections):
            connection.stop_reading()
        deadline = self.loop.time() + patience_s
        await self._resign(deadline)
        await asyncio.sleep(0)  # what is answered now is sent, even with no patience at all
        while self.loop.time() < deadline and not all(c.is_idle for c in self.admission.connections):
            await asyncio.sleep(0.005)
        for connection in list(self.admission.connections):
            connection.close()
        await asyncio.sleep(0)  # lets connection_lost run before the files are closed
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LONGEST_GOODBYE_S)
        await self._close_coordinators()
        if self.broker.guard is not None:
            self.broker.guard.workers.close()
        if not keep_store:
            self.broker.store.close()

    async def _resign(self, deadline: float) -> None:
        """Lets the coordinators finish what they are writing; they refuse all requests then."""
        if self.broker.has_transactions:
            await self.broker.transactions.resign(deadline)
        if self.broker.has_groups:
            # Members that wait in a rebalance would wait for members that are not read any more.
            await self.broker.groups.resign(deadline)
        if self.broker.has_share_states:
            await self.broker.share_states.resign(deadline)

    async def _close_coordinators(self) -> None:
        if self.broker.has_transactions:
            await self.broker.transactions.close()
        if self.broker.has_shares:
            await self.broker.shares.close()
        if self.broker.has_share_states:
            await self.broker.share_states.close()
        if self.broker.has_groups:
            await self.broker.groups.close()


def _connections_that_fit() -> int:
    """Returns how many connections leave enough descriptors for the log; a slow client may take a second one."""
    limit = open_files_limit()
    if limit is None:
        return sys.maxsize
    return max((limit - files_that_fit() - _OTHER_FILES) * 3 // 4, 16)
