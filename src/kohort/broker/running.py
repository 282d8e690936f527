"""Runs a broker inside this process, for tests and demos.

    with kohort.broker.running() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs on a thread and an event loop of its own, on a free port of 127.0.0.1, and keeps everything in memory unless it
is given a directory. `async with` works too. Any number can run at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from kohort.broker.directory import data_directory
from kohort.broker.node import start, start_again
from kohort.log.storage.system_calls import check_system
from kohort.portable import PORTABLE

if TYPE_CHECKING:
    from kohort.broker.api_row import Row
    from kohort.broker.clock import Clock
    from kohort.broker.net.server import Server

T = TypeVar("T")

_DEFAULTS = {"durability": "memory", "group.initial.rebalance.delay.ms": "0"}


def new_event_loop(kind: str = "uvloop") -> asyncio.AbstractEventLoop:
    """Makes an event loop: uvloop's where it is wanted and installed, else asyncio's own, as in the portable way."""
    if kind != "uvloop" or PORTABLE:
        return asyncio.new_event_loop()
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class running:
    """Starts a broker on a thread; `bootstrap_servers` says where. Stops it at the end of the `with`.

    `settings` are the broker's, by Kafka's names; as keywords with underscores: `running(num_partitions=3)`.
    It listens where `listen` or the setting `listeners` says. With a directory (or `log.dirs`) and no `durability` the
    data is durable on disk. `event_loop="asyncio"` runs it without uvloop. A metered broker counts for its metrics.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        listen: str | None = None,
        advertise: str | None = None,
        settings: Mapping[str, object] | None = None,
        event_loop: str = "uvloop",
        clock: Clock | None = None,
        table: dict[int, Row] | None = None,
        is_metered: bool = False,
        **keywords: object,
    ) -> None:
        given = {name: _text(value) for name, value in (settings or {}).items()}
        given |= {name.replace("_", "."): _text(value) for name, value in keywords.items()}
        place = data_directory(given, Path(directory) if directory is not None else None)
        defaults = dict(_DEFAULTS) if place is None else {**_DEFAULTS, "durability": "disk"}
        self._settings = defaults | given
        self._directory = None if self._settings["durability"] == "memory" else place
        self._listen = listen or (None if "listeners" in given else "127.0.0.1:0")
        self._advertise = advertise
        self._event_loop = event_loop
        self._clock, self._table, self._is_metered = clock, table, is_metered
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.bootstrap_servers = ""
        self.fatal: str | None = None  # why the node stopped by itself, if it did

    # --- the two ways in --------------------------------------------------------------------------

    def __enter__(self) -> running:
        self.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> running:
        await asyncio.get_running_loop().run_in_executor(None, self.start)
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    # --- what they do -----------------------------------------------------------------------------

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("this broker runs already")
        check_system()
        self._ready.clear()
        thread = threading.Thread(target=self._main, name="kohort-broker", daemon=True)
        thread.start()
        self._ready.wait()
        failure = self._take_failure()
        if failure is not None:
            thread.join()
            raise failure
        self._thread = thread

    def _take_failure(self) -> BaseException | None:
        failure, self._failure = self._failure, None
        return failure

    def stop(self) -> None:
        """Stops the broker gracefully; does nothing if it does not run."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            thread.join()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs a coroutine on the broker's own loop and waits for it; for tests that look inside."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    async def go_away(self) -> None:
        """Closes the port and all connections at once, on the broker's loop; the data stays for `come_back`."""
        await self._server.stop(keep_store=True, patience_s=0)

    async def come_back(self) -> None:
        """Serves again after `go_away`, on the broker's loop."""
        self._server: Server = await start_again(self._server)

    @property
    def server(self) -> Server:
        return self._server

    def _main(self) -> None:
        self._loop = loop = new_event_loop(self._event_loop)
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
            self._ready.set()
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        self._server = await start(
            self._settings,
            directory=self._directory,
            listen=self._listen,
            advertise=self._advertise,
            on_fatal=self._on_fatal,
            clock=self._clock,
            table=self._table,
            is_metered=self._is_metered,
        )
        self.bootstrap_servers = str(self._server.listeners[0].told)
        self._ready.set()
        await self._end.wait()
        await self._server.stop()

    def _on_fatal(self, reason: str) -> None:
        self.fatal = reason
        self._loop.call_soon_threadsafe(self._end.set)


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
