"""A schema registry for the tests of `kohort.serde`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.serde.registry import SchemaRegistry
from tests.serde.registry_server import Registry, running_registry


@pytest.fixture
def server() -> Iterator[Registry]:
    """An empty registry behind HTTP."""
    with running_registry() as registry:
        yield registry


@pytest.fixture
def registry(server: Registry) -> Iterator[SchemaRegistry]:
    """Our client of it, which retries at once."""
    with SchemaRegistry({"url": server.url, "retries.wait.ms": 1, "timeout": 5}) as client:
        yield client
