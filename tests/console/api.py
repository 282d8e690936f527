"""What the tests of the console's API share: the app without a socket, a broker with groups, and events."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from fastapi.testclient import TestClient

from kohort.client.consumer import Consumer
from kohort.console.app import ConsoleOptions, create_app
from kohort.console.listening import address_of, listen_at
from kohort.console.server import ConsoleServer
from kohort.testing import Kafka

TOKEN = "the-token-of-this-test"
CHANGE = {"authorization": f"Bearer {TOKEN}"}


@contextmanager
def console_of(bootstrap: str, **options: Any) -> Iterator[TestClient]:
    """Runs the app of a console for a cluster; its clients come from this machine."""
    app = create_app(
        {"bootstrap.servers": bootstrap, "default.api.timeout.ms": "10000"},
        ConsoleOptions(**{"token": TOKEN, **options}),
    )
    with TestClient(app, base_url="http://localhost") as client:
        yield client


@contextmanager
def served_console(bootstrap: str, **settings: str) -> Iterator[httpx.Client]:
    """Serves a console on a free port, in a thread; its client goes around proxies."""
    app = create_app(
        {"bootstrap.servers": bootstrap, "default.api.timeout.ms": "1000", **settings}, ConsoleOptions(TOKEN)
    )
    with listen_at("127.0.0.1", 0, "--listen") as listening:
        server = ConsoleServer(app, listening)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            with httpx.Client(base_url=address_of(listening), trust_env=False, timeout=60) as client:
                yield client
        finally:
            server.end()
            thread.join(30)


def read_some(kafka: Kafka, group: str, topic: str, count: int) -> None:
    """Has a group read so many records of a topic, commit, and leave."""
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    with Consumer({**settings, "enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < count:
            read += sum(len(records) for records in consumer.poll(1.0, max_records=count - read).values())
        consumer.commit()


def error_of(answer: Any, status: int, code: str | None = None) -> str:
    """Checks that an answer is an error in the form of the API, and returns its message."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert code is None or error["code"] == code, error
    assert error["message"]
    return str(error["message"])


def events_of(stream: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the events of a stream as they come."""
    event = ""
    for line in stream.iter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield event, json.loads(line.removeprefix("data: "))
