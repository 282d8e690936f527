"""Keeps the rules of ARCHITECTURE.md: who may import whom, and what the sans-IO rooms must not touch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort

SOURCE = Path(kohort.__file__).parent

# A room and the rooms that it may import besides itself. `kohort` is the package's own __init__.py, which
# loads the client's names when they are used: who has a use for its version or place may have it.
MAY_IMPORT = {
    "kohort": {"client", "wire", "settings"},
    "errors": set[str](),
    "settings": {"errors"},
    "exposition": {"settings"},
    "portable": set[str](),
    "loopback": set[str](),
    "wire": {"errors"},
    "log": {"kohort", "wire", "settings"},
    "coordinator": {"wire", "settings"},
    "broker": {"kohort", "wire", "log", "coordinator", "settings", "exposition", "loopback"},
    "client": {"kohort", "wire", "settings", "loopback", "portable"},
    "spark": {"kohort", "wire", "client", "settings", "exposition"},
    "testing": {"kohort", "wire", "log", "coordinator", "broker", "client", "settings"},
    "cli": {
        "kohort",
        "wire",
        "log",
        "coordinator",
        "broker",
        "client",
        "settings",
        "exposition",
        "sim",
        "spark",
    },
    "sim": {"kohort", "wire", "log", "coordinator", "broker", "client", "settings", "cli"},
}

# A room within a room, and what of the same room it may import besides itself: other rooms within it, and single
# modules on top. The modules on top may import all of their rooms.
_WORDS = {"client.types", "client.errors", "client.config"}
MAY_IMPORT_WITHIN: dict[str, set[str]] = {
    "wire/compiler": {"wire/codecs", "wire/messages", "wire.errors", "wire.struct", "wire.varint"},
    "wire/messages": {"wire.struct"},
    "wire/codecs": {"wire/messages", "wire.errors", "wire.struct", "wire.varint"},
    "wire/records": {"wire.errors", "wire.varint"},
    "log/storage": set(),
    "log/durability": {"log/storage", "log.datadir", "log.partition", "log.topic"},
    "log/maintenance": {"log/storage", "log.partition", "log.topic"},
    "coordinator/classic": {
        "coordinator.effects",
        "coordinator.events",
        "coordinator.frozen",
        "coordinator.records",
        "coordinator.replay",
        "coordinator.turn",
    },
    "broker/net": {"broker/apis", "broker.broker", "broker.listeners", "broker.missing", "broker.names"},
    "broker/apis": {
        "broker/net",
        "broker/groups",
        "broker.broker",
        "broker.config",
        "broker.kafka_settings",
        "broker.missing",
        "broker.names",
    },
    "broker/groups": {"broker/apis", "broker.broker", "broker.config", "broker.names"},
    "client/core": _WORDS,
    "client/io": _WORDS | {"client/core"},
    "client/offsets": _WORDS | {"client/core"},
    "client/group": _WORDS | {"client/core", "client/offsets"},
    "client/consume": _WORDS | {"client/core", "client/offsets", "client/group", "client.records"},
    "client/produce": _WORDS | {"client/core"},
    "client/administer": _WORDS | {"client/core", "client/offsets", "client/group", "client.admin_types"},
    "spark/driver": {"spark.options", "spark.source"},
    "spark/executor": {"spark/driver", "spark.options"},
    "spark/pipelines": {
        "spark/driver",
        "spark/history",
        "spark.java",
        "spark.options",
        "spark.versions",
        "spark.worker_python",
    },
    "spark/history": {"spark/pipelines"},
}

# Bytes in, bytes out; messages in, messages and records out. Time and chance come in as arguments.
SANS_IO = ("wire", "coordinator", "client")
# The half of the client that waits, and owns sockets and threads: a room of its own, and the fronts that users call.
DOES_IO = {"kohort.client.io"} | {
    f"kohort.client.{name}"
    for name in ("consumer", "async_consumer", "producer", "async_producer", "admin", "async_admin")
}
CLOCKS_AND_OUTSIDE = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "selectors",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uuid",
    "uvloop",
}
# A build tool that writes wire/messages/; nothing imports it.
MAY_USE_ANYWAY = {"kohort.wire.compiler.generate": {"pathlib"}, "kohort.client.core.signals": {"threading"}}

LONGEST_FILE = 600
GENERATED = "kohort.wire.messages."


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """`kohort.log.storage.segment` is in `log`; the package itself is a room too."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def inner_room_of(module: str) -> str:
    """`kohort.client.core.steps` is in `client/core`; `kohort.client.types` is the module `client.types`."""
    parts = module.split(".")
    inner = "/".join(parts[1:3])
    return inner if inner in MAY_IMPORT_WITHIN else ".".join(parts[1:3])


def imports_of(module: str, source: str, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Every module that a source imports, wherever in it, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                base = package[: len(package) - node.level + 1]
                origin = ".".join([*base, origin]) if origin else ".".join(base)
            for alias in node.names:
                # `from kohort import log` names a room in its second half.
                # So does `from kohort.client import types`, of a module on top.
                yield node.lineno, f"{origin}.{alias.name}" if origin.count(".") < 2 else origin
        elif isinstance(node, ast.Attribute):
            # After `import kohort` a room is reached by its name alone.
            if isinstance(node.value, ast.Name) and node.value.id == "kohort":
                yield node.lineno, f"kohort.{node.attr}"
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and node.args:
                yield node.lineno, beginning_of(node.args[0])


def beginning_of(text: ast.expr) -> str:
    """A string, or as much of an f-string as stands before the first brace."""
    first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text
    return str(first.value).rstrip(".") if isinstance(first, ast.Constant) else ""


def is_sans_io(module: str) -> bool:
    """A room or a module that does I/O takes what is below it along."""
    return room_of(module) in SANS_IO and not any(f"{module}.".startswith(f"{name}.") for name in DOES_IO)


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """What a source does against the rules, one sentence each."""
    room, found = room_of(module), []
    if room not in MAY_IMPORT:
        return [f"{module}: the room {room!r} is not in ARCHITECTURE.md"]
    for line, imported in imports_of(module, source, is_package=is_package):
        top = imported.split(".")[0]
        if top == "kohort":
            other = room_of(imported)
            # `from kohort import __version__` is the package's own; a name in it is not a room.
            other = other if other in MAY_IMPORT else "kohort"
            if other != room and other not in MAY_IMPORT[room]:
                found.append(f"{module} line {line}: {room} must not import {other}")
            here, there = inner_room_of(module), inner_room_of(imported)
            within = MAY_IMPORT_WITHIN.get(here)
            if other == room and within is not None and there != here and there not in within:
                found.append(f"{module} line {line}: {here} must not import {there}")
        elif is_sans_io(module) and top in CLOCKS_AND_OUTSIDE - MAY_USE_ANYWAY.get(module, set()):
            found.append(f"{module} line {line}: {room} must not use {top}")
    if re.search(r"\b(TODO|FIXME)\b", source):
        found.append(f"{module}: something is left to do")
    lines = source.count("\n")
    if lines > LONGEST_FILE and not module.startswith(GENERATED):
        found.append(f"{module}: {lines} lines, more than {LONGEST_FILE}")
    return found


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_the_sources_keep_the_rules() -> None:
    paths = source_files()
    assert len(paths) > 40  # that they are looked at at all
    found = []
    for path in paths:
        name, is_package = module_name(path), path.name == "__init__.py"
        found += violations(name, path.read_text("utf-8"), is_package=is_package)
    assert not found, "\n".join(found)


def test_nothing_imports_the_build_tool() -> None:
    for path in source_files():
        imported = {name for _, name in imports_of(module_name(path), path.read_text("utf-8"))}
        assert "kohort.wire.compiler.generate" not in imported, path


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("kohort.wire.frame", "from kohort.log import files", "wire must not import log"),
        ("kohort.wire.frame", "import kohort.settings", "wire must not import settings"),
        ("kohort.wire.frame", "from ..log.files import File", "wire must not import log"),
        ("kohort.wire.frame", "from .. import coordinator", "wire must not import coordinator"),
        ("kohort.settings", "from kohort.wire import errors", "settings must not import wire"),
        ("kohort.log.store", "from kohort.coordinator import groups", "log must not import coordinator"),
        ("kohort.log.store", "import kohort.broker.net.server as s", "log must not import broker"),
        (
            "kohort.log.store",
            "import kohort\nkohort.broker.server.run()",
            "line 2: log must not import broker",
        ),
        ("kohort.wire.frame", "import kohort", "wire must not import kohort"),
        ("kohort.coordinator.classic.join", "from kohort import log", "coordinator must not import log"),
        (
            "kohort.coordinator.classic.join",
            "def f():\n    import kohort.log",
            "line 2: coordinator must not import log",
        ),
        (
            "kohort.coordinator.classic.join",
            "import_module('kohort.log.store')",
            "coordinator must not import log",
        ),
        (
            "kohort.coordinator.classic.join",
            "importlib.import_module(f'kohort.log.{x}')",
            "must not import log",
        ),
        ("kohort.broker.net.server", "from kohort.cli import main", "broker must not import cli"),
        ("kohort.broker.net.server", "from kohort.sim import world", "broker must not import sim"),
        ("kohort.broker.net.server", "from kohort.client import connection", "broker must not import client"),
        ("kohort.client.io.network", "from kohort.broker import apis", "client must not import broker"),
        ("kohort.wire.frame", "import asyncio", "wire must not use asyncio"),
        ("kohort.wire.records.batch", "import os", "wire must not use os"),
        ("kohort.wire.records.batch", "from os import urandom", "wire must not use os"),
        ("kohort.wire.compiler.notation", "from pathlib import Path", "wire must not use pathlib"),
        (
            "kohort.coordinator.classic.join",
            "if TYPE_CHECKING:\n    from uuid import UUID",
            "line 2: coordinator must not",
        ),
        ("kohort.coordinator.classic.join", "from time import monotonic", "coordinator must not use time"),
        ("kohort.coordinator.classic.join", "import os.path", "coordinator must not use os"),
        ("kohort.client.group.membership", "from random import random", "client must not use random"),
        ("kohort.client.fetcher", "import time", "client must not use time"),
        (
            "kohort.client.core.steps",
            "from kohort.client.io import engine",
            "client/core must not import client/io",
        ),
        (
            "kohort.client.offsets.commits",
            "from kohort.client import consumer",
            "must not import client.consumer",
        ),
        ("kohort.log.storage.segment", "import kohort.log.partition", "must not import log.partition"),
        ("kohort.client.core.steps", "import socket", "client must not use socket"),
        ("kohort.attic.box", "", "the room 'attic' is not in ARCHITECTURE.md"),
        ("kohort.log.store", "x = 1  # TODO: more", "something is left to do"),
        ("kohort.log.store", "x = 1\n" * 601, "601 lines, more than 600"),
    ],
)
def test_the_checker_sees(module: str, source: str, complaint: str) -> None:
    found = violations(module, source)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kohort.wire.frame", "import struct\nfrom kohort.wire import errors\nfrom . import varint"),
        ("kohort.wire.compiler.generate", "from pathlib import Path"),
        ("kohort.log.store", "import kohort\nplace = kohort.__file__"),
        (
            "kohort.log.durability.sync",
            "import os, threading, time\nfrom kohort.wire.errors import ErrorCode",
        ),
        ("kohort.coordinator.classic.join", "from kohort import settings\nfrom kohort.wire import errors"),
        ("kohort.broker.net.server", "import asyncio\nfrom kohort import log, coordinator, wire"),
        ("kohort.cli.main", "from kohort import __version__\nfrom kohort.broker import server"),
        ("kohort.client.io.network", "import socket, time"),
        ("kohort.client.io.network", "from kohort.client.core import steps\nfrom kohort.client import types"),
        ("kohort.sim.world", "import random\nfrom kohort.coordinator import groups"),
        ("kohort.wire.messages.fetch", "x = 1\n" * 451),
    ],
)
def test_the_checker_lets_pass(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_the_rules_that_are_written_down_are_those_that_are_checked() -> None:
    text = (SOURCE.parent.parent / "ARCHITECTURE.md").read_text("utf-8")
    rules = text.split("## Who may import whom")[1].split("\n## ")[0]
    words = {word for word in re.findall(r"`([^`]+)`", rules) if "/" not in word}
    assert {"wire", "log", "asyncio", "time"} <= words  # that the section was found
    assert words <= set(MAY_IMPORT) | CLOCKS_AND_OUTSIDE
