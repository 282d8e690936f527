"""One broker process per module of tests; a module may name its settings in SETTINGS."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from tests.clients.process import BrokerProcess
from tests.clients.process import show_broker_log as pytest_runtest_makereport

__all__ = ["broker", "name", "pytest_runtest_makereport"]


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    settings = getattr(request.module, "SETTINGS", ())
    with BrokerProcess(tmp_path_factory.mktemp("broker"), *settings) as running:
        yield running
        assert running.is_running, "the broker ended by itself"
        assert running.terminate() == 0


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test uses."""
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")[:60]
    return f"{readable}-{uuid.uuid4().hex[:6]}"
