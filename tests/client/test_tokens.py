"""Tokens of OAUTHBEARER: where they come from, for how long all connections use one, and who waits for them."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import trustme

from kohort.client.core.effects import Failure, FailureKind, Lane
from kohort.client.io.async_engine import AsyncEngine
from kohort.client.io.tls import security_for
from kohort.client.io.tokens import BearerToken, TokenRefused, expiry_of, token_source
from kohort.settings import SettingError
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from tests.client.driving import HEARTBEAT, PATIENCE_MS, Asker, Driven, config_for, driven
from tests.client.scripted import ScriptedBroker
from tests.client.test_sasl import AUTHENTICATE, HANDSHAKE, OK, Later, sasl_broker

LIFE_MS = 600_000
SECRET = "s&cr+t of the client"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def oauth(**settings: Any) -> dict[str, Any]:
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", **settings}


def source_of(**settings: Any) -> Callable[[], BearerToken]:
    return token_source(config_for("127.0.0.1:1", **oauth(**settings)), {})


def security(objects: dict[str, Any], **settings: Any) -> Any:
    return security_for(config_for("127.0.0.1:1", **oauth(**settings)), objects)


def jwt(**claims: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in ({}, claims)]
    return ".".join((*parts, "signature"))


def shown(broker: ScriptedBroker) -> list[str]:
    """The tokens that the broker saw, with what came with them."""
    said = [bytes(r.message.auth_bytes).decode() for r in broker.requests_of(AUTHENTICATE)]
    return [text.removeprefix("n,,\x01auth=Bearer ").removesuffix("\x01\x01") for text in said]


def accepting(lifetime_ms: int = 0) -> ScriptedBroker:
    return sasl_broker(lambda request: SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))


# --- one token for all connections ------------------------------------------------------------------------------------


class Issuer:
    """An oauth_cb that counts its calls, and waits where a test wants it to."""

    def __init__(self, later: Later | None = None) -> None:
        self.calls: list[str] = []
        self.may_return = threading.Event()
        self.may_return.set()
        self.error: Exception | None = None
        self._later = later

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        self.calls.append(config)
        name = f"token-{len(self.calls)}"
        assert self.may_return.wait(60)
        if self.error is not None:
            raise self.error
        now_ms = time.time() * 1000 + (self._later.ms if self._later is not None else 0)
        return name, (now_ms + LIFE_MS) / 1000, "ann", {"traceId": "7"}


def on_both_lanes(client: Driven) -> list[Any]:
    client.know_nodes()
    return [client.call(node_id=1, lane=lane).response for lane in Lane]


def test_all_connections_show_one_token_until_most_of_its_life_is_over() -> None:
    later = Later()
    issuer = Issuer(later)
    own = security(
        {"oauth_cb": issuer}, sasl_oauthbearer_config="for=me", sasl_oauthbearer_extensions="pool=p"
    )
    settings: dict[str, Any] = {"connections_max_idle_ms": 1000, "security": own, "reactor": later.reactor}
    with accepting() as broker, driven(broker.address, **settings) as client:
        assert on_both_lanes(client) == [OK, OK]
        assert issuer.calls == ["for=me"]
        assert shown(broker) == ["token-1\x01pool=p\x01traceId=7"] * 2
        later.ms = int(LIFE_MS * 0.75)  # connections are idle and closed by now
        assert on_both_lanes(client) == [OK, OK]
        assert len(issuer.calls) == 1
        later.ms = int(LIFE_MS * 0.85)
        assert on_both_lanes(client) == [OK, OK]
        assert len(issuer.calls) == 2
        assert shown(broker)[-1].startswith("token-2")
        assert len(broker.requests_of(HANDSHAKE)) == 6


def test_an_old_token_is_used_while_no_new_one_can_be_had(caplog: pytest.LogCaptureFixture) -> None:
    later = Later()
    issuer = Issuer(later)
    settings: dict[str, Any] = {"connections_max_idle_ms": 1000, "reactor": later.reactor}
    own = security({"oauth_cb": issuer})
    with accepting() as broker, driven(broker.address, security=own, **settings) as client:
        assert on_both_lanes(client) == [OK, OK]
        issuer.error = ConnectionError("the identity provider is away")
        later.ms = int(LIFE_MS * 0.85)
        assert on_both_lanes(client) == [OK, OK]
        assert "the old one is used for now" in caplog.text
        assert "the identity provider is away" in caplog.text
        later.ms = int(LIFE_MS * 1.01)
        failure = client.call(node_id=1).failure
        assert failure is not None
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "the identity provider is away" in failure.message
        issuer.error = None
        later.ms += 60_000
        assert client.call(node_id=1).response == OK


def test_nobody_waits_for_a_new_token_while_the_session_lasts() -> None:
    """The token callable runs on a thread of its own; requests go on, and the login follows when there is a token."""
    later = Later()
    issuer = Issuer(later)
    settings: dict[str, Any] = {"connections_max_idle_ms": -1, "reactor": later.reactor}
    own = security({"oauth_cb": issuer})
    with accepting(LIFE_MS) as broker, driven(broker.address, security=own, **settings) as client:
        client.know_nodes()
        assert client.call(node_id=1).response == OK
        issuer.may_return.clear()
        later.ms = int(LIFE_MS * 0.96)
        for _ in range(3):
            assert client.call(node_id=1).response == OK
        assert len(broker.requests_of(HANDSHAKE)) == 1
        issuer.may_return.set()
        client.eventually(lambda: len(issuer.calls) == 2)
        while len(shown(broker)) < 2:
            assert client.call(node_id=1).response == OK
        assert shown(broker)[-1].startswith("token-2")
        assert broker.connection_count == 1


async def test_a_loop_goes_on_while_a_token_is_fetched() -> None:
    issuer = Issuer()
    issuer.may_return.clear()
    with accepting() as broker:
        config = config_for(broker.address, **oauth())
        engine = AsyncEngine(config, security=security_for(config, {"oauth_cb": issuer}))
        asker = Asker(engine.out)
        engine.add(asker)
        asker.ask()
        assert not await engine.wait(lambda: bool(asker.answers), engine.now_ms() + 50)
        assert issuer.calls  # and the loop went on
        issuer.may_return.set()
        assert await engine.wait(lambda: bool(asker.answers), engine.now_ms() + PATIENCE_MS)
        assert asker.last.response == OK
        engine.close()


def test_a_token_whose_end_is_not_known_is_asked_for_by_each_connection() -> None:
    calls: list[int] = []

    def token() -> str:
        calls.append(1)
        return f"opaque-{len(calls)}"

    own = security({"sasl.oauthbearer.token": token})
    with accepting() as broker, driven(broker.address, security=own) as client:
        assert on_both_lanes(client) == [OK, OK]
        assert shown(broker) == ["opaque-1", "opaque-2"]


def test_the_end_of_a_jwt_is_read_from_it() -> None:
    assert expiry_of(jwt(exp=1700000000.5)) == 1700000000500
    for token in ("opaque", "a.b.c", jwt(), jwt(exp="soon"), jwt(exp=True), "e30.W10.x"):
        assert expiry_of(token) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b"bytes", "a token is a str, not bytes"),
        ("two words", "no blanks"),
        (("t", "soon"), "in seconds since 1970"),
        (("t", 1.0), "the token expired"),
        (("t", None, "ann", {"auth": "x"}), "'auth' is no name"),
        (("t", None, "ann", ["x"]), "a dict of str"),
        ((), "a token is a str, not NoneType"),
    ],
)
def test_a_callable_that_returns_something_else_is_an_error_at_once(given: object, words: str) -> None:
    with (
        accepting() as broker,
        driven(broker.address, security=security({"oauth_cb": lambda _: given})) as client,
    ):
        failure = client.call().failure
        assert failure is not None
        assert failure.kind is FailureKind.AUTHENTICATION
        assert words in failure.message
        assert broker.connection_count == 0


# --- tokens that nobody signed ----------------------------------------------------------------------------------------


def claims_of(token: BearerToken) -> dict[str, Any]:
    head, body, signature = token.value.split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert signature == ""
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    assert token.expires_ms == int(found["exp"] * 1000)
    return found


def test_unsecured_tokens_by_javas_options() -> None:
    options = (
        'unsecuredLoginStringClaim_sub="ann" unsecuredLoginNumberClaim_age="7" unsecuredLoginListClaim_scope="|a|b" '
        'unsecuredLoginLifetimeSeconds="90" unsecuredLoginExtension_traceId="1"'
    )
    token = source_of(sasl_jaas_config=f"{MODULE} required {options};")()
    claims = claims_of(token)
    assert (claims["sub"], claims["age"], claims["scope"]) == ("ann", 7, ["a", "b"])
    assert claims["exp"] - claims["iat"] == pytest.approx(90)
    assert token.extensions == {"traceId": "1"}


def test_unsecured_tokens_by_librdkafkas_settings() -> None:
    given = "principal=ann scope=a,b lifeSeconds=60 extension_traceId=1 scopeClaimName=roles"
    token = source_of(enable_sasl_oauthbearer_unsecure_jwt=True, sasl_oauthbearer_config=given)()
    claims = claims_of(token)
    assert (claims["sub"], claims["roles"]) == ("ann", ["a", "b"])
    assert claims["exp"] - claims["iat"] == pytest.approx(60)
    assert token.extensions == {"traceId": "1"}


def test_the_repr_of_a_token_does_not_show_it() -> None:
    assert SECRET not in repr(BearerToken(SECRET, 5, {"a": SECRET}))


# --- a token endpoint -------------------------------------------------------------------------------------------------


class TokenEndpoint:
    """An HTTP server that answers with what a test puts into `answers`; the last one stays."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[tuple[str, str, dict[str, list[str]]]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                user = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                owner.asked.append((self.path, user, parse_qs(body)))
                status, answer = owner.answers.pop(0) if len(owner.answers) > 1 else owner.answers[0]
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *given: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}/oauth/token"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenEndpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = TokenEndpoint()
    yield made
    made.close()


def by(endpoint: TokenEndpoint, **more: Any) -> Callable[[], BearerToken]:
    settings = {
        "sasl_oauthbearer_token_endpoint_url": endpoint.url,
        "sasl_oauthbearer_client_credentials_client_id": "ann",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        "sasl_oauthbearer_scope": "kafka read",
        "sasl_login_retry_backoff_ms": 1,
    }
    return source_of(**(settings | more))


def answer(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_the_client_credentials_grant(endpoint: TokenEndpoint) -> None:
    endpoint.answers = [(200, answer(access_token="abc", expires_in=600, token_type="Bearer"))]
    before = time.time() * 1000
    token = by(endpoint, sasl_oauthbearer_extensions="pool=p")()
    assert token.value == "abc"
    assert token.extensions == {"pool": "p"}
    assert token.expires_ms is not None
    assert before + 600_000 - 1 <= token.expires_ms <= time.time() * 1000 + 600_000
    form = {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    assert endpoint.asked == [("/oauth/token", f"ann:{SECRET}", form)]


def test_librdkafkas_names_and_encoded_credentials(endpoint: TokenEndpoint) -> None:
    endpoint.answers = [(200, answer(access_token=jwt(exp=2e9)))]
    source = source_of(
        sasl_oauthbearer_method="oidc",
        sasl_oauthbearer_token_endpoint_url=endpoint.url,
        sasl_oauthbearer_client_id="ann",
        sasl_oauthbearer_client_secret=SECRET,
        sasl_oauthbearer_header_urlencode=True,
    )
    assert source().expires_ms == 2_000_000_000_000
    assert endpoint.asked == [
        ("/oauth/token", "ann:s%26cr%2Bt+of+the+client", {"grant_type": ["client_credentials"]})
    ]


def test_what_may_be_over_in_a_moment_is_tried_again(endpoint: TokenEndpoint) -> None:
    endpoint.answers = [
        (503, b""),
        (500, b"?"),
        (429, b""),
        (200, answer(access_token="abc", expires_in="60")),
    ]
    assert by(endpoint)().value == "abc"
    assert len(endpoint.asked) == 4


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (
            401,
            answer(error="invalid_client", error_description="unknown"),
            r"401 .*invalid_client: unknown.*check",
        ),
        (400, b"<html>", r"HTTP 400 .*check sasl\.oauthbearer\.client\.credentials"),
        (404, b"", r"HTTP 404 .*check sasl\.oauthbearer\.token\.endpoint\.url"),
        (302, b"", "HTTP 302"),  # the secret is for this endpoint alone
        (200, b"<html>", "without an access_token"),
        (200, answer(token="x"), "without an access_token"),
        (200, answer(access_token="x y"), "without an access_token"),
    ],
)
def test_what_will_not_pass_is_an_error_at_once(
    endpoint: TokenEndpoint, status: int, body: bytes, words: str
) -> None:
    endpoint.answers = [(status, body)]
    with pytest.raises(TokenRefused, match=words) as error:
        by(endpoint)()
    assert len(endpoint.asked) == 1
    assert SECRET not in str(error.value)


def test_whom_to_trust_at_the_endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    text, file = authority.cert_pem.bytes().decode(), tmp_path / "ca.pem"
    file.write_text(text)
    endpoint = TokenEndpoint(context)
    try:
        endpoint.answers = [(200, answer(access_token="abc", expires_in=600))]
        assert by(endpoint, https_ca_pem=text)().value == "abc"
        assert by(endpoint, https_ca_location=str(file))().value == "abc"
        with pytest.raises(TokenRefused, match=r"was not accepted.*https\.ca\.location"):
            by(endpoint)()
    finally:
        endpoint.close()
    for wrong in ({"https_ca_location": "/nowhere"}, {"https_ca_pem": text.replace("MII", "xxx")}):
        with pytest.raises(SettingError, match=r"https\.ca\."):
            by(endpoint, **wrong)


def test_an_endpoint_that_stays_away_is_an_error_after_a_while() -> None:
    source = source_of(
        sasl_oauthbearer_token_endpoint_url="http://127.0.0.1:1/token",
        sasl_oauthbearer_client_id="ann",
        sasl_oauthbearer_client_secret=SECRET,
        sasl_login_retry_backoff_max_ms=30,
    )
    with pytest.raises(TokenRefused, match=r"the token endpoint http://127\.0\.0\.1:1/token: "):
        source()


def test_a_client_is_told_what_the_endpoint_has_against_it(endpoint: TokenEndpoint) -> None:
    endpoint.answers = [(401, answer(error="invalid_client"))]
    settings = oauth(
        sasl_oauthbearer_token_endpoint_url=endpoint.url,
        sasl_oauthbearer_client_id="ann",
        sasl_oauthbearer_client_secret=SECRET,
    )
    with accepting() as broker, driven(broker.address, **settings) as client:
        failure: Failure | None = client.call().failure
        assert failure is not None
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "invalid_client" in failure.message


def test_a_token_from_a_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    source = source_of(sasl_oauthbearer_token_endpoint_url=file.as_uri())
    with pytest.raises(TokenRefused, match="cannot be read"):
        source()
    for token in ("one", jwt(exp=2e9)):
        file.write_text(token + "\n")
        assert source().value == token
    assert source().expires_ms == 2_000_000_000_000
    file.write_text("two words")
    with pytest.raises(TokenRefused, match="holds no token"):
        source()


def test_the_broker_sees_what_came_by_the_settings_alone(endpoint: TokenEndpoint) -> None:
    endpoint.answers = [(200, answer(access_token="abc", expires_in=600))]
    settings = oauth(
        sasl_oauthbearer_token_endpoint_url=endpoint.url,
        sasl_oauthbearer_client_id="ann",
        sasl_oauthbearer_client_secret=SECRET,
    )
    with accepting() as broker, driven(broker.address, **settings) as client:
        assert on_both_lanes(client) == [OK, OK]
        assert shown(broker) == ["abc", "abc"]
        assert len(endpoint.asked) == 1
        assert len(broker.requests_of(HEARTBEAT)) == 2
