"""The pytest plugin: the fixtures `kafka`, `kafka_factory` and `kafka_settings`, and the marker `kafka`.

Every pytest in an environment with Kohort imports it, so it loads the broker only when a test asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kohort.testing.kafka import Kafka

_MARKER = (
    "kafka(**settings): settings of the broker behind the fixture `kafka`, by Kafka's names with underscores: "
    "@pytest.mark.kafka(num_partitions=3)"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def kafka_settings() -> dict[str, object]:
    """Returns settings of the broker by Kafka's names; override this fixture in a conftest or a module."""
    return {}


@pytest.fixture
def kafka_factory() -> Iterator[Callable[..., Kafka]]:
    """Starts as many brokers as a test needs: `kafka_factory(num_partitions=3)`; all end with the test."""
    from kohort.testing.kafka import Kafka

    with ExitStack() as brokers:

        def make(**options: Any) -> Kafka:
            return brokers.enter_context(Kafka(**options))

        yield make


@pytest.fixture
def kafka(
    request: pytest.FixtureRequest,
    kafka_settings: dict[str, object],
    kafka_factory: Callable[..., Kafka],
) -> Kafka:
    """Starts a broker for one test (docs/testing.md); `@pytest.mark.kafka(num_partitions=3)` gives it settings."""
    settings = dict(kafka_settings)
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        if marker.args:
            raise pytest.UsageError(f"{request.node.nodeid}: write @pytest.mark.kafka(num_partitions=3)")
        settings |= {name.replace("_", "."): value for name, value in marker.kwargs.items()}
    return kafka_factory(settings=settings)
