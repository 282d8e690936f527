"""The client libraries, ours among them, and how a test is run for each of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.aio import AioKafka
from tests.clients.client import able
from tests.clients.confluent import Confluent
from tests.clients.kafka_python import KafkaPython
from tests.clients.ours import Kohort
from tests.clients.ours_async import KohortAsync

CLIENTS: tuple[type[Any], ...] = (Confluent, AioKafka, KafkaPython, Kohort, KohortAsync)


def each_client(*methods: str) -> pytest.MarkDecorator:
    """Runs a test once per client that has these methods, as `client`."""
    chosen = able(CLIENTS, *methods)
    return pytest.mark.parametrize("client", chosen, indirect=True, ids=[client.name for client in chosen])


def each_codec() -> pytest.MarkDecorator:
    """Runs a test for every compression of every client, as `client` and `codec`."""
    pairs = [
        pytest.param(client, codec, id=f"{client.name}-{codec}")
        for client in CLIENTS
        for codec in client.codecs
    ]
    return pytest.mark.parametrize(("client", "codec"), pairs, indirect=["client"])
