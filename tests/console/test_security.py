"""Who may ask what: token, other sites, DNS rebinding, sizes, and the headers of each answer."""

from __future__ import annotations

import pytest

from kohort.console.security import MOST_BODY_BYTES, host_of, is_address
from kohort.console.tokens import is_token, new_token
from kohort.testing import Kafka
from tests.console.api import CHANGE, TOKEN, console_of, error_of

QUESTION = {"group": "g", "to": "latest", "topics": [{"topic": "orders"}], "dry_run": False}


@pytest.fixture(scope="module")
def console():
    with Kafka() as kafka:
        kafka.create_topic("orders", 1)
        with console_of(kafka.bootstrap_servers, allowed_hosts=["kafka.example"]) as client:
            yield client


def reset(console, **headers: str):
    return console.post("/api/group/reset", json=QUESTION, headers=headers)


@pytest.mark.parametrize(
    "token",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer ü"],
)
def test_a_change_without_the_token_is_refused(console, token):
    headers = {} if token is None else {"authorization": token.encode()}
    refused = console.post("/api/group/reset", json=QUESTION, headers=headers)
    assert "token" in error_of(refused, 401, "unauthorized")
    assert refused.headers["www-authenticate"].startswith("Bearer")


def test_tokens_are_long_and_never_the_same():
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) >= 20
    assert is_token(f"bearer {TOKEN}", TOKEN)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "a@localhost", "x/y"]
)
def test_dns_rebinding_is_refused(console, host):
    assert "--allow-host" in error_of(console.get("/api/groups", headers={"host": host}), 421, "wrong_host")
    error_of(console.get("/", headers={"host": host}), 421, "wrong_host")


@pytest.mark.parametrize(
    "host", ["localhost:1", "127.0.0.1:9080", "[::1]:9080", "kafka.example", "KAFKA.example.", "10.1.2.3"]
)
def test_own_names_and_addresses_are_fine(console, host):
    assert console.get("/healthz", headers={"host": host}).status_code == 200


def test_hosts_are_read_as_browsers_write_them():
    assert host_of("[::1]:80") == "[::1]"
    assert is_address("[::1]")
    assert not is_address("::1.evil.example")
    assert host_of("a:b") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1234"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_change_from_another_site_is_refused_even_with_the_token(console, headers):
    error_of(reset(console, **CHANGE, **headers), 403, "other_site")


def test_a_change_of_the_page_itself_is_carried_out(console):
    done = reset(console, **CHANGE, origin="http://localhost", **{"sec-fetch-site": "same-origin"})
    assert done.status_code == 200, done.text


def test_another_site_may_not_read_either(console):
    refused = console.get("/api/groups", headers={"sec-fetch-site": "cross-site"})
    error_of(refused, 403, "other_site")
    allowed = console.get("/api/groups", headers={"origin": "http://evil.example"})
    assert not [name for name in allowed.headers if name.startswith("access-control")]
    error_of(console.options("/api/groups", headers={"origin": "http://evil.example"}), 403)


def test_a_form_of_another_site_cannot_send_a_body(console):
    refused = console.post(
        "/api/group/reset", content="group=g", headers={**CHANGE, "content-type": "text/plain"}
    )
    error_of(refused, 415)


def test_bodies_are_bounded(console):
    headers = {**CHANGE, "content-type": "application/json"}
    large = b" " * (MOST_BODY_BYTES + 1)
    error_of(console.post("/api/group/reset", content=large, headers=headers), 413)
    pieces = (b" " * 100_000 for _ in range(20))  # without a length
    error_of(console.post("/api/group/reset", content=pieces, headers=headers), 413)
    error_of(console.post("/api/group/reset", content=b"{", headers=headers), 400)


@pytest.mark.parametrize("path", ["/", "/api/groups", "/api/group?group=gone", "/nothing", "/api/nothing"])
def test_every_answer_has_the_headers_of_safety(console, path):
    headers = console.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_what_is_not_there_and_paths_out_of_the_folder(console):
    error_of(console.get("/api/nothing"), 404)
    for path in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/static/../../app.py"):
        error_of(console.get(path), 404)


def test_read_only_changes_nothing(console):
    with Kafka() as kafka, console_of(kafka.bootstrap_servers, read_only=True) as client:
        assert "--read-only" in error_of(reset(client, **CHANGE), 403, "read_only")
        assert client.get("/api/cluster").json()["read_only"] is True
