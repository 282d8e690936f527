"""Decides how many connections are accepted, and who gives way when there are too many.

Clients that have not said who they are have a share of all connections. Over it, the oldest of them gives way: a client
with a password needs milliseconds to show it, so whoever says nothing keeps nobody out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.broker.net.acceptor import Acceptor, CreationRate
from kohort.broker.net.refusals import Refusals, network_of

if TYPE_CHECKING:
    from kohort.broker.broker import Broker
    from kohort.broker.listeners import Listener
    from kohort.broker.net.connection import Connection

log = logging.getLogger("kohort.broker")

_UNKNOWN_SHARE = 4  # a quarter of all connections is for clients that have not said who they are
_LEAST_UNKNOWN = 64
_TIME_TO_SPEAK_S = 1.0
"""How long such a client is left alone when all connections are taken."""
_SOON_S = 0.01
_BETWEEN_LINES_S = 60.0
_LOOK_AGAIN_S = 1.0
"""One that has just been accepted may turn out to be silent, and a limit may be raised."""

NewConnection = Callable[[], "Connection"]
Begin = Callable[["Connection", socket.socket], None]
"""Serves an accepted socket by a connection."""


class Admission:
    """The connections of one broker, by address and by listener, and the limits of both."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop, most_that_fit: int) -> None:
        self._broker, self._loop, self._most_that_fit = broker, loop, most_that_fit
        self.connections: set[Connection] = set()
        self._beginning: set[Connection] = set()  # accepted, and not served yet
        self.refusals = Refusals()
        self._acceptors: list[Acceptor] = []
        self._addresses: Counter[str] = Counter()
        self._of_listeners: list[set[Connection]] = []
        self._rate = CreationRate()
        self._told_s = -_BETWEEN_LINES_S
        self._unknown: dict[Connection, None] = {}  # the oldest first
        self._unknown_of: dict[str, dict[Connection, None]] = {}  # the same by network

    def accept(
        self, listener: Listener, sock: socket.socket, new_connection: NewConnection, begin: Begin
    ) -> None:
        """Accepts connections on a socket, as the limits allow."""
        guard, rate = self._broker.guard, CreationRate()
        own: set[Connection] = set()
        most, most_a_second = (sys.maxsize, sys.maxsize) if guard is None else guard.limits(listener.name)
        self._of_listeners.append(own)

        def wait_s(is_one_there: bool) -> float:
            now_s = self._loop.time()
            if len(own) >= most or len(self.connections) + len(self._beginning) >= self.most:
                if is_one_there:
                    self._tell_that_all_are_taken(listener, most, now_s)
                return self._make_way(now_s) if self._unknown else _LOOK_AGAIN_S
            of_broker = self._rate.wait_s(self._broker.config.max_connection_creation_rate, now_s)
            return max(rate.wait_s(most_a_second, now_s), of_broker)

        def accepted(sock: socket.socket) -> None:
            rate.count()
            self._rate.count()
            connection = new_connection()
            own.add(connection)
            self._beginning.add(connection)
            begin(connection, sock)

        self._acceptors.append(Acceptor(self._loop, sock, wait_s, accepted))

    @property
    def is_accepting(self) -> bool:
        """Whether all listeners take connections."""
        return all(acceptor.is_serving() for acceptor in self._acceptors)

    def close(self) -> None:
        """Accepts nothing more."""
        for acceptor in self._acceptors:
            acceptor.close()

    @property
    def most(self) -> int:
        """How many connections the broker takes: those of the setting, or fewer if the system allows fewer."""
        return min(self._broker.config.max_connections, self._most_that_fit)

    def _tell_that_all_are_taken(self, listener: Listener, most_of_listener: int, now_s: float) -> None:
        """Writes that clients wait, once a minute, and what to do."""
        if now_s - self._told_s < _BETWEEN_LINES_S:
            return
        self._told_s = now_s
        most, setting = self.most, "max.connections"
        if len(self.connections) + len(self._beginning) < most:
            most, setting = most_of_listener, f"listener.name.{listener.name.lower()}.max.connections"
        elif most == self._most_that_fit:
            setting = "the limit of open files (ulimit -n)"
        log.warning("all %d connections are taken, and new clients wait; raise %s", most, setting)

    def admit(self, connection: Connection, address: str) -> bool:
        """Takes a connection that begins, and counts it under its address; False if that has too many."""
        self._beginning.discard(connection)
        self.connections.add(connection)
        connection.address = address
        self._addresses[address] += 1
        most = self._broker.config.max_connections_of(address)
        if self._addresses[address] > most:
            self.complain(connection, f"max.connections.per.ip is {most}")
            return False
        return True

    def forget(self, connection: Connection) -> None:
        """Hears that a connection is gone, or that nothing became of it."""
        if connection not in self.connections and connection not in self._beginning:
            return
        self.connections.discard(connection)
        self._beginning.discard(connection)
        for own in self._of_listeners:
            own.discard(connection)
        if connection.address:
            self._addresses[connection.address] -= 1
            if not self._addresses[connection.address]:
                del self._addresses[connection.address]
        self.is_known(connection)
        for acceptor in self._acceptors:
            acceptor.go_on()

    def complain(self, connection: Connection, reason: str) -> None:
        """Writes why a connection is closed: one line a minute for each address and reason."""
        now_ms = self._broker.clock.steady_ms()
        self.refusals.tell(connection.peer, connection.address, reason, now_ms)

    # --- clients that have not said who they are --------------------------------------------------

    def is_unknown(self, connection: Connection) -> None:
        """Counts a connection that has yet to say who it is."""
        self._unknown[connection] = None
        own = self._unknown_of.setdefault(network_of(connection.address), {})
        own[connection] = None
        share = max(self.most // _UNKNOWN_SHARE, min(_LEAST_UNKNOWN, self.most))
        if len(self._unknown) > share:
            # Whoever has most of the share gives way to himself.
            oldest = next(iter(own if 2 * len(own) > share else self._unknown))
            self.is_known(oldest)
            oldest.close_because("too many clients have not authenticated; the oldest gives way")

    def is_known(self, connection: Connection) -> None:
        """Hears that it has said so, or that it is gone."""
        if connection in self._unknown:
            del self._unknown[connection]
            network = network_of(connection.address)
            own = self._unknown_of[network]
            del own[connection]
            if not own:
                del self._unknown_of[network]

    def _make_way(self, now_s: float) -> float:
        """Closes the oldest client that has not said who it is, if it had its time; returns when to look again."""
        oldest = next(iter(self._unknown))
        left_s = oldest.begun_s + _TIME_TO_SPEAK_S - now_s
        if left_s > 0:
            return left_s
        self.is_known(oldest)
        oldest.close_because("max.connections is reached, and it has not authenticated")
        return _SOON_S
