"""SASL: each mechanism against a broker that checks it, wrong credentials, brokers that cheat, sessions that end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.client.core.effects import Failure, FailureKind, Rejected
from kohort.client.core.sasl_login import scram
from kohort.client.core.security_settings import credentials
from kohort.client.errors import AuthenticationFailed
from kohort.client.io.async_engine import AsyncEngine
from kohort.client.io.reactor import SelectorReactor
from kohort.client.io.tls import security_for
from kohort.security.scram import ScramMechanism
from kohort.settings import SettingError
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.heartbeat import HeartbeatResponse
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.certificates import make_certificates
from tests.client.driving import HEARTBEAT, PATIENCE_MS, Asker, config_for, driven
from tests.client.scripted import Held, Received, ScriptedBroker, all_versions

HANDSHAKE, AUTHENTICATE = 17, 36
OK = HeartbeatResponse()
SESSION_MS = 240_000
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

Step = Callable[[Received], SaslAuthenticateResponse]


def refused(message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def check_plain(request: Received) -> SaslAuthenticateResponse:
    return (
        SaslAuthenticateResponse()
        if request.message.auth_bytes == b"\0ann\0secret"
        else refused("wrong password")
    )


def check_token(request: Received) -> SaslAuthenticateResponse:
    said = request.message.auth_bytes
    if said == b"\x01":
        return refused("invalid token")
    if said == b"n,,\x01auth=Bearer good\x01\x01":
        return SaslAuthenticateResponse()
    return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')


class ScramServer:
    """The broker's side, written from the RFC and not from our client."""

    def __init__(
        self, digest: str, password: str = "secret", *, iterations: int = 4096, lie: bool = False
    ) -> None:
        self.digest, self.iterations, self.lie = digest, iterations, lie
        self.salted = hashlib.pbkdf2_hmac(digest, password.encode(), b"salt", iterations)
        self.first: dict[int, tuple[str, str]] = {}

    def __call__(self, request: Received) -> SaslAuthenticateResponse:
        said = bytes(request.message.auth_bytes).decode()
        if request.connection not in self.first:
            assert said.startswith("n,,n=ann,r=")
            nonce = said.removeprefix("n,,n=ann,r=")
            reply = f"r={nonce}SERVER,s={base64.b64encode(b'salt').decode()},i={self.iterations}"
            self.first[request.connection] = (said[3:], reply)
            return SaslAuthenticateResponse(auth_bytes=reply.encode())
        first, reply = self.first[request.connection]
        without_proof, _, proof = said.rpartition(",p=")
        signed = f"{first},{reply},{without_proof}".encode()
        key = hmac.digest(self.salted, b"Client Key", self.digest)
        stored = hashlib.new(self.digest, key).digest()
        signature = hmac.digest(stored, signed, self.digest)
        shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.digest, shown).digest() != stored:
            return refused("Authentication failed during authentication due to invalid credentials")
        server_key = hmac.digest(self.salted, b"Server Key", self.digest)
        verifier = b"?" * 32 if self.lie else hmac.digest(server_key, signed, self.digest)
        return SaslAuthenticateResponse(auth_bytes=b"v=" + base64.b64encode(verifier))


def sasl_broker(
    check: Step,
    *,
    mechanisms: list[str] | None = None,
    tls: ssl.SSLContext | None = None,
    **versions: int,
) -> ScriptedBroker:
    broker = ScriptedBroker(versions=all_versions(**versions), tls=tls)
    offered = MECHANISMS if mechanisms is None else mechanisms

    def handshake(request: Received) -> SaslHandshakeResponse:
        known = request.message.mechanism in offered
        return SaslHandshakeResponse(0 if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)

    broker.on(HANDSHAKE, handshake)
    broker.on(AUTHENTICATE, check)
    broker.on(HEARTBEAT, OK)
    return broker


def settings_for(mechanism: str, password: str = "secret") -> dict[str, Any]:
    made = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    return made if mechanism == "OAUTHBEARER" else made | {"sasl_username": "ann", "sasl_password": password}


def failure_of(broker: ScriptedBroker, **settings: Any) -> Failure:
    with broker, driven(broker.address, **settings) as client:
        failure = client.call().failure
        assert failure is not None
        assert failure.kind is FailureKind.AUTHENTICATION
        assert broker.requests_of(HEARTBEAT) == []
        return failure


CHECKS: dict[str, Callable[[], Step]] = {
    "PLAIN": lambda: check_plain,
    "SCRAM-SHA-256": lambda: ScramServer("sha256"),
    "SCRAM-SHA-512": lambda: ScramServer("sha512"),
}


@pytest.mark.parametrize("mechanism", CHECKS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_right_password(mechanism: str, version: int) -> None:
    broker = sasl_broker(CHECKS[mechanism](), sasl_authenticate=version)
    with broker, driven(broker.address, **settings_for(mechanism)) as client:
        assert client.call().response == OK
        assert [r.version for r in broker.requests_of(HANDSHAKE)] == [1]
        assert {r.version for r in broker.requests_of(AUTHENTICATE)} == {version}


def test_sasl_inside_tls(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    broker = sasl_broker(ScramServer("sha512"), tls=certificates.server_context())
    settings = settings_for("SCRAM-SHA-512") | {
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": certificates.authority,
    }
    with broker, driven(broker.address, **settings) as client:
        assert client.call().response == OK


@pytest.mark.parametrize("mechanism", CHECKS)
def test_the_wrong_password_is_an_error_at_once_in_the_brokers_words(mechanism: str) -> None:
    failure = failure_of(sasl_broker(CHECKS[mechanism]()), **settings_for(mechanism, "guess"))
    assert "wrong password" in failure.message or "invalid credentials" in failure.message
    assert mechanism in failure.message


def test_who_waits_for_anything_is_told_that_the_brokers_refuse_us() -> None:
    broker = sasl_broker(check_plain)
    with broker, driven(broker.address, **settings_for("PLAIN", "guess")) as client:
        for _ in range(2):  # now, and at the next call again
            with pytest.raises(AuthenticationFailed, match="wrong password"):
                client.run(lambda: False)
        assert client.engine.run(lambda: False, client.engine.now_ms() + 20, wakeable=False) is False


async def test_and_so_is_who_waits_on_a_loop() -> None:
    broker = sasl_broker(check_plain)
    with broker:
        engine = AsyncEngine(config_for(broker.address, **settings_for("PLAIN", "guess")))
        with pytest.raises(AuthenticationFailed, match="wrong password"):
            await engine.wait(lambda: False, engine.now_ms() + PATIENCE_MS)
        engine.close()


def test_a_mechanism_that_the_broker_does_not_offer() -> None:
    failure = failure_of(sasl_broker(check_plain, mechanisms=["SCRAM-SHA-512"]), **settings_for("PLAIN"))
    assert "does not offer sasl.mechanism=PLAIN; it offers SCRAM-SHA-512" in failure.message


@pytest.mark.parametrize(
    ("objects", "accepted"),
    [
        ({"sasl.oauthbearer.token": lambda: "good"}, True),
        ({"sasl.oauthbearer.token": "good"}, True),
        ({"oauth_cb": lambda config: ("good", 1e12)}, True),
        ({"sasl.oauthbearer.token": lambda: "bad"}, False),
    ],
)
def test_tokens(objects: dict[str, Any], accepted: bool) -> None:
    broker = sasl_broker(check_token)
    security = security_for(config_for("127.0.0.1:1", **settings_for("OAUTHBEARER")), objects)
    with broker, driven(broker.address, security=security) as client:
        answer = client.call()
        assert (answer.failure is None) is accepted
        if answer.failure is not None:
            assert answer.failure.kind is FailureKind.AUTHENTICATION
            assert "invalid token" in answer.failure.message


def test_a_token_callable_that_raises_is_an_authentication_failure() -> None:
    def raises() -> str:
        raise ConnectionError("the identity provider is down")

    broker = sasl_broker(check_token)
    config = config_for("127.0.0.1:1", **settings_for("OAUTHBEARER"))
    security = security_for(config, {"sasl.oauthbearer.token": raises})
    assert "the identity provider is down" in failure_of(broker, security=security).message


def test_oauthbearer_without_a_token_says_what_to_give() -> None:
    with pytest.raises(SettingError, match=r"sasl\.oauthbearer\.token"):
        security_for(config_for("127.0.0.1:1", **settings_for("OAUTHBEARER")))


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    liar = ScramServer("sha256", lie=True)
    assert (
        "does not know the password" in failure_of(sasl_broker(liar), **settings_for("SCRAM-SHA-256")).message
    )


@pytest.mark.parametrize("iterations", [1, 4095, 1 << 30])
def test_a_broker_that_asks_for_an_unsafe_number_of_iterations(iterations: int) -> None:
    exchange = scram(ScramMechanism.SCRAM_SHA_256, "ann", "secret", nonce="abc")
    next(exchange)
    with pytest.raises(Rejected, match="iterations"):
        exchange.send(f"r=abcdef,s=c2FsdA==,i={iterations}".encode())


@pytest.mark.parametrize(
    "first",
    ["", "garbage", "r=abcdef", "r=abcdef,s=?,i=4096", "r=xyz,s=c2FsdA==,i=4096", "r=abc,s=c2FsdA==,i=4096"],
)
def test_a_first_scram_message_that_is_none(first: str) -> None:
    exchange = scram(ScramMechanism.SCRAM_SHA_256, "ann", "secret", nonce="abc")
    next(exchange)
    with pytest.raises(Rejected):
        exchange.send(first.encode())


def test_scram_as_rfc_7677_shows_it() -> None:
    exchange = scram(ScramMechanism.SCRAM_SHA_256, "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof = exchange.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert proof == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_name_with_a_comma_is_escaped() -> None:
    assert next(scram(ScramMechanism.SCRAM_SHA_256, "a,b=c", "x", nonce="n")) == b"n,,n=a=2Cb=3Dc,r=n"


@pytest.mark.parametrize(
    "jaas",
    [
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="se cret;";',
        "PlainLoginModule required password='se cret;' username=ann;",
    ],
)
def test_credentials_from_a_jaas_config(jaas: str) -> None:
    config = config_for("127.0.0.1:1", security_protocol="SASL_PLAINTEXT", sasl_jaas_config=jaas)
    assert credentials(config) == ("ann", "se cret;")


def test_a_jaas_config_without_credentials_says_what_to_give() -> None:
    with pytest.raises(SettingError, match=r"sasl\.username"):
        config_for("127.0.0.1:1", security_protocol="SASL_PLAINTEXT", sasl_jaas_config="x required;")


class Later:
    """A reactor whose clock can be set forward."""

    def __init__(self) -> None:
        self.reactor = SelectorReactor()
        self.ms = 0
        clock = self.reactor.now_ms
        self.reactor.now_ms = lambda: clock() + self.ms


def lasting(lifetime_ms: int) -> Step:
    return lambda request: SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)


def test_a_session_is_renewed_on_its_connection_before_it_ends() -> None:
    """Requests under way are answered first, those that come meanwhile wait: all keep their order."""
    broker, later = sasl_broker(lasting(SESSION_MS)), Later()
    with broker, driven(broker.address, reactor=later.reactor, **settings_for("PLAIN")) as client:
        client.know_nodes()
        held = Held(OK)
        broker.script(HEARTBEAT, held)
        under_way = client.asker.ask(node_id=1, timeout_ms=10 * SESSION_MS)
        client.eventually(lambda: broker.requests_of(HEARTBEAT))
        assert client.engine.network.is_ready(1)
        later.ms = int(SESSION_MS * 0.96)
        waiting = [client.asker.ask(node_id=1, timeout_ms=10 * SESSION_MS) for _ in range(3)]
        client.run(lambda: False, 20)
        assert not client.engine.network.is_ready(1)
        assert len(broker.requests_of(HEARTBEAT)) == 1
        held.release()
        assert client.run(lambda: len(client.asker.answers) == 4)
        assert [answer.send for answer in client.asker.answers] == [under_way, *waiting]
        assert [answer.failure for answer in client.asker.answers] == [None] * 4
        assert broker.connection_count == 1
        keys = [r.api_key for r in broker.requests if r.api_key in (HANDSHAKE, AUTHENTICATE, HEARTBEAT)]
        login = [HANDSHAKE, AUTHENTICATE]
        assert keys == [*login, HEARTBEAT, *login, HEARTBEAT, HEARTBEAT, HEARTBEAT]
        metrics = client.engine.metrics()
        assert metrics.value("successful-authentication-total") == 1
        assert metrics.value("successful-reauthentication-total") == 1
        later.ms = int(SESSION_MS * 3)  # long after its end: a broker takes a handshake even then
        assert client.call(node_id=1).response == OK
        assert broker.connection_count == 1
        assert len(broker.requests_of(HANDSHAKE)) == 3


def test_a_session_too_short_to_be_renewed_gets_a_new_connection() -> None:
    """A broker takes one re-authentication a second."""
    broker, later = sasl_broker(lasting(900)), Later()
    with broker, driven(broker.address, reactor=later.reactor, **settings_for("PLAIN")) as client:
        client.know_nodes()
        later.ms = 890
        assert client.call(node_id=1).response == OK
        assert broker.connection_count == 2


def test_a_session_that_is_not_renewed_is_an_error_at_once() -> None:
    broker, later = sasl_broker(lasting(SESSION_MS)), Later()
    with broker, driven(broker.address, reactor=later.reactor, **settings_for("PLAIN")) as client:
        client.know_nodes()
        assert client.call(node_id=1).response == OK
        broker.on(AUTHENTICATE, lambda request: refused("the user is gone"))
        later.ms = SESSION_MS - 1000
        failure = client.call(node_id=1).failure
        assert failure is not None
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "the user is gone" in failure.message
        assert "sasl.password" in failure.message
        assert client.engine.metrics().value("failed-reauthentication-total") >= 1


async def test_a_session_is_renewed_on_its_connection_on_a_loop_too() -> None:
    broker = sasl_broker(lasting(SESSION_MS))
    with broker:
        engine = AsyncEngine(config_for(broker.address, **settings_for("PLAIN")))
        asker = Asker(engine.out)
        engine.add(asker)
        until_ms = engine.now_ms() + PATIENCE_MS
        assert await engine.wait(lambda: bool(engine.metadata.cluster.nodes), until_ms)
        clock = engine.reactor.now_ms
        engine.reactor.now_ms = engine.now_ms = lambda: clock() + SESSION_MS - 1000
        asked = [asker.ask(node_id=1) for _ in range(3)]
        assert await engine.wait(lambda: len(asker.answers) == 3, engine.now_ms() + PATIENCE_MS)
        assert [answer.send for answer in asker.answers] == asked
        assert [answer.failure for answer in asker.answers] == [None] * 3
        assert broker.connection_count == 1
        assert len(broker.requests_of(HANDSHAKE)) == 2
        engine.close()
