"""A broker that gets the keys of its tokens over https."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.running import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.peer import PATIENCE_S
from tests.certificates import Certificates, Certified, make_certificates
from tests.security.test_tokens import EC, RSA, JwksServer, jwks, signed
from tests.security.transcript import bearer

OAUTH = "org.apache.kafka.common.security.oauthbearer"
LISTENER = "listener.name.sasl_plaintext.oauthbearer."


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return make_certificates(tmp_path)


def keys_of(who: Certified) -> JwksServer:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(who.certificate, who.key)
    return JwksServer(jwks(one=RSA), tls)


@pytest.fixture
def keys(certificates: Certificates) -> Iterator[JwksServer]:
    server = keys_of(certificates.broker)
    yield server
    server.close()


def settings(url: str, trusted: str) -> dict[str, str]:
    options = f'ssl.truststore.location="{trusted}"'
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{LISTENER}sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required {options};",
        f"{LISTENER}sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{LISTENER}sasl.oauthbearer.jwks.endpoint.url": url,
        "connection.failed.authentication.delay.ms": "0",
    }


def answer(address: str, token: str) -> tuple[ErrorCode, bytes]:
    """What the broker says to a token; the second message is what a client sends after a refusal."""
    with BlockingConnection(address, timeout_s=PATIENCE_S) as client:
        assert client.call(SaslHandshakeRequest("OAUTHBEARER"), 1).error_code == 0
        told = client.call(SaslAuthenticateRequest(bearer(token)), 2)
        if not told.auth_bytes and not told.error_code:
            assert client.call(MetadataRequest()).brokers
        return ErrorCode(told.error_code), bytes(told.auth_bytes)


def fresh(**more: object) -> str:
    now_s = int(time.time())
    return signed(iat=now_s, exp=now_s + 600, **more)  # type: ignore[arg-type]


def test_keys_come_over_https_and_are_kept(certificates: Certificates, keys: JwksServer) -> None:
    with running(settings=settings(keys.url, certificates.authority.certificate)) as broker:
        for _ in range(3):
            assert answer(broker.bootstrap_servers, fresh()) == (ErrorCode.NONE, b"")
        assert keys.asked == 1
        forged = fresh(key=EC, algorithm="ES256", kid="one")
        assert answer(broker.bootstrap_servers, forged)[1] == b'{"status":"invalid_token"}'


def test_a_certificate_of_a_stranger_lets_nobody_in(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever could stand between the broker and its keys could make tokens."""
    impostor = keys_of(certificates.strange_authority.certify("keys"))
    try:
        with running(settings=settings(impostor.url, certificates.authority.certificate)) as broker:
            assert answer(broker.bootstrap_servers, fresh())[1] == b'{"status":"invalid_token"}'
    finally:
        impostor.close()
    assert impostor.asked == 0
    assert "cannot fetch the keys of tokens" in caplog.text
    assert "certificate verify failed" in caplog.text


def test_https_does_not_become_http_by_a_redirect(certificates: Certificates, keys: JwksServer) -> None:
    plain = JwksServer(jwks(one=RSA))
    keys.redirect = plain.url
    try:
        with running(settings=settings(keys.url, certificates.authority.certificate)) as broker:
            assert answer(broker.bootstrap_servers, fresh())[1] == b'{"status":"invalid_token"}'
    finally:
        plain.close()
