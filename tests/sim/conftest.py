"""The client would tell of every fault: thousands of lines that nobody reads cost half of the time."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet_client() -> Iterator[None]:
    logger = logging.getLogger("kohort.client")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
