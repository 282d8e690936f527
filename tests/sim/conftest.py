"""For all simulations: quiet, and with time.

The client would tell of every fault: thousands of lines that nobody reads cost half of the time. And they only compute:
on a machine that others use too, that may last very long.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

LONGEST_S = 1200.0


@pytest.fixture(autouse=True)
def quiet_client() -> Iterator[None]:
    logger = logging.getLogger("kohort.client")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of all tests, not only of those beside this file."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_S))
