"""Brokers that are killed and started again on the same port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.process import BrokerProcess, fixed_port
from tests.clients.process import show_broker_log as pytest_runtest_makereport

__all__ = ["broker", "pytest_runtest_makereport"]


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = getattr(request.module, "SETTINGS", ())
    with BrokerProcess(tmp_path, *settings, port=fixed_port()) as running:
        yield running
