"""Every client over TLS: with SASL and without, with a right and a wrong authority, with a certificate of its own."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import kohort
from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramUpsertion,
)
from tests.broker.secured import AUTHORIZER, PLAIN, allow
from tests.certificates import Certificates, Certified, make_certificates

ck: Any = confluent_kafka
WAIT_S = 60.0  # only for what hangs
SECRET = "se=cret, with everything"
SCRAM = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}


@dataclass(frozen=True)
class Login:
    """How a client connects: where, whom it trusts, which certificate it shows, with which password it logs in."""

    address: str
    authority: str
    who: Certified | None = None
    mechanism: str | None = None
    password: str = SECRET
    patience_ms: int = int(WAIT_S * 1000)
    """How long kafka-python tries to connect: it does not give up for a wrong password."""

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.authority)
        if self.who is not None:
            context.load_cert_chain(self.who.certificate, self.who.key)
        return context

    def dotted(self) -> dict[str, str]:
        """The settings of librdkafka, which are ours too."""
        settings = {"bootstrap.servers": self.address, "security.protocol": self.protocol}
        settings["ssl.ca.location"] = self.authority
        if self.who is not None:
            settings |= {"ssl.certificate.location": self.who.certificate, "ssl.key.location": self.who.key}
        if self.mechanism is not None:
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": "alice",
                "sasl.password": self.password,
            }
        return settings

    def underlined(self) -> dict[str, Any]:
        """The arguments of aiokafka and kafka-python."""
        arguments: dict[str, Any] = {"bootstrap_servers": self.address, "security_protocol": self.protocol}
        arguments["ssl_context"] = self.context
        if self.mechanism is not None:
            arguments["sasl_mechanism"] = self.mechanism
            arguments |= {"sasl_plain_username": "alice", "sasl_plain_password": self.password}
        return arguments


# --- one record there and back; an exception if the broker cannot be reached


def by_confluent(login: Login, topic: str, value: bytes) -> bytes:
    failures: list[Any] = []
    failed = threading.Event()

    def on_error(error: Any) -> None:
        failures.append(error)
        if error.code() in (ck.KafkaError._SSL, ck.KafkaError._AUTHENTICATION):
            failed.set()

    producer = ck.Producer(
        {**login.dotted(), "error_cb": on_error, "message.max.bytes": 20_000_000, "linger.ms": 0}
    )
    producer.produce(topic, value)
    for _ in range(int(WAIT_S * 20)):
        if producer.flush(0.05) == 0:
            break
        if failed.is_set():
            producer.purge()
            raise ConnectionError(str(failures))
    consumer = ck.Consumer({**login.dotted(), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    result: bytes = message.value()
    return result


def by_kafka_python(login: Login, topic: str, value: bytes) -> bytes:
    arguments = login.underlined() | {"bootstrap_timeout_ms": login.patience_ms}
    producer = kafka.KafkaProducer(**arguments, max_request_size=20_000_000)
    producer.send(topic, value).get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**arguments, consumer_timeout_ms=int(WAIT_S * 1000))
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    result: bytes = next(iter(consumer)).value
    consumer.close()
    return result


def by_aiokafka(login: Login, topic: str, value: bytes) -> bytes:
    async def run() -> bytes:
        producer = aiokafka.AIOKafkaProducer(**login.underlined(), max_request_size=20_000_000)
        try:
            await producer.start()
            await producer.send_and_wait(topic, value)
        finally:
            await producer.stop()
        async with aiokafka.AIOKafkaConsumer(**login.underlined(), auto_offset_reset="earliest") as consumer:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            message = await asyncio.wait_for(consumer.getone(), WAIT_S)
        result: bytes = message.value
        return result

    return asyncio.run(run())


def by_ours(login: Login, topic: str, value: bytes) -> bytes:
    settings: dict[str, Any] = {**login.dotted(), "max.request.size": 20_000_000}
    with kohort.Producer(settings) as producer:
        producer.send(topic, value).result(WAIT_S)
    with kohort.Consumer({**login.dotted(), "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([kohort.TopicPartition(topic, 0)])
        for _ in range(int(WAIT_S)):
            for records in consumer.poll(1.0).values():
                return records[0].value or b""
    raise AssertionError("no record came")


CLIENTS = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "kohort": by_ours,
}
each_client = pytest.mark.parametrize("through", CLIENTS.values(), ids=CLIENTS)
Through = Callable[[Login, str, bytes], bytes]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates) -> Iterator[running]:
    """A broker with a listener for each way in. On `PLAINTEXT`, the first one, everybody may do everything."""
    protocols = ("PLAINTEXT", "SSL", "SASL_SSL")
    settings = certificates.listener("SSL") | {
        "listeners": ",".join(f"{protocol}://127.0.0.1:0" for protocol in protocols),
        "listener.security.protocol.map": ",".join(f"{protocol}:{protocol}" for protocol in protocols),
        "ssl.client.auth": "requested",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_alice="{SECRET}";',
        "message.max.bytes": "20000000",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:alice",
    }
    with running(settings=settings) as started, BlockingConnection(started.bootstrap_servers) as admin:
        for code, digest in SCRAM.values():
            salt = os.urandom(12)
            salted = hashlib.pbkdf2_hmac(digest, SECRET.encode(), salt, 4096)
            upsertion = ScramUpsertion("alice", code, 4096, salt, salted)
            (result,) = admin.call(AlterUserScramCredentialsRequest([], [upsertion])).results
            assert result.error_code == 0, result.error_message
        yield started


@pytest.fixture
def collected() -> Iterator[None]:
    """Collects the sockets of clients that could not begin: kafka-python and aiokafka leave some open.

    Their warnings would come at any time. In the middle of an import, on the broker's thread, they break Python 3.11's
    compiler (SystemError: AST constructor recursion depth mismatch).
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def login(broker, certificates) -> Login:
    return Login(str(broker.server.listeners[1].told), certificates.authority.certificate)


@pytest.fixture
def with_password(broker, login) -> Login:
    return replace(login, address=str(broker.server.listeners[2].told))


@each_client
def test_records_there_and_back(through: Through, login):
    assert through(login, f"plain-{through.__name__}", b"hello") == b"hello"


@each_client
def test_large_records_there_and_back(through: Through, login):
    value = os.urandom(700_000) + bytes(200_000)
    assert through(login, f"large-{through.__name__}", value) == value


@each_client
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_over_tls(through: Through, with_password, mechanism):
    secured = replace(with_password, mechanism=mechanism)
    assert through(secured, f"{mechanism}-{through.__name__}", b"hello") == b"hello"


@each_client
@pytest.mark.usefixtures("collected")
def test_a_wrong_password_over_tls(through: Through, with_password):
    wrong = replace(with_password, mechanism="SCRAM-SHA-512", password="wrong", patience_ms=700)
    with pytest.raises(Exception, match=r"(?i)auth|broker|bootstrap"):
        through(wrong, "never", b"")


@each_client
@pytest.mark.usefixtures("collected")
def test_a_client_that_trusts_somebody_else_does_not_come(through: Through, login, certificates):
    wrong = replace(login, authority=certificates.strange_authority.certificate, patience_ms=700)
    with pytest.raises(Exception, match=r"(?i)certificate|broker|connect|bootstrap"):
        through(wrong, "never", b"")


@each_client
def test_a_client_may_do_what_acls_allow_the_name_in_its_certificate(
    broker, through: Through, login, certificates
):
    bob = certificates.authority.certify("bob", "bob.test")
    topic = f"acl-{through.__name__}"
    known = replace(login, who=bob)
    with BlockingConnection(broker.bootstrap_servers) as admin:
        name = "User:CN=bob,OU=Tests,O=Kohort"
        allow(admin, f"WRITE TOPIC {topic}", f"READ TOPIC {topic}", f"CREATE TOPIC {topic}", principal=name)
        allow(admin, f"READ GROUP {topic}", "IDEMPOTENT_WRITE CLUSTER", principal=name)
    assert through(known, topic, b"mine") == b"mine"
    assert {"never", topic}.isdisjoint(topics_shown_to(known, certificates.alice)), (
        "alice is not allowed to see it"
    )


def topics_shown_to(login: Login, who: Certified) -> set[str]:
    with kohort.Admin(replace(login, who=who).dotted()) as admin:
        return set(admin.list_topics())
