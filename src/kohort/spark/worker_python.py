"""Chooses the Python that Spark runs its workers with.

Spark puts the archives of its own Python code before everything else, and Python compiles what it imports from an
archive anew each time: a process computes for 1.1 s before it is ready, instead of 0.35 s with the same code from
where it was installed. Every stream begins with such a process, and Spark gives up on it after 10 s, which is not long
on a busy machine. So Spark gets a script that leaves the archives out, and that asks a fork server for the process,
which has loaded the same code already. The script also puts our daemon, whose workers end quietly, in the place of
PySpark's.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

_SCRIPT = """#!/bin/sh
# Python without Spark's archives: the same code is installed, and compiled.
set -f
IFS=:
kept=
for place in $PYTHONPATH; do
  case $place in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip | */jars/spark-core_*.jar) ;;
    *) kept=$kept${kept:+:}$place ;;
  esac
done
unset IFS
set +f
export PYTHONPATH="$kept"
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m DAEMON "$@"
fi
FORK
exec PYTHON "$@"
"""
_FORK = '[ "$1" = -m ] && [ -S SOCKET ] && exec PYTHON -I -S CLIENT SOCKET "$@"'
DAEMON = "kohort.spark.executor.worker_daemon"
"""Spark's daemon, but for tracebacks. Spark has a setting for it, which holds for tasks and not for planning."""
LONGEST_SOCKET_PATH = 100
"""Systems allow 104 to 108 bytes."""
SWITCH = "KOHORT_FORK_SERVER"
"""The variable that, with the value 0, makes Spark start each of its Python processes anew."""
SCRIPT = "kohort-python"
_servers: list[subprocess.Popen[bytes]] = []
_scripts: set[str] = set()
"""Those that this process has made."""


def use_python(environ: MutableMapping[str, str] = os.environ, folder: Path | None = None) -> None:
    """Sets PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON, unless they are set, for workers on this machine.

    The script that this needs is put into the folder, or into one that exists until this process ends. A script that
    another process has made and handed down, which goes with that process, does not count as set.
    """
    missing = [
        name for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if _is_free(environ.get(name), environ)
    ]
    if missing:
        python = _script(folder, environ) if _is_installed() else sys.executable
        environ.update(dict.fromkeys(missing, as_command(python, environ)))


def _is_free(command: str | None, environ: MutableMapping[str, str]) -> bool:
    if command is None:
        return True
    found = shutil.which(command, path=environ.get("PATH", os.defpath)) or command
    return os.path.basename(found) == SCRIPT and found not in _scripts


def as_command(python: str, environ: MutableMapping[str, str]) -> str:
    """The path of a Python for Spark. If it has a blank, it is only the name, and its folder goes onto PATH.

    Spark hands the command to a shell without quotes, and finds no data source if the shell finds no Python.
    """
    if shlex.quote(python) == python:
        return python
    folder, name = os.path.split(python)
    environ["PATH"] = os.pathsep.join([folder, environ.get("PATH", os.defpath)])
    return name


def _is_installed() -> bool:
    """Whether every process of this Python finds the pyspark that this one has."""
    import pyspark

    return str(Path(pyspark.__file__).parent.parent) in site.getsitepackages()


def temporary_folder() -> Path:
    """A folder that exists until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="kohort-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _script(folder: Path | None, environ: MutableMapping[str, str]) -> str:
    if os.name != "posix":
        return sys.executable  # the script is for a shell
    folder = folder or temporary_folder()
    script, address = folder / SCRIPT, folder / "fork.sock"
    _scripts.add(str(script))
    python, fork = shlex.quote(sys.executable), ""
    if environ is os.environ and _start_fork_server(address):
        client = Path(__file__).parent / "executor" / "fork_client.py"
        fork = _FORK.replace("PYTHON", python).replace("CLIENT", shlex.quote(str(client)))
        fork = fork.replace("SOCKET", shlex.quote(str(address)))
    text = (
        _SCRIPT.replace("FORK\n", f"{fork}\n")
        .replace('exec PYTHON "', f'exec {python} "')
        .replace("DAEMON", DAEMON)
    )
    script.write_bytes(os.fsencode(text))
    script.chmod(0o755)
    return str(script) if os.access(script, os.X_OK) else sys.executable


def _start_fork_server(address: Path) -> bool:
    """Starts the server of this process, whose end is also the server's; False where there can be none."""
    if os.environ.get(SWITCH) == "0" or len(os.fsencode(address)) > LONGEST_SOCKET_PATH:
        return False
    # Spark gives all workers the same seed, so that they agree on the hash of a text.
    environ = {**os.environ, "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(
            64
        )  # whoever comes before the server is ready waits, which takes no longer than a start
        server = subprocess.Popen(
            [sys.executable, "-m", "kohort.spark.executor.fork_server", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environ,
            pass_fds=[listener.fileno()],
        )
    _servers.append(server)
    atexit.register(_end_fork_server, server)
    return True


def _end_fork_server(server: subprocess.Popen[bytes]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    try:
        server.wait(5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
