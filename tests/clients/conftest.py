"""One broker process per module of tests; a module may name its settings in SETTINGS."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.process import BrokerProcess
from tests.clients.process import show_broker_log as pytest_runtest_makereport

__all__ = ["broker", "client", "connect", "name", "pytest_runtest_makereport"]

Connect = Callable[[type[Any]], Any]


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    settings = getattr(request.module, "SETTINGS", ())
    with BrokerProcess(tmp_path_factory.mktemp("broker"), *settings) as running:
        yield running
        assert running.is_running, "the broker ended by itself"
        assert running.terminate() == 0


@pytest.fixture(scope="module")
def connect(broker: BrokerProcess) -> Iterator[Connect]:
    """An adapter of a class, one for all tests of the module."""
    made: dict[type[Any], Any] = {}

    def adapter(client: type[Any]) -> Any:
        if client not in made:
            made[client] = client(broker.bootstrap_servers)
        return made[client]

    yield adapter
    for client in made.values():
        client.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, connect: Connect) -> Any:
    """The client that `each_client` chose."""
    return connect(request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test uses."""
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")[:60]
    return f"{readable}-{uuid.uuid4().hex[:6]}"
