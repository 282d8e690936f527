"""The pytest plugin of `pip install kohort`: fixtures `kafka`, `kafka_factory`, `kafka_settings`, the marker `kafka`.

Imported by every pytest that has Kohort installed: the broker is loaded by the first test that asks for one.
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
    """Settings of the broker by Kafka's names; override it in a conftest or a module."""
    return {}


@pytest.fixture
def kafka_factory() -> Iterator[Callable[..., Kafka]]:
    """Makes brokers that run, as many as a test needs: `kafka_factory(num_partitions=3)`; all end with the test."""
    from kohort.testing.kafka import Kafka

    with ExitStack() as all_of_them:

        def make(**options: Any) -> Kafka:
            return all_of_them.enter_context(Kafka(**options))

        yield make


@pytest.fixture
def kafka(
    request: pytest.FixtureRequest,
    kafka_settings: dict[str, object],
    kafka_factory: Callable[..., Kafka],
) -> Kafka:
    """A broker of this test's own: see docs/testing.md. `@pytest.mark.kafka(num_partitions=3)` gives it settings."""
    settings = dict(kafka_settings)
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        if marker.args:
            raise pytest.UsageError(f"{request.node.nodeid}: write @pytest.mark.kafka(num_partitions=3)")
        settings |= {name.replace("_", "."): value for name, value in marker.kwargs.items()}
    return kafka_factory(settings=settings)
