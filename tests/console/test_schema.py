"""Schemathesis tries the API by its description, on a real broker: no answer is a fault."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from kohort.testing import Kafka
from tests.console.api import CHANGE, read_some, served_console

EXAMPLES = 3


@pytest.fixture(scope="module")
def console():
    with Kafka() as kafka:
        kafka.create_topic("orders", 2)
        kafka.produce("orders", [b"one", b"two"])
        read_some(kafka, "billing", "orders", 1)
        with served_console(kafka.bootstrap_servers, **{"default.api.timeout.ms": "10000"}) as client:
            yield client


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_no_answer_is_a_fault(console, mode):
    """Right and wrong parameters and bodies, for each operation."""
    described = schemathesis.openapi.from_dict(console.get("api/openapi.json").json())
    tried = 0
    for operation in described.get_all_operations():
        if operation.ok().path != "/api/events":  # its answer has no end
            tried += try_operation(console, operation.ok(), mode)
    assert tried > 20


def try_operation(console: httpx.Client, operation: Any, mode: schemathesis.GenerationMode) -> int:
    """Sends what fits the description of an operation, or what does not; returns how many requests that were."""
    tried = []

    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        with requests.Session() as session:
            session.trust_env = False  # never by way of a proxy
            try:
                answer = case.call(base_url=str(console.base_url), session=session, headers=CHANGE)
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
                return  # a URL of a megabyte: the server does not read it to its end
        tried.append(answer)
        assert answer.status_code < 500, (answer.status_code, answer.text)
        if answer.status_code >= 400 and answer.text != "Invalid HTTP request received.":  # uvicorn says so
            assert json.loads(answer.text)["error"]["message"]

    try:
        attempt()
    except Unsatisfiable:
        pass  # an operation without parameters has no wrong ones
    return len(tried)
