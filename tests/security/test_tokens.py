"""Tokens of OAUTHBEARER: without signatures, and signed by keys of a file or a URL."""

from __future__ import annotations

import json
import logging
import os
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.security.jwks import JwksFile, key_source
from kohort.security.mechanism import SlowStep
from kohort.security.oauthbearer import (
    BadToken,
    OAuthBearerExchange,
    TokenAccepted,
    TokenPending,
    UnsecuredTokens,
)
from kohort.security.signed_tokens import ClaimRules, SignedTokens, parse_jwks
from kohort.settings import SettingError
from tests.security.transcript import BEGIN_MS, bearer, unsecured_jwt

NOW_S = BEGIN_MS // 1000
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwks(**keys: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    listed = []
    for key_id, key in keys.items():
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        text = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key())
        listed.append({**json.loads(text), "kid": key_id, "use": "sig"})
    return json.dumps({"keys": listed})


def signed(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "one", **claims: object) -> str:
    whole = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60, **claims}
    given = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={"kid": kid} if kid else None)


# --- without signatures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": "+60"}, "no sub"),
        ({"sub": " ", "exp": "+60"}, "no sub"),
        ({"sub": 7, "exp": "+60"}, "no sub"),
        ({"sub": "alice"}, "no exp"),
        ({"sub": "alice", "exp": "-1"}, "expired"),
        ({"sub": "alice", "exp": "+0"}, "expired"),
        ({"sub": "alice", "exp": True}, "not a number"),
        ({"sub": "alice", "exp": float("inf")}, "no time"),
        ({"sub": "alice", "exp": float("nan")}, "no time"),
        ({"sub": "alice", "exp": 10**30}, "no time"),
        ({"sub": "alice", "exp": "+60", "iat": "+1"}, "in the future"),
        ({"sub": "alice", "exp": "+60", "alg": "HS256"}, "alg other than none"),
    ],
)
def test_an_unsecured_token_is_refused(claims, why):
    found = UnsecuredTokens()(unsecured_jwt(**claims), BEGIN_MS)
    assert isinstance(found, BadToken)
    assert why in found.why
    assert found.as_json() == '{"status":"invalid_token"}'


def test_the_options_of_the_unsecured_validator():
    options = {
        "unsecuredValidatorPrincipalClaimName": "user",
        "unsecuredValidatorScopeClaimName": "roles",
        "unsecuredValidatorRequiredScope": "a  b",
        "unsecuredValidatorAllowableClockSkewMs": "3000",
    }
    validate = UnsecuredTokens.of(options, "jaas")
    late = BEGIN_MS + 62_999
    token = unsecured_jwt(user="alice", exp="+60", roles=["b", "a", "c"])
    assert validate(token, late) == TokenAccepted("alice", BEGIN_MS + 60_000)
    assert isinstance(validate(token, late + 1), BadToken)
    poor = validate(unsecured_jwt(user="alice", exp="+60", roles="a b"), BEGIN_MS)
    assert isinstance(poor, BadToken)
    assert poor.as_json() == '{"status":"insufficient_scope", "scope":"[a, b]"}'
    with pytest.raises(SettingError, match="AllowableClockSkewMs"):
        UnsecuredTokens.of({"unsecuredValidatorAllowableClockSkewMs": "-1"}, "jaas")


@given(st.text(st.characters(codec="ascii")))
def test_nonsense_is_refused_and_never_raises(token):
    assert isinstance(UnsecuredTokens()(token, BEGIN_MS), BadToken)
    keys = SignedTokens(ClaimRules(), FixedKeys(jwks(one=RSA)))
    assert isinstance(keys(token, BEGIN_MS), BadToken)


def test_deep_json_is_refused():
    deep = "[" * 30_000
    token = (
        ".".join(jwt.utils.base64url_encode(part.encode()).decode() for part in ('{"alg":"none"}', deep))
        + "."
    )
    assert isinstance(UnsecuredTokens()(token, BEGIN_MS), BadToken)


# --- signed ------------------------------------------------------------------------------------------------------


class FixedKeys:
    """Keys that do not change."""

    where = "fixed"

    def __init__(self, text: str) -> None:
        self._keys = parse_jwks(text)

    def current(self) -> Any:
        return self._keys

    def fetch_if_due(self, now_ms: int, *, is_missing: bool) -> None:
        return None


def check(token: str, now_ms: int = BEGIN_MS, **rules: Any) -> TokenAccepted | str:
    found = SignedTokens(ClaimRules(**rules), FixedKeys(jwks(one=RSA, two=EC)))(token, now_ms)
    assert not isinstance(found, TokenPending)
    return found.why if isinstance(found, BadToken) else found


GOOD = TokenAccepted("alice", BEGIN_MS + 60_000)


@pytest.mark.parametrize(
    ("token", "rules"),
    [
        (signed(), {}),
        (signed(EC, "ES256", "two"), {}),
        (signed(algorithm="PS512"), {}),
        (signed(kid=None), {}),
        (signed(iss="us"), {"issuer": "us"}),
        (signed(aud="kafka"), {"audiences": ("other", "kafka")}),
        (signed(aud=["a", "kafka"]), {"audiences": ("kafka",)}),
        (signed(sub=None, email=" alice "), {"subject_claim": "email"}),
        (signed(scope="a b"), {}),
        (signed(nbf=NOW_S + 30), {}),
    ],
    ids=map(str, range(10)),
)
def test_a_signed_token_is_taken(token, rules):
    assert check(token, **rules) == GOOD


def test_a_token_may_be_over_by_the_skew():
    assert check(signed(), BEGIN_MS + 89_999) == GOOD
    assert check(signed(), BEGIN_MS + 90_000) == "the token has expired"
    assert check(signed(), BEGIN_MS + 60_000, clock_skew_ms=0) == "the token has expired"


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (unsecured_jwt(sub="alice", exp="+60", iat="+0"), "not signed"),
        (signed(EC, "ES256", "one"), "no key"),
        (signed(kid="three"), "no key"),
        (signed(rsa.generate_private_key(public_exponent=65537, key_size=2048)), "signature is wrong"),
        (signed("a secret that everybody knows, of 32 bytes", "HS256"), "no key"),
        (signed(exp=None), "MissingRequiredClaimError"),
        (signed(iat=None), "MissingRequiredClaimError"),
        (signed(aud="kafka"), "InvalidAudienceError"),
        (signed(sub=None), "no sub"),
        (signed(nbf=NOW_S + 31), "not valid yet"),
        (signed(scope=["a", "a"]), "one twice"),
        (signed().rpartition(".")[0] + "." + signed(sub="bob").rpartition(".")[2], "signature is wrong"),
        ("a.b", "no signed JWS"),
    ],
    ids=map(str, range(13)),
)
def test_a_signed_token_is_refused(token, why):
    assert why in str(check(token))


def test_issuer_and_audience_must_be_the_expected():
    assert "InvalidIssuerError" in str(check(signed(iss="them"), issuer="us"))
    assert "MissingRequiredClaimError" in str(check(signed(), issuer="us"))
    assert "InvalidAudienceError" in str(check(signed(aud="other"), audiences=("kafka",)))


def test_keys_of_a_secret_are_not_taken():
    with pytest.raises(ValueError, match="no public key"):
        parse_jwks(json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "one", "alg": "HS256"}]}))


# --- where keys come from ------------------------------------------------------------------------------------------


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path):
    path = tmp_path / "a blank" / "keys.json"
    path.parent.mkdir()
    path.write_text(jwks(one=RSA))
    source = key_source(path.as_uri(), refresh_ms=0)
    validate = SignedTokens(ClaimRules(), source)
    assert validate(signed(), BEGIN_MS) == GOOD
    beside = tmp_path / "new"
    beside.write_text(jwks(two=EC))
    os.replace(beside, path)
    assert isinstance(validate(signed(), BEGIN_MS), BadToken)
    assert validate(signed(EC, "ES256", "two"), BEGIN_MS) == GOOD
    path.write_text("nonsense")
    assert validate(signed(EC, "ES256", "two"), BEGIN_MS) == GOOD


def test_a_missing_or_wrong_file_stops_the_start(tmp_path: Path):
    with pytest.raises(SettingError, match="No such file"):
        JwksFile(tmp_path / "none.json")
    (tmp_path / "wrong.json").write_text("{}")
    with pytest.raises(SettingError, match="not a JWKS"):
        JwksFile(tmp_path / "wrong.json")
    with pytest.raises(SettingError, match="https://"):
        key_source("ftp://example.org/keys", refresh_ms=0)


class JwksServer:
    """A web server that hands out keys, and counts how often."""

    def __init__(self, text: str, tls: ssl.SSLContext | None = None) -> None:
        self.text, self.asked, self.redirect = text, 0, ""
        parent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parent.asked += 1
                self.send_response(302 if parent.redirect else 200)
                if parent.redirect:
                    self.send_header("Location", parent.redirect)
                self.end_headers()
                self.wfile.write(parent.text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def keys_online(monkeypatch: pytest.MonkeyPatch) -> Iterator[JwksServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = JwksServer(jwks(one=RSA))
    yield server
    server.close()


def login(validate: SignedTokens, token: str, now_ms: int) -> TokenAccepted | BadToken:
    found = validate(token, now_ms)
    if isinstance(found, TokenPending):
        found.fetch()
        return found.then(now_ms)
    return found


def test_an_unknown_kid_is_fetched_once_in_ten_seconds(keys_online: JwksServer):
    validate = SignedTokens(ClaimRules(), key_source(keys_online.url, refresh_ms=3_600_000))
    assert login(validate, signed(), BEGIN_MS) == GOOD
    assert keys_online.asked == 1
    keys_online.text = jwks(one=RSA, two=EC)
    new = signed(EC, "ES256", "two")
    for later_ms in (1, 9_999):
        assert isinstance(login(validate, new, BEGIN_MS + later_ms), BadToken)
    assert keys_online.asked == 1
    assert login(validate, new, BEGIN_MS + 10_000) == GOOD
    assert keys_online.asked == 2


def test_old_keys_are_fetched_again_and_stay_if_that_fails(keys_online: JwksServer, caplog):
    validate = SignedTokens(ClaimRules(clock_skew_ms=10**9), key_source(keys_online.url, refresh_ms=60_000))
    assert login(validate, signed(), BEGIN_MS) == GOOD
    keys_online.text = "nonsense"
    with caplog.at_level(logging.ERROR, "kohort.broker"):
        assert login(validate, signed(), BEGIN_MS + 60_000) == GOOD
    assert keys_online.asked == 2
    assert "cannot fetch the keys of tokens" in caplog.text


def test_a_password_in_the_url_is_not_in_the_log(caplog):
    source = key_source("http://keys:hunter2@127.0.0.1:1/jwks?a=b", refresh_ms=60_000)
    with caplog.at_level(logging.DEBUG):
        assert isinstance(login(SignedTokens(ClaimRules(), source), signed(), BEGIN_MS), BadToken)
    assert "from http://127.0.0.1:1/jwks?a=b:" in caplog.text
    assert "hunter2" not in caplog.text


def test_who_comes_while_keys_are_fetched_waits_for_them(keys_online: JwksServer):
    validate = SignedTokens(ClaimRules(), key_source(keys_online.url, refresh_ms=3_600_000))
    first, second = validate(signed(), BEGIN_MS), validate(signed(), BEGIN_MS)
    assert isinstance(first, TokenPending)
    assert isinstance(second, TokenPending)
    first.fetch()
    assert first.then(BEGIN_MS) == second.then(BEGIN_MS) == GOOD


def test_listeners_with_keys_from_one_place_fetch_them_each():
    """A shared fetch would leave the second listener without keys: it would refuse the first good token."""

    def exchange() -> OAuthBearerExchange:
        source = key_source("https://127.0.0.1:1/jwks", refresh_ms=1)
        return OAuthBearerExchange(SignedTokens(ClaimRules(), source))

    steps = [each.step(bearer(signed()), BEGIN_MS) for each in (exchange(), exchange())]
    keys = [step.key for step in steps if isinstance(step, SlowStep)]
    assert len(set(keys)) == 2
