"""A pytest plugin: of the client's tests only those that talk to the given cluster; `make test` has run the others."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    talks = [item for item in items if "bootstrap_servers" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(talks)])
    items[:] = talks
