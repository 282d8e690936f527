"""`make test-anywhere`: runs parts of the suite under the conditions in which machines differ.

python -m tests.anywhere --pythons "3.11 3.12 3.13 3.14?"     # a `?`: goes without where that Python cannot be had

Four kinds of runs, and a line for each with what passed and how long it took:

- where the tests stand, as in the background of a script (SIGINT ignored), behind a proxy that leads nowhere, without
  HOME, with LANG=C and output in latin-1;
- in a copy whose path has a blank, as has TMPDIR, as a user who is not root, with umask 077 and (but for Spark, which
  needs more) 256 open files;
- where the tests stand, with KOHORT_PORTABLE=1: without the calls that only Linux has, as on macOS;
- on each other Python, in an environment of its own that is kept in .cache/anywhere.

When a run fails, what failed is run under each of its conditions alone, so that the guilty one is named. What was not
run stands in the last line, with the reason; unless it was asked for with a `?`, the target has failed then.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".cache" / "anywhere"
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
RUN_TIMEOUT_S = 1800  # only for what hangs
GET_TIMEOUT_S = 600
FEW_FILES = 256
NOWHERE = "http://127.0.0.1:9"
PROXIES = {
    name: NOWHERE for each in ("http", "https", "all") for name in (f"{each}_proxy", f"{each}_PROXY".upper())
}

IN_PLACE = (
    "tests/client/test_consumer_end.py",
    "tests/client/test_consumer_misuse.py",
    "tests/client/test_engine.py",
    "tests/client/test_signals.py",
    "tests/cli/test_serve.py",
    "tests/cli/test_metrics.py",
    "tests/cli/test_groups.py",
    "tests/deploy/test_systemd.py",
    "tests/testing/test_plugin.py",
    "tests/test_exposition.py",
    "tests/spark/test_pipeline_files.py",
)
PORTABLY = (
    "tests/test_portable.py",
    "tests/log/test_system_calls.py",
    "tests/log/test_files.py",
    "tests/log/test_sync.py",
    "tests/log/test_journal.py",
    "tests/log/test_store.py",
    "tests/broker/test_connection.py",
    "tests/broker/test_fetch.py",
    "tests/broker/test_metrics.py",
    "tests/broker/test_stop.py",
    "tests/testing/test_life.py",
    "tests/clients/test_records.py",
    "tests/client/test_reactor.py",
    "tests/client/test_engine.py",
    "tests/client/test_consumer_end.py",
    "tests/client/test_async_consumer.py",
    "tests/cli/test_serve.py",
)
IN_A_COPY = (
    "tests/cli/test_serve.py",
    "tests/broker/test_connection.py",
    "tests/broker/test_topics.py",
    "tests/log/test_files.py",
    "tests/log/test_store.py",
    "tests/log/test_full_disk.py",
    "tests/log/test_many_partitions.py",
    "tests/log/test_whose_directory.py",
    "tests/clients/test_records.py::test_a_hundred_topics_of_ten_partitions",
    "tests/client/test_consumer_end.py",
    "tests/spark/test_pipeline_files.py",
)
# A JVM with Spark opens more than 256 files.
SPARK_IN_A_COPY = (
    "tests/spark/test_java.py",
    "tests/spark/test_worker_process.py",
    "tests/spark/test_batch.py::test_rows_and_schema",
)
ON_A_PYTHON = (
    "tests/client/test_tls.py",
    "tests/client/test_sasl.py",
    "tests/client/test_engine.py",
    "tests/client/test_signals.py",
    "tests/client/test_consumer_end.py",
    "tests/client/test_producer.py::test_a_signal_in_the_middle_of_sending_loses_no_record_that_send_returned",
    "tests/client/test_async_consumer.py",
    "tests/broker/test_connection.py",
    "tests/broker/test_produce.py",
    "tests/wire/test_columns.py",
    "tests/wire/test_arrow.py",
    "tests/log/test_store.py",
    "tests/cli/test_serve.py",
    "tests/testing/test_plugin.py",
    "tests/test_exposition.py",
    "tests/spark/test_worker_process.py",
    "tests/spark/test_batch.py::test_rows_and_schema",
)


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    shell: str = ":"
    """What a shell does first, before it becomes the tests."""
    environ: dict[str, str | None] = field(default_factory=dict)
    """None: is not set."""
    is_other_user: bool = False


BACKGROUND = Condition("SIGINT ignored", "trap '' INT HUP")
PROXY = Condition("a proxy", environ={**PROXIES, "no_proxy": None, "NO_PROXY": None})
HOMELESS = Condition("no HOME", environ={"HOME": None})
PLAIN_C = Condition("LANG=C", environ={"LANG": "C", "LC_ALL": "C"})
LATIN_1 = Condition("latin-1", environ={"PYTHONIOENCODING": "latin-1"})
PORTABLE = Condition("portable", environ={"KOHORT_PORTABLE": "1"})
PRIVATE = Condition("umask 077", "umask 077")
FEW = Condition("few files", f"ulimit -n {FEW_FILES}")
NOT_ROOT = Condition("not root", is_other_user=True)


@dataclass(slots=True)
class Outcome:
    passed: int = 0
    failed: int = 0
    retried: int = 0
    not_run: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Runs that did not come to their end, and those that had to be and could not."""

    def add(self, other: Outcome) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.retried += other.retried
        self.not_run += other.not_run
        self.broken += other.broken

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.broken

    def __str__(self) -> str:
        said = [f"{self.passed} passed, {self.failed} failed, {self.retried} retried"]
        said += [f"broken: {', '.join(self.broken)}"] if self.broken else []
        said += [f"not run: {', '.join(self.not_run)}"] if self.not_run else []
        return "; ".join(said)


class CannotRun(Exception):
    """A run cannot take place; the text says why."""


def say(text: str) -> None:
    print(text, flush=True)


# --- one run --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Place:
    """The folder that the tests run in, the user that runs them, and the Python that they run on."""

    folder: Path
    python: Path
    user: str | None = None
    """The user for the condition that asks for one who is not root."""
    environ: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    """The beginning of the names of its runs."""
    through_make: bool = False

    def command(self, tests: tuple[str, ...]) -> list[str]:
        if self.through_make:
            return ["make", "--no-print-directory", "test", f"ONLY={' '.join(tests)}"]
        return [str(self.python), "-m", "tests.twice", "-n", "2", "--dist", "worksteal", *tests]

    def run(self, command: list[str], conditions: list[Condition], log: Path) -> int:
        """Runs a command and returns its exit code; its output goes to the log."""
        environ = os.environ | self.environ | {"PYTHONUNBUFFERED": "1"}
        environ.pop("PYTHONPATH", None)
        for condition in conditions:
            for name, value in condition.environ.items():
                environ.pop(name, None)
                if value is not None:
                    environ[name] = value
        first = " && ".join(condition.shell for condition in conditions) or ":"
        as_other = any(condition.is_other_user for condition in conditions)
        # A session of its own: no terminal, as in CI.
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["sh", "-c", f'{first}; exec "$@"', "sh", *command],
                cwd=self.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **_as_user(self.user if as_other else None),
            )
            try:
                return process.wait(RUN_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                out.write(b"\nended: it took longer than %d s\n" % RUN_TIMEOUT_S)
                return -1
            finally:
                _end_session(process)


def _as_user(name: str | None) -> dict[str, Any]:
    if name is None or os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(name)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends the processes that a run has left behind."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass
        process.wait()


def run_tests(place: Place, tests: tuple[str, ...], conditions: list[Condition]) -> Outcome:
    name = ", ".join([*([place.prefix] if place.prefix else []), *(each.name for each in conditions)])
    log = KEPT / (re.sub(r"\W+", "-", name).strip("-").lower() + ".log")
    began = time.monotonic()
    code = place.run(place.command(tests), conditions, log)
    outcome = _outcome_of(log)
    if code and not outcome.failed:
        outcome.broken.append(name)
    say(f"{name}: {outcome}, {time.monotonic() - began:.0f} s")
    if not outcome.is_good:
        say("\n".join([*_lines(log)[-60:], f"(all of it: {log})"]))
        _blame(place, log, conditions)
    return outcome


def _outcome_of(log: Path) -> Outcome:
    for line in reversed(_lines(log)):
        if found := re.match(r"(\d+) passed, (\d+) failed.*, (\d+) retried$", line):
            passed, failed, retried = map(int, found.groups())
            return Outcome(passed, failed, retried)
    return Outcome()


def _lines(log: Path) -> list[str]:
    return log.read_text("utf-8", "replace").strip().splitlines()


def _blame(place: Place, log: Path, conditions: list[Condition]) -> None:
    """Runs what failed under no condition and under each one alone, and says where it fails."""
    said = "\n".join(_lines(log)).partition("What failed, once more:\n")[2]
    failed = [line.strip() for line in said.splitlines() if line.startswith("  tests/")]
    if not failed or len(conditions) < 2:
        return
    command = [str(place.python), "-m", "pytest", "-p", "no:cacheprovider", *failed]
    for chosen in ([], *([each] for each in conditions)):
        code = place.run(command, chosen, log.with_suffix(".alone.log"))
        under = f"only {chosen[0].name}" if chosen else "none of these conditions"
        say(f"  what failed, with {under}: {'fails' if code else 'passes'}")


# --- a copy of everything that another user owns ----------------------------------------------------

_LEFT_OUT = {
    ".venv",
    ".cache",
    ".git",
    ".hypothesis",
    ".mypy_cache",
    ".ruff_cache",
    "data",
    "demo-out",
    "dist",
}


@contextmanager
def copied() -> Iterator[Place]:
    """Makes a copy in a path with a blank, with an environment of its own; raises CannotRun if that fails."""
    user = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="kohort x", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        copy, temporary = folder / "a copy", folder / "tmp dir"
        temporary.mkdir()
        shutil.copytree(ROOT, copy, symlinks=True, ignore=_unneeded)
        if user is not None:
            _give(folder, user)
        base = _python_for(folder, user)
        environ = {"TMPDIR": str(temporary), "HOME": str(folder)}
        if folder in base.parents:  # a copy: its library too is where the copy is
            environ["LD_LIBRARY_PATH"] = str(base.parent.parent / "lib")
        prefix = "a blank in the path"
        place = Place(copy, Path(".venv/bin/python"), user, environ, prefix, through_make=True)
        _must(place, [str(base), "-c", "import ssl"])
        _must(place, [str(base), "-m", "venv", ".venv"])
        packages = Path(sysconfig.get_path("purelib"))
        inside = copy / ".venv" / packages.relative_to(sys.prefix)
        shutil.copytree(packages, inside, symlinks=True, dirs_exist_ok=True)
        if user is not None:
            _give(folder, user)
        _must(place, ["make", "setup", f"PYTHON={base}"])
        yield place


def _unneeded(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__" or (Path(folder) == ROOT and name in _LEFT_OUT)}


def _give(folder: Path, user: str) -> None:
    subprocess.run(["chown", "-R", f"{user}:", str(folder)], check=True, timeout=GET_TIMEOUT_S)


def _must(place: Place, command: list[str]) -> None:
    log = KEPT / "copy.log"
    if place.run(command, [NOT_ROOT], log):
        raise CannotRun(f"{' '.join(command)}: {' '.join(_lines(log)[-3:])}")


def _python_for(folder: Path, user: str | None) -> Path:
    """Returns the Python that this environment was made from, or a copy of it where the user may read it."""
    base = Path(sys.base_prefix, "bin", f"python{THIS}")
    try:
        probe = [str(base), "-c", "import ssl"]
        subprocess.run(probe, check=True, timeout=60, capture_output=True, cwd=folder, **_as_user(user))
        return base
    except (OSError, subprocess.SubprocessError):
        pass
    library = Path("lib", f"python{THIS}")
    unneeded = shutil.ignore_patterns("test", "idlelib", "site-packages", "__pycache__", "*.a")
    shutil.copytree(sys.base_prefix / library, folder / "python" / library, symlinks=True, ignore=unneeded)
    (folder / "python" / "bin").mkdir()
    shutil.copy(base, folder / "python" / "bin")
    for shared in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
        shutil.copy(shared, folder / "python" / "lib")
    return folder / "python" / "bin" / base.name


# --- other Pythons --------------------------------------------------------------------------------


def environment_of(version: str) -> Place:
    """Returns an environment with everything that the tests need, which is kept; CannotRun says why there is none."""
    python = find_python(version)
    home = KEPT / f"python{version}"
    requirements = [ROOT / "requirements" / "dev.lock", ROOT / "pyproject.toml"]
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in requirements) + bytes(python)).hexdigest()
    ready = home / "ready"
    place = Place(ROOT, home / "bin" / "python", prefix=f"Python {version}")
    if not ready.exists() or ready.read_text() != wanted:
        install = ["pip", "install", "--quiet", "--python", str(place.python)]
        _uv("venv", "--quiet", "--clear", "--python", str(python), str(home))
        _uv(*install, "--require-hashes", "-r", "requirements/dev.lock")
        _uv(*install, "--no-deps", "--no-build-isolation", "--editable", ".")
        ready.write_text(wanted)
    return place


def find_python(version: str) -> Path:
    """Finds a Python on PATH or among those of pyenv; otherwise uv gets it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    candidates = [path for path in [shutil.which(f"python{version}")] if path is not None]
    candidates += [str(path / "bin" / "python") for path in sorted(pyenv.glob(f"{version}.*"), reverse=True)]
    for candidate in candidates:
        if _is_python(candidate, version):
            return Path(candidate)
    try:
        _uv("python", "install", version)
    except CannotRun as reason:
        raise CannotRun(f"neither on PATH nor among pyenv's, and uv could not get it: {reason}") from None
    return Path(_uv("python", "find", "--managed-python", version).strip())


def _is_python(path: str, version: str) -> bool:
    ask = "import sys, ssl, ctypes; print(*sys.version_info[:2], sep='.')"
    try:
        said = subprocess.run([path, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return said.stdout.strip() == version


def _uv(*arguments: str) -> str:
    environ = os.environ | {"UV_PYTHON_INSTALL_DIR": str(KEPT / "pythons")}
    command = [str(Path(sys.executable).parent / "uv"), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GET_TIMEOUT_S, check=False, cwd=ROOT, env=environ
        )
    except subprocess.TimeoutExpired:
        raise CannotRun(f"uv {' '.join(arguments[:2])} took longer than {GET_TIMEOUT_S} s") from None
    if done.returncode:
        raise CannotRun(" ".join(done.stderr.split())[:300] or f"uv ended with code {done.returncode}")
    return done.stdout


# --- all of it ------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.anywhere", description=__doc__)
    parser.add_argument("--pythons", default="3.11 3.12 3.13 3.14", help="versions; `3.14?` may be missing")
    pythons = parser.parse_args(arguments).pythons.split()
    KEPT.mkdir(parents=True, exist_ok=True)
    total, began = Outcome(), time.monotonic()
    with ThreadPoolExecutor(1) as aside:  # what is downloaded comes while the first tests run
        places = {
            text: aside.submit(environment_of, text.rstrip("?"))
            for text in pythons
            if text.rstrip("?") != THIS
        }
        total.add(
            run_tests(
                Place(ROOT, Path(sys.executable)), IN_PLACE, [BACKGROUND, PROXY, HOMELESS, PLAIN_C, LATIN_1]
            )
        )
        total.add(run_tests(Place(ROOT, Path(sys.executable)), PORTABLY, [PORTABLE]))
        try:
            with copied() as place:
                total.add(run_tests(place, IN_A_COPY, [NOT_ROOT, PRIVATE, FEW]))
                total.add(run_tests(place, SPARK_IN_A_COPY, [NOT_ROOT, PRIVATE]))
        except CannotRun as reason:
            total.add(_not_run("a copy in a path with a blank, not root", reason, must=True))
        for text in pythons:
            version, may_be_missing = text.rstrip("?"), text.endswith("?")
            if version == THIS:
                say(f"Python {version}: the runs above, and `make test`")
                continue
            try:
                place = places[text].result()
            except CannotRun as reason:
                total.add(_not_run(f"Python {version}", reason, must=not may_be_missing))
            else:
                total.add(run_tests(place, ON_A_PYTHON, []))
    say(f"took {time.monotonic() - began:.0f} s")
    say(str(total))
    return 0 if total.is_good else 1


def _not_run(name: str, reason: CannotRun, *, must: bool) -> Outcome:
    say(f"{name}: not run: {reason}")
    return Outcome(not_run=[f"{name} ({reason})"], broken=[name] if must else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
