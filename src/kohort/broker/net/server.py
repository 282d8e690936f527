"""Runs a broker: its listening sockets, its connections, and the jobs that run by the clock."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from kohort.broker.api_row import Row
from kohort.broker.broker import Broker
from kohort.broker.listeners import Listener
from kohort.broker.names import OFFSETS_TOPIC
from kohort.broker.net.connection import MOST_SPARES, SPARE_BYTES, Connection
from kohort.log.storage.files import files_that_fit
from kohort.log.storage.system_calls import open_files_limit

log = logging.getLogger("kohort.broker")

_SCRATCH_BYTES = 1024 * 1024
_OTHER_FILES = 64  # besides the pool of segment files and connections
_LONGEST_GOODBYE_S = 5.0
"""How long a stop waits for clients that do not read: a container is killed after 10 s, and files must be closed."""


class AcceptingSocket(Protocol):
    """What accepts the connections of one listener: an `asyncio.Server`, or what does the same with TLS."""

    def is_serving(self) -> bool: ...
    def close(self) -> None: ...


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
        self._connections: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self._to_flush: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self.listeners: list[Listener] = []
        self._accepting: list[AcceptingSocket] = []
        self._most_connections = _connections_that_fit()

    async def start(self, bound: Sequence[tuple[Listener, socket.socket]]) -> None:
        """Accepts connections on these sockets, loads the groups, and starts the timers."""
        config = self.broker.config
        for listener, sock in bound:
            self.listeners.append(listener)
            backlog = max(config.socket_listen_backlog_size, 1024)
            self._accepting.append(await self._accept_on(listener, sock, backlog))
        if config.connections_max_idle_ms > 0:
            self._every(min(config.connections_max_idle_ms / 2, 30_000), self._close_idle)
        if OFFSETS_TOPIC in self.broker.store.topics:
            self.broker.groups.begin_load()
        # A partition that did not change since the last round costs nothing; retention has its own interval.
        pause_ms = min(config.log_retention_check_interval_ms, config.log_cleaner_backoff_ms)
        self._every(max(pause_ms, 100), self.housekeeping)

    async def _accept_on(self, listener: Listener, sock: socket.socket, backlog: int) -> AcceptingSocket:
        """Accepts connections on a socket; TLS is loaded where it is needed."""
        connections = self._connections_of(listener)
        if not listener.uses_tls:
            return await self.loop.create_server(connections, sock=sock, backlog=backlog)
        from kohort.broker.net.tls_transport import accept_with_tls

        guard = self.broker.guard
        assert guard is not None, "a listener with TLS has a guard"
        return accept_with_tls(self.loop, sock, backlog, guard.tls[listener.name], connections)

    def _connections_of(self, listener: Listener) -> Callable[[], Connection]:
        """Returns what serves a new client of a listener; classes are loaded where they are needed."""
        is_metered, told = self.broker.meter is not None, listener.told
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
        """Counts a new connection; False if there are too many."""
        config = self.broker.config
        self._connections.add(connection)
        self._addresses[address] += 1
        connection.address = address
        if len(self._connections) > config.max_connections:
            log.warning("refused %s: max.connections is %d", connection.peer, config.max_connections)
            return False
        if len(self._connections) > self._most_connections:
            log.warning(
                "refused %s: the limit of open files is too low; raise it (ulimit -n)", connection.peer
            )
            return False
        if self._addresses[address] > config.max_connections_per_ip:
            limit = config.max_connections_per_ip
            log.warning("refused %s: max.connections.per.ip is %d", connection.peer, limit)
            return False
        return not self.is_stopping

    @property
    def is_accepting(self) -> bool:
        """Whether all listeners take connections."""
        return not self.is_stopping and all(accepting.is_serving() for accepting in self._accepting)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._addresses[connection.address] -= 1
        if not self._addresses[connection.address]:
            del self._addresses[connection.address]

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
        for connection in list(self._connections):
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
        await self._stop_accepting()
        for connection in list(self._connections):
            connection.stop_reading()
        deadline = self.loop.time() + patience_s
        if self.broker.has_groups:
            # Members that wait in a rebalance would wait for members that are not read any more.
            await self.broker.groups.resign(deadline)
        await asyncio.sleep(0)  # what is answered now is sent, even with no patience at all
        while self.loop.time() < deadline and not all(c.is_idle for c in self._connections):
            await asyncio.sleep(0.005)
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)  # lets connection_lost run before the files are closed
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LONGEST_GOODBYE_S)
        if self.broker.has_groups:
            await self.broker.groups.close()
        if not keep_store:
            self.broker.store.close()

    async def _stop_accepting(self) -> None:
        """Closes the listening sockets.

        asyncio's own loop needs two steps: a connection that it accepts while the server is being closed would never
        be closed (python/cpython issue 109564). So accepting ends first, and what was accepted is set up.
        """
        for accepting in self._accepting:
            if isinstance(accepting, asyncio.Server):
                for sock in accepting.sockets:
                    self.loop.remove_reader(sock.fileno())
        await asyncio.sleep(0)
        for accepting in self._accepting:
            accepting.close()


def _connections_that_fit() -> int:
    """Returns how many connections leave enough descriptors for the log; a slow client may take a second one."""
    limit = open_files_limit()
    if limit is None:
        return sys.maxsize
    return max((limit - files_that_fit() - _OTHER_FILES) * 3 // 4, 16)
