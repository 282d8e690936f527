"""Writes the sections of docs/errors.md: what each error code and each exception means, who retries it, what to do."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import kohort
from kohort.client.retried import RETRIED
from kohort.errors import KohortError
from kohort.wire.error_help import HELP
from kohort.wire.errors import ErrorCode

_SOURCE = Path(kohort.__file__).parent
# Whose exceptions the sections show: a package or a module of `kohort`, by the first part of its path.
PACKAGES: dict[str, tuple[str, ...]] = {
    "client": ("client", "wire", "settings", "errors"),
    "serde": ("serde",),
    "spark": ("spark",),
    "broker": ("broker", "coordinator", "log"),
    "tools": ("cli", "console", "insight", "testing", "exposition"),
}
_ADVICE = "what_to_do"


# --- codes --------------------------------------------------------------------------------------------


def error_codes() -> str:
    """A section for each error code, in the order of their numbers."""
    return "\n".join(_code(code) for code in ErrorCode if code is not ErrorCode.NONE)


def _code(code: ErrorCode) -> str:
    retrying = [name for name, codes in RETRIED.items() if code in codes]
    retried = f"retried by {' and '.join(retrying)}" if retrying else "not retried"
    retried = retried.replace(" and ", ", ", max(0, len(retrying) - 2))
    said = HELP[code]
    return (
        f"### {code.name}\n\nCode {code.value}, {retried}. {said.meaning}\n\n**What to do:** {said.advice}\n"
    )


# --- exceptions ---------------------------------------------------------------------------------------


def exceptions_of(package: str) -> str:
    """A section for each public exception of these packages, by name."""
    found = {cls.__name__: cls for cls in public_exceptions() if _package(cls) in PACKAGES[package]}
    return "\n".join(_exception(found[name]) for name in sorted(found))


def public_exceptions() -> Iterator[type[BaseException]]:
    """All exceptions of Kohort that a user may see: subclasses of KohortError, and others that have advice."""
    bases: dict[str, tuple[set[str], str]] = {}
    advised: set[str] = set()
    for path in sorted(_SOURCE.rglob("*.py")):
        module = ".".join(("kohort", *path.relative_to(_SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        if module.startswith(("kohort.wire.messages", "kohort.wire.codecs", "kohort.sim")):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                bases[node.name] = {ast.unparse(base) for base in node.bases}, module
                if any(_ADVICE in ast.unparse(line) for line in node.body if isinstance(line, ast.Assign)):
                    advised.add(node.name)
    wanted = {KohortError.__name__} | advised
    while more := {name for name, (above, _) in bases.items() if above & wanted} - wanted:
        wanted |= more
    for name in sorted(wanted & bases.keys()):
        yield getattr(importlib.import_module(bases[name][1]), name)


def _package(cls: type) -> str:
    return cls.__module__.split(".")[1]


def _exception(cls: type[BaseException]) -> str:
    above = " and ".join(f"`{base.__name__}`" for base in cls.__bases__)
    article = "An" if above[1] in "AEIOU" else "A"
    place = "kohort" if hasattr(kohort, cls.__name__) else _short(cls.__module__)
    meaning = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
    advice = getattr(cls, _ADVICE)
    return f"### {cls.__name__}\n\n{article} {above} of `{place}`. {meaning}\n\n**What to do:** {advice}\n"


def _short(module: str) -> str:
    """The package that users import the exception from, if it is there; else the module."""
    package = module.split(".")
    return ".".join(package[:2]) if package[1] == "serde" else module
