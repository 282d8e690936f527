"""Serves the app on a socket that is open already, until it is told to end."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

log = logging.getLogger("kohort.console")

_MOST_CONNECTIONS = 500
_LONGEST_HEAD = 512 << 10
"""A group.id may have 32,767 characters, each of them up to twelve in a URL."""
_GRACE_S = 2
_IDLE_S = 30


class ConsoleServer:
    """An app with its server."""

    def __init__(self, app: FastAPI, listening: socket.socket) -> None:
        self._listening = listening
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            date_header=False,
            ws="none",
            http="h11",
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            lifespan="on",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_S,
            timeout_keep_alive=_IDLE_S,
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serves until SIGTERM, SIGINT or `end`."""
        self._server.run(sockets=[self._listening])

    def end(self) -> None:
        """Ends it; from any thread."""
        self._server.should_exit = True

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        return self._server.started


def end_with_parent(descriptor: int, end: Callable[[], None], patience_s: float = 5.0) -> None:
    """Ends the server when the other end of a pipe is closed, that is when the parent has ended, however it ended."""

    def watch() -> None:
        while os.read(descriptor, 4096):
            pass
        end()
        threading.Event().wait(patience_s)
        os._exit(1)  # a request hangs, and nobody is left who could end this process

    threading.Thread(target=watch, name="kohort-console-parent", daemon=True).start()
