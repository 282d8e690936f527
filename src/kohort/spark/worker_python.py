"""Chooses the Python that Spark runs its workers with.

Spark puts the archives of its own Python code before everything else, and Python compiles what it imports from an
archive anew each time: a process computes for 1.1 s before it is ready, instead of 0.35 s with the same code from
where it was installed. Every stream begins with such a process, and Spark gives up on it after 10 s, which is not long
on a busy machine.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import site
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
exec PYTHON "$@"
"""


def use_python(environ: MutableMapping[str, str] = os.environ, folder: Path | None = None) -> None:
    """Sets PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON, unless they are set, for workers on this machine.

    The script that this needs is put into the folder, or into one that exists until this process ends.
    """
    missing = [name for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON") if name not in environ]
    if missing:
        python = _without_archives(folder) if _is_installed() else sys.executable
        environ.update(dict.fromkeys(missing, as_command(python, environ)))


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


def _without_archives(folder: Path | None) -> str:
    if os.name != "posix":
        return sys.executable  # the script is for a shell
    script = (folder or temporary_folder()) / "kohort-python"
    text = _SCRIPT.replace('PYTHON "', f'{shlex.quote(sys.executable)} "')
    script.write_bytes(os.fsencode(text))
    script.chmod(0o755)
    return str(script) if os.access(script, os.X_OK) else sys.executable
