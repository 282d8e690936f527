"""docs/console.md: every request in it is sent to a console, in order; every path of the API is in its table."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kohort.testing import Kafka
from tests.console.api import TOKEN, console_of, read_some

DOCS = Path(__file__).parents[2] / "docs" / "console.md"
ADDRESS = "http://127.0.0.1:9080"


def requests_of(page: str) -> list[tuple[str, dict[str, str], str | None]]:
    """The requests that a page shows as curl commands: path, headers, body."""
    found = []
    for command in re.findall(r"^\$ (curl .*)$", page, re.MULTILINE):
        words = shlex.split(command.replace("$TOKEN", TOKEN))
        (address,) = [word for word in words if word.startswith(ADDRESS)]
        headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
        body = words[words.index("-d") + 1] if "-d" in words else None
        found.append((address.removeprefix(ADDRESS), headers, body))
    return found


def test_every_request_of_the_page_is_answered():
    with Kafka() as kafka:
        kafka.create_topic("orders", 1)
        kafka.produce("orders", [b"fine", b"broken"])
        read_some(kafka, "billing", "orders", 2)
        with console_of(kafka.bootstrap_servers) as console:
            for path, headers, body in requests_of(DOCS.read_text("utf-8")):
                answer = (
                    console.get(path) if body is None else console.post(path, content=body, headers=headers)
                )
                assert answer.status_code == 200, (path, answer.text)
                if "search=broken" in path:
                    assert len(answer.json()["messages"]) == 1
                if "shift" in (body or ""):
                    assert kafka.committed("billing", "orders") == {0: 1}


def test_the_table_has_every_path_that_shows_something():
    with console_of("127.0.0.1:1") as console:
        paths = console.get("/api/openapi.json").json()["paths"]
    shown = {path for path, methods in paths.items() if path.startswith("/api") and "get" in methods}
    page = DOCS.read_text("utf-8")
    assert not [path for path in shown if f"`{path}`" not in page]
