"""Each field has one writer: a module of the client sets fields of its own classes, and calls methods of all others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kohort.client

CLIENT = Path(next(iter(kohort.client.__path__)))
PACKAGES = ("administer", "consume", "group", "io", "offsets")
# The contexts of the standard library have no methods for these of TLS; the reader's limit and the metadata's lane are
# set while wiring.
TLS = {"check_hostname", "verify_mode", "minimum_version", "maximum_version"}
ALLOWED = TLS | {"limit", "lane_of_look_ups"}


def modules() -> list[Path]:
    return sorted(
        [*CLIENT.glob("*consumer.py"), *(p for name in PACKAGES for p in (CLIENT / name).glob("*.py"))]
    )


def fields(tree: ast.Module) -> set[str]:
    """The names that the classes of a module give their fields."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node):
            found.add(node.attr)
    return found


def is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def foreign_writes(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    own = fields(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store) or is_self(node):
            continue
        if node.attr not in own | ALLOWED:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_module_writes_a_field_of_another() -> None:
    paths = modules()
    assert len(paths) > 20  # that they are looked at at all
    found = [f"{path.name} {write}" for path in paths for write in foreign_writes(path.read_text("utf-8"))]
    assert not found, "\n".join(found)


def test_the_check_sees_a_foreign_write_and_lets_its_own_pass() -> None:
    source = "class A:\n    mine: int\n\ndef f(a, state):\n    a.mine = 1\n    state.position = None\n"
    assert list(foreign_writes(source)) == ["line 6: state.position"]
