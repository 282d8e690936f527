"""Forks Spark's Python processes from one that has loaded pyspark, pyarrow and Kohort already.

Spark starts a Python process for every streaming query and a daemon for each kind of question that it asks a source,
and each of them computes for a third of a second before it is ready. The server loads the modules once, while the JVM
starts. `fork_client` stands in for the process that Spark sees; a child of the server does the work, with arguments,
variables, working directory and standard streams that Spark gave. What depends on the start of an interpreter (hash
seed, PYTHON… variables, paths of modules) has to be as in the server; a request that differs is refused, and the client
starts a Python of its own. The server ends with the process that started it, which holds the other end of its stdin.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import runpy
import select
import signal
import socket
import sys
from dataclasses import dataclass

MODULES = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    "pyspark.daemon",
    "pyspark_kohort",
    "kohort.spark.driver.query_group",
    "kohort.spark.driver.offset_resolver",
    "kohort.spark.driver.stream",
    "kohort.spark.executor.range_reader",
    "kohort.spark.executor.typed_rows",
)
LONGEST_REQUEST = 16 << 20
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""NumPy and Arrow's allocator start threads when they are imported, and a process with threads must not be forked."""
MEMORY_LIMITS = ("PYSPARK_EXECUTOR_MEMORY_MB", "PYSPARK_PLANNER_MEMORY_MB")
"""Spark limits the address space by these; of that, Arrow's allocator has reserved a gigabyte here already."""
_ARCHIVE = re.compile(r".*/python/lib/(pyspark\.zip|py4j-.*-src\.zip)|.*/jars/spark-core_.*\.jar")


class Refused(Exception):
    """A process for this request cannot be forked here."""


@dataclass(frozen=True, slots=True)
class Request:
    """A Python that Spark wants: `python ARGUMENTS` in a folder, with these variables."""

    arguments: list[str]
    folder: str
    environ: dict[str, str]

    @classmethod
    def read(cls, text: bytes) -> Request:
        folder, count, *words = map(os.fsdecode, text.split(b"\0"))
        pairs = (word.partition("=") for word in words[int(count) :])
        return cls(words[: int(count)], folder, {name: value for name, _, value in pairs})

    def check(self, mine: dict[str, str]) -> None:
        """Refused if a Python that is started would differ from a child of this one, whose variables are `mine`."""
        if len(self.arguments) < 2 or self.arguments[0] != "-m":
            raise Refused("only modules are run")
        if _interpreter_variables(self.environ) != _interpreter_variables(mine):
            raise Refused("other variables of Python")
        if self.environ.get("PYTHONHASHSEED", mine.get("PYTHONHASHSEED")) != mine.get("PYTHONHASHSEED"):
            raise Refused("another hash seed")
        if self.environ.get("OMP_NUM_THREADS", "1") != "1":
            raise Refused("more threads")
        if any(self.environ.get(name, "-1") != "-1" for name in MEMORY_LIMITS):
            raise Refused("a limit of memory")
        if not set(places(self.environ, self.folder)) <= set(places(mine, os.getcwd())):
            raise Refused("other places of modules")


def _interpreter_variables(environ: dict[str, str]) -> dict[str, str]:
    """The variables that are read when a process starts, but for those that a child can follow."""
    followed = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONHASHSEED")
    return {
        name: value
        for name, value in environ.items()
        if (re.fullmatch(r"PYTHON[A-Z]+|LD_[A-Z_]+", name) and name not in followed)
    }


def places(environ: dict[str, str], folder: str) -> list[str]:
    """The places of PYTHONPATH, seen from a folder, without Spark's archives, whose code is installed."""
    given = environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.join(folder, place) for place in given if place and not _ARCHIVE.fullmatch(place)]


def main(listening: int, environ: dict[str, str]) -> None:
    """Serves on a socket that listens, until stdin is at its end; in a child, runs what was asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in all that the JVM starts
    with socket.socket(fileno=listening) as listener:
        listener.set_inheritable(False)
        _load()
        if _threads() != 1:
            return
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nobody has to wait for the children
        request = _serve(listener, environ)
    if request is not None:
        _run(request)


def _load() -> None:
    gc.disable()
    for name in MODULES:
        with contextlib.suppress(ImportError):  # not every PySpark has all of them
            importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()  # the pages of modules stay shared with the children


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1  # not Linux: what is loaded starts none


def _serve(listener: socket.socket, environ: dict[str, str]) -> Request | None:
    """Forks for each request. Returns None in the server, at its end, and the request in a child."""
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:
            return None
        connection, _ = listener.accept()
        with contextlib.suppress(OSError, ValueError, Refused), connection:
            connection.settimeout(10)  # a client that says nothing must not stop the others
            request, descriptors = _receive(connection)
            try:
                request.check(environ)
                if os.fork() == 0:
                    try:
                        _become(request, connection.detach(), descriptors)
                    except BaseException:
                        os._exit(1)  # never back into the loop: the client starts a Python of its own
                    return request
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)


def _receive(connection: socket.socket) -> tuple[Request, list[int]]:
    head, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    try:
        size = int(head[:10])
        text = bytearray(head[10:])
        while len(text) < size <= LONGEST_REQUEST:
            more = connection.recv(1 << 16)
            if not more:
                break
            text += more
        if len(descriptors) != 3 or len(text) != size:
            raise Refused("not all of a request has come")
        return Request.read(bytes(text)), list(descriptors)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _become(request: Request, connection: int, descriptors: list[int]) -> None:
    """Makes a child of the server what the client would have become."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before, now = places(dict(os.environ), os.getcwd()), places(request.environ, request.folder)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environ)
    base = [place for place in sys.path[1:] if place not in before]
    sys.path[:] = [request.folder, *now, *base]
    importlib.invalidate_caches()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]  # Spark asks for it by PYTHONUNBUFFERED
    _name_process(request.arguments[-1].rpartition(".")[2])
    os.write(connection, b"%d" % os.getpid())
    # The client waits until this is closed; a child of this process must not keep it open.
    os.register_at_fork(after_in_child=lambda: os.close(connection))


def _name_process(name: str) -> None:
    """Lets `ps` and `top` tell the children apart, whose arguments are the server's: `worker`, `plan_data_sourc`."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as comm:  # Linux only
        comm.write(name[:15])


def _run(request: Request) -> None:
    module = request.arguments[1]
    sys.argv = [module, *request.arguments[2:]]
    sys.modules.pop(module, None)  # it is run as __main__, not taken from what is loaded
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    given = dict(os.environ)
    os.environ.update(ONE_THREAD)
    main(int(sys.argv[1]), given)
