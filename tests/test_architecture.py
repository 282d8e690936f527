"""Keeps the rules of ARCHITECTURE.md: who may import whom, what sans-IO packages may not use, one class to a name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort

SOURCE = Path(kohort.__file__).parent

# A package (or a module on top) and the packages that it may import besides itself. `kohort` is the __init__.py on
# top, which loads the client's names when they are used: packages import it for the version or for its place.
MAY_IMPORT = {
    "kohort": {"client", "security", "wire", "settings"},
    "errors": set[str](),
    "settings": {"errors"},
    "exposition": {"settings"},
    "portable": set[str](),
    "loopback": {"portable"},
    "wire": {"errors"},
    "log": {"kohort", "wire", "settings", "portable"},
    "coordinator": {"wire", "settings"},
    "transactions": {"wire", "settings"},
    "share": {"wire", "settings"},
    "security": {"wire", "settings"},
    "broker": {
        "kohort",
        "wire",
        "log",
        "coordinator",
        "transactions",
        "share",
        "security",
        "settings",
        "exposition",
        "loopback",
        "portable",
    },
    "client": {"kohort", "wire", "security", "settings", "loopback", "portable"},
    "prometheus": {"errors", "client"},
    "otel": {"errors", "client"},
    "serde": {"kohort", "errors", "client", "settings"},
    "spark": {"kohort", "errors", "wire", "client", "settings", "exposition", "serde"},
    "insight": {"kohort", "errors", "wire", "coordinator", "client", "settings"},
    "console": {
        "kohort",
        "errors",
        "wire",
        "coordinator",
        "client",
        "settings",
        "insight",
        "serde",
        "exposition",
    },
    "testing": {"kohort", "wire", "log", "coordinator", "broker", "client", "settings", "spark"},
    "cli": {
        "kohort",
        "errors",
        "insight",
        "console",
        "serde",
        "wire",
        "log",
        "coordinator",
        "broker",
        "client",
        "security",
        "settings",
        "exposition",
        "sim",
        "spark",
        "testing",
    },
    "sim": {
        "kohort",
        "wire",
        "log",
        "coordinator",
        "transactions",
        "share",
        "broker",
        "client",
        "settings",
        "cli",
    },
}

# A package within a package, and what it may import of the outer one besides itself: other inner packages (with /)
# and single modules (with a dot). The modules of the outer package itself may import all of its inner packages.
_WORDS = {"client.types", "client.errors", "client.config"}
MAY_IMPORT_WITHIN: dict[str, set[str]] = {
    "wire/compiler": {"wire/codecs", "wire/messages", "wire.errors", "wire.struct", "wire.varint"},
    "wire/messages": {"wire.struct"},
    "wire/codecs": {"wire/messages", "wire.errors", "wire.struct", "wire.varint"},
    "wire/records": {"wire.errors", "wire.varint"},
    "log/storage": set(),
    "log/durability": {"log/storage"},
    "log/maintenance": {"log/storage", "log.partition", "log.topic"},
    "coordinator/assignors": set(),
    "coordinator/classic": {
        "coordinator.effects",
        "coordinator.events",
        "coordinator.frozen",
        "coordinator.member_session",
        "coordinator.records",
        "coordinator.replay",
        "coordinator.step_context",
    },
    "coordinator/modern": {
        "coordinator/assignors",
        "coordinator.effects",
        "coordinator.events",
        "coordinator.frozen",
        "coordinator.member_session",
        "coordinator.shard",
        "coordinator.step_context",
        "coordinator.topic_catalog",
    },
    "coordinator/consumer": {
        "coordinator/assignors",
        "coordinator/classic",
        "coordinator/modern",
        "coordinator.effects",
        "coordinator.events",
        "coordinator.frozen",
        "coordinator.history",
        "coordinator.records",
        "coordinator.regex",
        "coordinator.replay",
        "coordinator.step_context",
        "coordinator.topic_catalog",
    },
    "coordinator/share": {
        "coordinator/assignors",
        "coordinator/classic",
        "coordinator/modern",
        "coordinator.effects",
        "coordinator.events",
        "coordinator.frozen",
        "coordinator.history",
        "coordinator.replay",
        "coordinator.step_context",
    },
    "broker/security": {"broker.broker", "broker.call", "broker.clock", "broker.config", "broker.listeners"},
    "broker/net": {
        "broker/security",
        "broker.error_answers",
        "broker.api_row",
        "broker.broker",
        "broker.call",
        "broker.listeners",
        "broker.meter",
        "broker.missing",
        "broker.names",
        "broker.request_meter",
    },
    "broker/apis": {
        "broker/groups",
        "broker/transactions",
        "broker/share",
        "broker/security",
        "broker.api_row",
        "broker.broker",
        "broker.call",
        "broker.client_metrics_settings",
        "broker.config",
        "broker.fetch_sessions",
        "broker.group_settings",
        "broker.kafka_settings",
        "broker.missing",
        "broker.names",
        "broker.verification",
    },
    "broker/share": {"broker/groups", "broker.broker", "broker.config", "broker.names"},
    "broker/groups": {"broker.broker", "broker.config", "broker.names"},
    "broker/transactions": {
        "broker/groups",
        "broker.broker",
        "broker.config",
        "broker.names",
        "broker.verification",
    },
    "client/core": _WORDS,
    "client/io": _WORDS | {"client/core"},
    "client/offsets": _WORDS | {"client/core"},
    "client/group": _WORDS | {"client/core", "client/offsets"},
    "client/consume": _WORDS | {"client/core", "client/offsets", "client/group", "client.records"},
    "client/share": _WORDS | {"client/core", "client/group", "client/consume", "client.records"},
    "client/produce": _WORDS | {"client/core"},
    "client/administer": _WORDS | {"client/core", "client/offsets", "client/group", "client.admin_types"},
    "spark/formats": set(),
    "spark/executor": {"spark/formats", "spark.options", "spark.ranges", "spark.restriction"},
    "spark/driver": {
        "spark/executor",
        "spark.offsets",
        "spark.options",
        "spark.pyspark_api",
        "spark.ranges",
        "spark.restriction",
    },
    "spark/pipelines": {
        "spark/driver",
        "spark.options",
        "spark.sessions",
    },
    "spark/history": {"spark/pipelines"},
    "cli/frame": {"cli.main", "cli.commands"},
    "cli/records": {"cli/frame"},
    "cli/bench": {"cli/frame", "cli/records"},
}

# Programs that are built on the client use its modules on top alone: for what is more than a consumer, a producer or
# an admin does, `client.embedding`. The kit and the simulator look inside, as tests do.
ON_TOP_OF_THE_CLIENT = {"spark", "serde", "insight", "console", "cli", "prometheus", "otel"}

# These packages turn bytes into bytes, or messages into messages and records. Time and chance are arguments.
SANS_IO = ("wire", "coordinator", "transactions", "share", "security", "client")
# The half of the client that waits and owns sockets and threads: one package, and the fronts that users call.
DOES_IO = {"kohort.client.io"} | {
    f"kohort.client.{name}"
    for name in (
        "consumer",
        "async_consumer",
        "share_consumer",
        "async_share_consumer",
        "producer",
        "async_producer",
        "admin",
        "async_admin",
        "embedding",
    )
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

# Generated: Kafka's own names, which may repeat from one API to the next.
GENERATED = "kohort.wire.messages."


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    """`kohort.log.storage.segment` is in `log`; `kohort` itself counts as a package too."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def inner_package_of(module: str) -> str:
    """`kohort.client.core.steps` is in `client/core`; `kohort.client.types` is the module `client.types`."""
    parts = module.split(".")
    inner = "/".join(parts[1:3])
    return inner if inner in MAY_IMPORT_WITHIN else ".".join(parts[1:3])


def imports_of(module: str, source: str, *, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yields every module that a source imports, at the top or in a function, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                here = module.split(".") if is_package else module.split(".")[:-1]
                base = here[: len(here) - node.level + 1]
                origin = ".".join([*base, origin]) if origin else ".".join(base)
            for alias in node.names:
                # `from kohort import log` names the package in its second half,
                # and `from kohort.client import types` the module.
                yield node.lineno, f"{origin}.{alias.name}" if origin.count(".") < 2 else origin
        elif isinstance(node, ast.Attribute):
            # After `import kohort` a package is reached as an attribute.
            if isinstance(node.value, ast.Name) and node.value.id == "kohort":
                yield node.lineno, f"kohort.{node.attr}"
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and node.args:
                yield node.lineno, beginning_of(node.args[0])


def beginning_of(text: ast.expr) -> str:
    """Returns a string, or the part of an f-string that stands before its first brace."""
    first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text
    return str(first.value).rstrip(".") if isinstance(first, ast.Constant) else ""


def is_sans_io(module: str) -> bool:
    """Says whether the rules for sans-IO code hold for a module; all that is below a name in DOES_IO is exempt."""
    return package_of(module) in SANS_IO and not any(f"{module}.".startswith(f"{name}.") for name in DOES_IO)


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Returns what a source does against the rules, one sentence each."""
    package, found = package_of(module), []
    if package not in MAY_IMPORT:
        return [f"{module}: the package {package!r} is not in ARCHITECTURE.md"]
    for line, imported in imports_of(module, source, is_package=is_package):
        top = imported.split(".")[0]
        if top == "kohort":
            other = package_of(imported)
            # `from kohort import __version__` imports a name of `kohort` itself, not a package.
            other = other if other in MAY_IMPORT else "kohort"
            if other != package and other not in MAY_IMPORT[package]:
                found.append(f"{module} line {line}: {package} must not import {other}")
            here, there = inner_package_of(module), inner_package_of(imported)
            within = MAY_IMPORT_WITHIN.get(here)
            if other == package and within is not None and there != here and there not in within:
                found.append(f"{module} line {line}: {here} must not import {there}")
            if there.startswith("client/") and package in ON_TOP_OF_THE_CLIENT:
                found.append(
                    f"{module} line {line}: {package} must not import {there}, only what is on top of client"
                )
        elif is_sans_io(module) and top in CLOCKS_AND_OUTSIDE - MAY_USE_ANYWAY.get(module, set()):
            found.append(f"{module} line {line}: {package} must not use {top}")
    if re.search(r"\b(TODO|FIXME)\b", source):
        found.append(f"{module}: something is left to do")
    return found


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_the_sources_keep_the_rules() -> None:
    paths = source_files()
    assert len(paths) > 40  # the sources were found
    found = []
    for path in paths:
        name, is_package = module_name(path), path.name == "__init__.py"
        found += violations(name, path.read_text("utf-8"), is_package=is_package)
    assert not found, "\n".join(found)


def public_classes(module: str, source: str) -> Iterator[str]:
    """Yields the names of the public classes that a module defines on top; type aliases are not classes."""
    for node in ast.parse(source).body:
        if (
            isinstance(node, ast.ClassDef)
            and not node.name.startswith("_")
            and not module.startswith(GENERATED)
        ):
            yield node.name


def test_a_public_class_name_stands_for_one_class() -> None:
    """A reader who meets the name of a class in a traceback or a review knows which class it is."""
    homes: dict[str, list[str]] = {}
    for path in source_files():
        module = module_name(path)
        for name in public_classes(module, path.read_text("utf-8")):
            homes.setdefault(name, []).append(module)
    several = [f"{name}: {', '.join(modules)}" for name, modules in sorted(homes.items()) if len(modules) > 1]
    assert not several, "\n".join(several)


def test_the_test_of_class_names_sees_public_classes_alone() -> None:
    source = "class One: pass\nclass _Two: pass\ndef f():\n    class Three: pass\n"
    assert list(public_classes("kohort.log.store", source)) == ["One"]
    assert list(public_classes("kohort.wire.messages.fetch", source)) == []


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
        ("kohort.spark.sink", "from kohort.client.core import steps", "spark must not import client/core"),
        ("kohort.cli.groups", "from kohort.client import io", "cli must not import client/io"),
        (
            "kohort.spark.driver.stream",
            "from kohort.spark.source import KohortDataSource",
            "spark/driver must not import spark.source",
        ),
        (
            "kohort.spark.pipelines.run",
            "from kohort.spark.history import extract",
            "spark/pipelines must not import spark/history",
        ),
        ("kohort.client.core.steps", "import socket", "client must not use socket"),
        ("kohort.attic.box", "", "the package 'attic' is not in ARCHITECTURE.md"),
        ("kohort.log.store", "x = 1  # TODO: more", "something is left to do"),
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
        (
            "kohort.spark.driver.member",
            "from kohort.client import embedding\nfrom kohort.client.types import V",
        ),
        ("kohort.sim.world", "import random\nfrom kohort.coordinator import groups"),
        ("kohort.sim.consumer", "from kohort.client.io import engine"),
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
