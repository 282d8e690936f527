"""A process with one Spark, which is asked in lines of JSON and answers with one line for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any


class SparkProcess:
    """`python -m MODULE ARGUMENTS`; it is ended when an answer takes too long."""

    def __init__(self, place: Path, module: str, *arguments: str) -> None:
        place.mkdir(exist_ok=True)
        self._errors = place / "spark.log"
        # Modules are compiled once, as pip does it for users, wherever this tree was told not to keep that.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(place / "compiled")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        self._failed: str | None = None

    def ask(self, question: Any, limit_s: float) -> dict[str, Any]:
        """The answer to a question; `failed` in it says why there is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Timer(limit_s, self._process.kill)
        late.start()
        try:
            if self._failed is None:
                self._process.stdin.write(json.dumps(question) + "\n")
                self._process.stdin.flush()
                for line in self._process.stdout:
                    if line.startswith("{"):
                        return json.loads(line)  # type: ignore[no-any-return]
        except BrokenPipeError:
            pass
        finally:
            late.cancel()
        if self._failed is None:
            words = self._errors.read_text(errors="replace").strip()[-600:]
            self._failed = f"Spark ended with {self._process.wait(30)}: {words}"
        return {"failed": self._failed}

    def close(self) -> None:
        try:
            self._process.communicate(timeout=30)  # closes its input, upon which it ends
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.communicate()
