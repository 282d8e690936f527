"""A PostgreSQL server of Debian's, for the tests of sinks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from benchmarks import outside

from tests.clients.process import eventually, fixed_port


class Postgres:
    """A server of Debian's, on loopback. It does not run as root."""

    def __init__(self, programs: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kohort-postgres-"))
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._port = fixed_port()
        data, common = self._folder / "data", {"user": self._user, "cwd": self._folder}
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "kohort", "-A", "trust", "-N"],
            check=True, capture_output=True, timeout=120, **common,  # type: ignore[call-overload]
        )  # fmt: skip
        self._server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-p", str(self._port), "-h", "127.0.0.1", "-k", self._folder],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **common,  # type: ignore[call-overload]
        )  # fmt: skip
        self.dsn = f"postgresql://kohort@127.0.0.1:{self._port}/postgres"
        eventually(lambda: self.ask("SELECT 1") == ["1"], "PostgreSQL answers")

    def ask(self, query: str) -> list[str] | None:
        """The rows as text; None if there is no answer, or no such table yet."""
        command = ["psql", "-qAt", "-d", self.dsn, "-c", query]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.split() if done.returncode == 0 else None

    def close(self) -> None:
        self._server.send_signal(signal.SIGINT)
        self._server.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)


def start_postgres() -> Postgres:
    """Starts a server; Missing says how to get one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found or shutil.which("psql") is None:
        raise outside.Missing("PostgreSQL is missing; install it (Debian: apt-get install postgresql)")
    return Postgres(found[-1].parent)
