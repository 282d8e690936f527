"""Every admin API over a socket, in every version that is served."""

from __future__ import annotations

import importlib

import pytest

from kohort.broker import running
from kohort.broker.apis import table as apis
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.compiler.notation import all_apis

ADMIN = (2, 3, 19, 20, 21, 22, 23, 32, 33, 35, 37, 43, 44, 46, 60, 61, 74, 75)


@pytest.fixture(scope="module")
def client():
    with running() as broker, BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key in ADMIN for version in range(apis.TABLE[key].first, apis.TABLE[key].last + 1)],
)
def test_a_request_that_asks_for_nothing_is_answered(client, key, version):
    spec = all_apis()[key]
    module = importlib.import_module(f"kohort.wire.messages.{spec.module}")
    request = getattr(module, spec.request.name)()
    if key == 22:
        request.transactional_id = None
    answer = client.call(request, version=version)
    assert isinstance(answer, getattr(module, spec.response.name))
    assert getattr(answer, "error_code", 0) == 0
