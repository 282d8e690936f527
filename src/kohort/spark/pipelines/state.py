"""Keeps the state of a pipeline on disk: a lock with the process id, its status, and its checkpoint.

STATE/NAME/lock          held as long as the pipeline runs; a killed one lets go of it by itself
STATE/NAME/status.json   replaced as a whole, so that a reader never sees half of it
STATE/NAME/checkpoint    Spark's
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kohort.spark.pipelines.definition import PipelineError

STARTING, RUNNING, STOPPING, STOPPED, FAILED = "starting", "running", "stopping", "stopped", "failed"
DIED = "died"
"""The status says that it runs, but no process holds the lock: it was killed, or the machine went down."""
_GOING = (STARTING, RUNNING, STOPPING)


class AlreadyRunning(PipelineError):
    """The pipeline runs in another process: two would use the same checkpoint."""

    what_to_do = "Stop the other one first: `kohort pipeline stop NAME`; or give this one another `--name`."


def state_directory(given: str | None = None) -> Path:
    """Where pipelines keep their state: as given, or in the user's directory for state (~/.local/state on Linux)."""
    if given is not None:
        return Path(given)
    from platformdirs import user_state_path

    try:
        folder = user_state_path("kohort", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    if not folder.is_absolute():  # HOME is not set, and the system does not know this user
        raise PipelineError("there is no home directory for the state of pipelines: name one with --state")
    return folder / "pipelines"


@dataclass(slots=True)
class PipelineStatus:
    """The status of a pipeline, for people and programs."""

    name: str
    origin: str
    state: str = STARTING
    pid: int = 0
    master: str = ""
    bootstrap: str = ""
    checkpoint: str = ""
    sink: str = ""
    """Where the rows go, as a SQL pipeline says it; empty if only the code of the pipeline knows."""
    started_ms: int = 0
    updated_ms: int = 0
    stopped_ms: int | None = None
    batch: int | None = None
    batches: int = 0
    """Since this start; those without rows are not counted."""
    rows: int = 0
    """Since this start."""
    batch_rows: int = 0
    batch_duration_ms: int = 0
    rows_per_second: float = 0.0
    lag: dict[str, int] = field(default_factory=dict)
    """By partition, as in orders-0; how many offsets were not read at the last progress."""
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    """State and number of members of each group that the pipeline is a member of."""
    metrics: str | None = None
    """The address of the metrics, while they are served."""
    error: str | None = None

    @property
    def total_lag(self) -> int | None:
        return sum(self.lag.values()) if self.lag else None


_LOOKED_AT_S = 5.0
"""A process that checks whether a pipeline runs holds its lock for a moment; a start waits so long for it."""


class PipelineState:
    """The folder of one pipeline."""

    def __init__(self, root: Path, name: str) -> None:
        if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
            raise PipelineError(f"{name!r} is no name for a pipeline: letters, digits, '.', '_' and '-'")
        self.name = name
        self.folder = root / name
        self.checkpoint = self.folder / "checkpoint"
        self._lock: int | None = None

    def acquire(self) -> None:
        """Marks the pipeline as running in this process; PipelineError, with the other process, if it runs already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not self._locked(descriptor):
            os.close(descriptor)
            status = self.read()
            since = f" since {_clock(status.started_ms)}" if status is not None else ""
            raise AlreadyRunning(
                f"the pipeline {self.name} runs already, in process {self.pid() or '?'}{since}: a second one would use "
                f"the same checkpoint. `kohort pipeline stop {self.name}` ends it; --name runs this one beside it"
            )
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % os.getpid())
        self._lock = descriptor

    def _locked(self, descriptor: int) -> bool:
        """Whether this process has the lock now. A living process that is named in the file is not waited for."""
        import psutil  # comes with the extra `spark`: nothing else acquires a lock

        give_up_s = time.monotonic() + _LOOKED_AT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pid = self.pid()
                if time.monotonic() > give_up_s or (pid is not None and psutil.pid_exists(pid)):
                    return False
                time.sleep(0.01)
            else:
                return True

    def release(self) -> None:
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            # Forked children hold the same lock, and close their descriptors a little later.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    def is_running(self) -> bool:
        """Whether some process holds the lock."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def pid(self) -> int | None:
        """The id of the process that runs the pipeline; only meaningful while one does."""
        try:
            return int((self.folder / "lock").read_text().strip())
        except (OSError, ValueError):
            return None

    def write(self, status: PipelineStatus) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / "status.json.new"
        # The same bytes whatever the terminal's encoding is; a lone surrogate becomes an escape of JSON.
        text = json.dumps(asdict(status), indent=2, ensure_ascii=False)
        new.write_text(text, "utf-8", "backslashreplace")
        new.replace(self.folder / "status.json")

    def read(self) -> PipelineStatus | None:
        """The last status; None if the pipeline was never started, or if another version wrote another form."""
        status = self._read()
        if status is None or self._may_be(status):
            return status
        # It may have ended, in order, after the file was read and before the lock was looked at.
        status = self._read()
        if status is not None and not self._may_be(status):
            status.state = DIED
        return status

    def _may_be(self, status: PipelineStatus) -> bool:
        return status.state not in _GOING or self.is_running()

    def _read(self) -> PipelineStatus | None:
        try:
            fields = json.loads((self.folder / "status.json").read_text("utf-8"))
            return PipelineStatus(
                **{name: fields[name] for name in PipelineStatus.__slots__ if name in fields}
            )
        except (OSError, ValueError, TypeError):
            return None


def known_pipelines(root: Path) -> list[PipelineStatus]:
    """The status of each pipeline that was ever started with this state directory."""
    if not root.is_dir():
        return []
    states = [
        PipelineState(root, each.name) for each in sorted(root.iterdir()) if (each / "status.json").is_file()
    ]
    return [status for status in (state.read() for state in states) if status is not None]


def _clock(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
