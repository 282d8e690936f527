"""Each mechanism with each client: right and wrong passwords, expired tokens, renewal under load, a killed broker."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

import kohort
from kohort.broker.running import running
from kohort.broker.security.password_file import PasswordFile
from tests.clients.process import BrokerProcess

USER, PASSWORD = "al,i=ce", "p,=w ö"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PATIENCE_S = 60.0


def settings_of(directory: Path) -> dict[str, str]:
    """The settings of a broker with all mechanisms; `admin` may log in by PLAIN, USER once `add_scram` was called."""
    key = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(KEY.public_key()))
    (directory / "keys.json").write_text(json.dumps({"keys": [{**key, "kid": "one", "use": "sig"}]}))
    PasswordFile(directory / "users").set(USER, PASSWORD)
    lan = "listener.name.lan."
    return {
        "listeners": "LAN://127.0.0.1:0",
        "listener.security.protocol.map": "LAN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{lan}plain.sasl.jaas.config": f'{PLAIN_MODULE} user_admin="admin";',
        "sasl.credentials.file": str(directory / "users"),
        f"{lan}oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{lan}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "connection.failed.authentication.delay.ms": "0",
    }


def add_scram(address: str) -> None:
    admin = AdminClient(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "admin",
        }
    )
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode(), None)
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(PATIENCE_S)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[running]:
    with running(settings=settings_of(tmp_path_factory.mktemp("sasl"))) as started:
        add_scram(started.bootstrap_servers)
        yield started


def token(lasts_s: int = 600) -> str:
    now_s = int(time.time())
    claims = {"sub": USER, "iat": now_s - 60, "exp": now_s + lasts_s, "aud": "kafka"}
    return jwt.encode(claims, KEY, "RS256", headers={"kid": "one"})


# --- the clients: each raises if it is not let in ----------------------------------------------------------------


def by_confluent(address: str, mechanism: str, password: str, bearer: str) -> None:
    errors: list[KafkaError] = []
    config: dict[str, Any] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "error_cb": errors.append,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: (bearer, time.time() + 600)
    else:
        config |= {"sasl.username": USER, "sasl.password": password}
    admin = AdminClient(config)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:  # it tries wrong passwords for ever
        admin.poll(0.05)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            raise PermissionError(str(errors[0]))
        try:
            assert admin.list_topics(timeout=0.3).brokers
        except Exception:
            continue
        return
    raise TimeoutError


def by_aiokafka(address: str, mechanism: str, password: str, bearer: str) -> None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return bearer

    async def run() -> None:
        login: dict[str, Any] = {"sasl_plain_username": USER, "sasl_plain_password": password}
        if mechanism == "OAUTHBEARER":
            login = {"sasl_oauth_token_provider": Tokens()}
        admin = AIOKafkaAdminClient(
            bootstrap_servers=address, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **login
        )
        try:
            await admin.start()
            await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(run())


def by_kafka_python(address: str, mechanism: str, password: str, bearer: str) -> None:
    class Tokens(KafkaPythonTokens):  # type: ignore[misc]
        def token(self) -> str:
            return bearer

    # It does not escape names for SCRAM.
    name = USER.replace("=", "=3D").replace(",", "=2C") if "SCRAM" in mechanism else USER
    login: dict[str, Any] = {"sasl_plain_username": name, "sasl_plain_password": password}
    if mechanism == "OAUTHBEARER":
        login = {"sasl_oauth_token_provider": Tokens()}
    admin = KafkaAdminClient(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        bootstrap_timeout_ms=30_000 if password == PASSWORD else 1_200 if mechanism == "PLAIN" else 500,
        **login,
    )
    try:
        admin.list_topics()
    finally:
        admin.close()


def by_ours(address: str, mechanism: str, password: str, bearer: str) -> None:
    login: dict[str, Any] = {"sasl.username": USER, "sasl.password": password}
    if mechanism == "OAUTHBEARER":
        login = {"sasl.oauthbearer.token": lambda: bearer}
    config = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        **login,
    }
    with kohort.Admin(config) as admin:
        admin.list_topics()


CLIENTS = {
    "confluent-kafka": by_confluent,
    "aiokafka": by_aiokafka,
    "kafka-python": by_kafka_python,
    "kohort": by_ours,
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_who_has_the_password_or_a_token_is_let_in(broker, client, mechanism):
    CLIENTS[client](broker.bootstrap_servers, mechanism, PASSWORD, token())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_who_has_a_wrong_password_or_an_expired_token_is_not(broker, client, mechanism, caplog):
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each client has its own
        CLIENTS[client](broker.bootstrap_servers, mechanism, "wrong", token(-1))
    said = f"{type(raised.value).__name__} {raised.value}"
    # aiokafka and kafka-python try again until they give up, and only their logs say why. aiokafka takes the JSON of an
    # error for success, and goes on with Metadata, which is answered by 34.
    said += "".join(record.getMessage() for record in caplog.records if record.name != "kohort.broker")
    assert re.search("authenticat|invalid_token|NodeNotReady", said, re.IGNORECASE), said


# --- renewal -------------------------------------------------------------------------------------------------------


def has_renewed(broker: running) -> bool:
    """Whether a connection was authenticated again in place."""
    return any(
        c.sasl._renewal_began_ms and c.sasl.is_authenticated for c in broker.server.admission.connections
    )


def test_confluent_renews_its_login_under_load_and_loses_nothing(tmp_path):
    own = {**settings_of(tmp_path), "connections.max.reauth.ms": "1500"}
    with running(settings=own) as broker:
        failed: list[object] = []
        delivered: list[int] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": "admin",
                "error_cb": failed.append,
                "linger.ms": 1,
            }
        )

        def told(error: object, message: Any) -> None:
            failed.append(error) if error else delivered.append(message.offset())

        until_s, sent = time.monotonic() + 3, 0
        while time.monotonic() < until_s:
            producer.produce("t", b"x", on_delivery=told)
            producer.poll(0.001)
            sent += 1
        assert producer.flush(PATIENCE_S) == 0
        assert failed == []
        assert delivered == list(range(sent))
        assert has_renewed(broker)


def test_our_client_renews_its_login(tmp_path):
    own = {**settings_of(tmp_path), "connections.max.reauth.ms": "1200"}
    with running(settings=own) as broker:
        config = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "admin",
        }
        with kohort.Admin(config) as admin:
            until_s = time.monotonic() + PATIENCE_S
            while not has_renewed(broker):
                admin.list_topics()
                time.sleep(0.02)
                assert time.monotonic() < until_s


# --- a broker that is killed ---------------------------------------------------------------------------------------


def test_users_outlive_a_broker_that_is_killed(tmp_path):
    own = {
        name.replace(".lan.", ".plaintext."): value
        for name, value in settings_of(tmp_path).items()
        if name not in ("listeners", "listener.security.protocol.map")
    } | {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}
    settings = [f"{name}={value}" for name, value in own.items()]
    with BrokerProcess(tmp_path / "broker", *settings) as broker:
        add_scram(broker.bootstrap_servers)
        broker.kill()
        broker.restart()
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            by_ours(broker.bootstrap_servers, mechanism, PASSWORD, "")
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert len(files) > 3
        assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
