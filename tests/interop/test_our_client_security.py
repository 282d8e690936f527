"""Our client against an Apache Kafka with TLS, SCRAM and ACLs: sessions that end, quotas, and what it is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Admin, AuthenticationFailed, AuthorizationFailed, Consumer, KohortError, Producer
from kohort.client.admin_types import NewTopic
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterQuotaEntity,
    AlterQuotaEntry,
    QuotaOp,
)
from tests.broker.secured import allow, take_back

from .apache_kafka import GUEST, REAUTH_MS, SCRAM_PASSWORD, USER, ApacheKafka
from .test_our_client import settings_for

pytestmark = pytest.mark.interop
MODULE = "org.apache.kafka.common.security"


@pytest.fixture
def guest_may(apache_kafka: ApacheKafka) -> Iterator[Callable[..., None]]:
    given: list[str] = []
    who = {"principal": f"User:{GUEST}"}
    with BlockingConnection(apache_kafka.bootstrap_servers) as admin:

        def give(*what: str) -> None:
            allow(admin, *what, **who)
            given.extend(what)

        yield give
        if given:
            take_back(admin, *given, **who)


def of_guest(kafka: ApacheKafka) -> dict[str, Any]:
    """TLS and SCRAM by Java's settings."""
    jaas = f'{MODULE}.scram.ScramLoginModule required username="{GUEST}" password="{SCRAM_PASSWORD}";'
    return {
        "bootstrap.servers": kafka.address("SASLTLS"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": kafka.certificates.authority.read_text(),
        "default.api.timeout.ms": 20_000,
    }


def soon(call: Callable[[], Any]) -> Any:
    """What a call returns as soon as an ACL has arrived everywhere."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return call()
        except AuthorizationFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_acls_name_what_they_refuse_and_let_the_rest_go_on(
    apache_kafka: ApacheKafka, guest_may: Callable[..., None]
) -> None:
    mine = of_guest(apache_kafka)
    with Admin(bootstrap_servers=apache_kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("acl-open", 1), NewTopic("acl-closed", 1)])
    guest_may("DESCRIBE TOPIC acl-open")
    with Producer(mine) as producer:
        with pytest.raises(AuthorizationFailed, match="IDEMPOTENT_WRITE"):
            soon_refused(lambda: producer.send("acl-open", value=b"1").result(20))
        guest_may("WRITE TOPIC acl-open")
        soon(lambda: producer.send("acl-open", value=b"2").result(20))
        with pytest.raises(AuthorizationFailed, match="acl-closed"):
            producer.send("acl-closed", value=b"1").result(20)
        producer.send("acl-open", value=b"3").result(20)
    with Consumer(mine | {"group.id": "acl-readers", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["acl-open"])
        with pytest.raises(AuthorizationFailed, match="group acl-readers"):
            consumer.poll(20)
        guest_may("READ GROUP acl-readers", "READ TOPIC acl-open")
        values: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(values) < 2 and time.monotonic() < deadline:
            polled = soon(lambda: consumer.poll(1))
            values += [record.value for records in polled.values() for record in records]
        assert values == [b"2", b"3"]
    with Admin(mine) as admin:
        with pytest.raises(AuthorizationFailed, match="acl-mine"):
            admin.create_topic("acl-mine")
        with pytest.raises(AuthorizationFailed, match="acl-theirs"):
            admin.describe_groups("acl-theirs")


def soon_refused(call: Callable[[], Any]) -> None:
    """Calls until the topic is seen and something is refused."""
    for _ in range(50):
        try:
            call()
        except AuthorizationFailed as error:
            if "IDEMPOTENT" in str(error):
                raise
            time.sleep(0.1)


def test_sessions_are_renewed_on_their_connection_under_load(apache_kafka: ApacheKafka) -> None:
    settings = settings_for(apache_kafka, "SASL", "SCRAM-SHA-256")
    with Admin(settings) as admin:
        admin.create_topic("renewed", 1, 1)
    with Producer(settings, linger_ms=0) as producer:
        producer.send("renewed", value=b"0").result(20)
        before = producer.metrics().value("connection-creation-total")
        until, offsets = time.monotonic() + 3 * REAUTH_MS / 1000, []
        while time.monotonic() < until:
            futures = [producer.send("renewed", value=b"1") for _ in range(50)]
            offsets += [future.result(20).offset for future in futures]
        assert offsets == list(range(1, len(offsets) + 1))
        assert producer.metrics().value("connection-creation-total") == before
        time.sleep(1.5 * REAUTH_MS / 1000)  # longer than a session: only a handshake is taken then
        producer.send("renewed", value=b"2").result(20)
        assert producer.metrics().value("connection-creation-total") == before


def test_unsecured_tokens_by_jaas_options_are_renewed_too(apache_kafka: ApacheKafka) -> None:
    """The session ends with the token: a new one is made at 80 % of its life, and shown on the same connection."""
    options = f'unsecuredLoginStringClaim_sub="{USER}" unsecuredLoginLifetimeSeconds="3"'
    settings = {
        "bootstrap.servers": apache_kafka.address("SASL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required {options};",
    }
    with Admin(settings) as admin:
        until = time.monotonic() + 7
        while time.monotonic() < until:
            assert isinstance(admin.list_topics(), list)
        assert admin.metrics().value("connection-close-total") == 0


def test_mutual_tls_by_javas_texts(apache_kafka: ApacheKafka) -> None:
    both = apache_kafka.certificates.of("client").read_text()
    key, begins, chain = both.partition("-----BEGIN CERTIFICATE-----")
    settings = {
        "bootstrap.servers": apache_kafka.address("MUTUAL"),
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": begins + chain,
        "ssl.truststore.certificates": apache_kafka.certificates.authority.read_text(),
    }
    with Admin(settings) as admin:
        assert isinstance(admin.list_topics(), list)


@pytest.mark.parametrize(
    ("listener", "protocol", "words"),
    [
        ("TLS", "PLAINTEXT", "this is a TLS port: set security.protocol to SSL"),
        ("SASLTLS", "SASL_PLAINTEXT", "this is a TLS port: set security.protocol to SASL_SSL"),
        ("PLAINTEXT", "SASL_PLAINTEXT", "this listener has no SASL"),
        ("PLAINTEXT", "SSL", "this is no TLS port"),
        ("SASL", "SASL_SSL", "this is no TLS port"),
    ],
)
def test_a_listener_of_another_kind_is_told_at_once(
    apache_kafka: ApacheKafka, listener: str, protocol: str, words: str
) -> None:
    settings = {
        "bootstrap.servers": apache_kafka.address(listener),
        "security.protocol": protocol,
        "sasl.username": USER,
        "sasl.password": "x",
    }
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match=words):
        admin.list_topics()


def test_a_listener_that_wants_sasl_just_closes(apache_kafka: ApacheKafka) -> None:
    with (
        Admin(bootstrap_servers=apache_kafka.address("SASL")) as admin,
        pytest.raises(KohortError, match="want SASL"),
    ):
        admin.list_topics(timeout=1)


def test_topics_beyond_a_quota_wait(apache_kafka: ApacheKafka, guest_may: Callable[..., None]) -> None:
    guest_may("CREATE TOPIC quota-*", "DESCRIBE TOPIC quota-*")
    operation = QuotaOp("controller_mutation_rate", 5.0, False)
    entry = AlterQuotaEntry([AlterQuotaEntity("user", GUEST)], [operation])
    with BlockingConnection(apache_kafka.bootstrap_servers) as admin:
        answer = admin.call(AlterClientQuotasRequest([entry]))
        assert [row.error_code for row in answer.entries] == [0]
    with Admin(of_guest(apache_kafka)) as client:
        soon(lambda: client.create_topic("quota-first", 1))
        client.create_topics([NewTopic(f"quota-{n}", 30) for n in range(3)], timeout=60)
        deadline = time.monotonic() + 30
        while not set(client.list_topics()) >= {"quota-0", "quota-1", "quota-2"}:
            assert time.monotonic() < deadline, client.list_topics()
