"""A client that asks for a missing feature is named in the broker's log, once: its own messages mislead."""

from __future__ import annotations

import logging
import struct

import pytest

from kohort.broker import running
from kohort.broker.apis.table import TABLE
from kohort.broker.missing import _APIS, Missing
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.messages.metadata import MetadataRequest

HOUR_MS = 3_600_000


@pytest.fixture
def broker():
    with running() as started:
        yield started


@pytest.fixture
def told(caplog):
    """The warnings about what is missing."""
    caplog.set_level(logging.WARNING, "kohort.broker")
    return lambda: [r.getMessage() for r in caplog.records if "does not have that yet" in r.getMessage()]


def unknown_request(key: int, client_id: bytes) -> bytes:
    """A request with a header that all versions begin with."""
    head = struct.pack(">hhih", key, 0, 1, len(client_id)) + client_id
    return struct.pack(">i", len(head)) + head


def is_closed(connection: BlockingConnection) -> bool:
    try:
        return connection._socket.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    ("key", "words"),
    [(88, "KIP-1071"), (38, "delegation tokens")],
)
def test_requests_of_apis_that_are_not_there(broker, told, key, words):
    for _ in range(3):
        with BlockingConnection(broker.bootstrap_servers) as client:
            client.send_bytes(unknown_request(key, b"newer"))
            assert is_closed(client)
    (line,) = told()
    assert "client 'newer'" in line
    assert words in line


def test_who_asks_for_what_is_there_is_not_told_anything(broker, told):
    with BlockingConnection(broker.bootstrap_servers) as client:
        client.call(MetadataRequest(None), version=12)
        client.call(InitProducerIdRequest(None, 1000), version=4)
        client.call(FindCoordinatorRequest("g"), version=2)
    assert told() == []


def test_what_is_served_is_not_missing():
    assert not set(_APIS) & set(TABLE)


def test_it_is_told_again_after_an_hour(told):
    missing = Missing()
    for now_ms in (0, HOUR_MS - 1, HOUR_MS, HOUR_MS + 1):
        missing.tell("transactions", "EndTxn", "c", "here", now_ms)
    assert len(told()) == 2


def test_memory_and_lines_are_bounded_whatever_clients_call_themselves(told, caplog):
    missing = Missing()
    for number in range(5_000):
        missing.tell(
            "transactions", "EndTxn", f"client {number}" + "x" * 30_000, "here", 60_000 * (number // 25)
        )
    assert len(missing._told_ms) == 1000
    assert len(told()) == 20 * 200
    assert sum("not named for a minute" in record.getMessage() for record in caplog.records) == 200
    assert max(map(len, told())) < 500
