"""Spark's Python daemon, whose idle workers end without a traceback: `spark.python.daemon.module` names it.

Spark keeps workers for the next task and ends an idle one by closing its socket: after a minute, and when the session
stops. PySpark's worker takes the end of its input for an error and reports it over the same socket, which nobody reads
any more. Over TCP the report is lost; over a Unix socket it is a BrokenPipeError, whose traceback stands on the
terminal of every job that ended well. A worker of this daemon looks first whether there is another task.
"""

from __future__ import annotations

import os
import socket

import pyspark.daemon

_serve = pyspark.daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Does the next task as PySpark's daemon would; ends the process if Spark has closed the socket instead."""
    if not _has_task(sock):
        os._exit(0)  # as the daemon ends its workers: what it was forked from is not theirs to clean up
    return _serve(sock, authenticated)


def _has_task(sock: socket.socket) -> bool:
    """Waits for the first byte of a task; False if the other side has closed the socket."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except ConnectionError:
        return False


if __name__ == "__main__":
    pyspark.daemon.worker = worker
    pyspark.daemon.manager()
