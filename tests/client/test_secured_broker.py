"""Our clients against our broker with SASL, TLS and ACLs: who gets in, and what those are told who may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, AsyncConsumer, AsyncProducer, Consumer, KohortError, Producer, TopicPartition
from kohort.broker.running import running
from kohort.client.admin_types import NewTopic
from kohort.client.embedding import ClusterSession
from kohort.client.errors import AuthenticationFailed, AuthorizationFailed, PartlyFailed
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.scram import ScramMechanism, salted_password
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterQuotaEntity,
    AlterQuotaEntry,
    QuotaOp,
)
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramUpsertion,
)
from tests.broker.secured import allow, login, settings, take_back
from tests.certificates import Certificates, make_certificates

MODULE = "org.apache.kafka.common.security"
SCRAM_PASSWORD = "a,b=c é"


def plain(address: str, user: str, password: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user if password is None else password,
        **more,
    }


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker on which admin may do everything, and the others what a test allows them."""
    more: dict[str, object] = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": 0,
    }
    with (
        running(settings={**settings(), **more}) as broker,
        login(broker.bootstrap_servers, "admin") as admin,
    ):
        for kind in ScramMechanism:
            salted = salted_password(kind, SCRAM_PASSWORD, b"salt", 4096)
            upsertion = ScramUpsertion("alice", kind, 4096, b"salt", salted)
            answer = admin.call(AlterUserScramCredentialsRequest([], [upsertion]))
            assert [row.error_code for row in answer.results] == [0]
        with Admin(plain(broker.bootstrap_servers, "admin")) as all_mighty:
            for topic in ("open", "closed"):
                all_mighty.create_topic(topic)
        yield broker.bootstrap_servers


@pytest.fixture
def admin(address: str) -> Iterator[BlockingConnection]:
    with login(address, "admin") as connection:
        yield connection


@pytest.fixture
def alice_may(admin: BlockingConnection) -> Iterator[Callable[..., None]]:
    """`alice_may("READ TOPIC open")` for as long as the test lasts."""
    given: list[str] = []

    def give(*what: str) -> None:
        allow(admin, *what)
        given.extend(what)

    yield give
    if given:
        take_back(admin, *given)


# --- who gets in --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_by_javas_settings(address: str, mechanism: str, alice_may: Callable[..., None]) -> None:
    alice_may("WRITE TOPIC open", "READ TOPIC open", "READ GROUP g*")
    jaas = f'{MODULE}.scram.ScramLoginModule required username="alice" password="{SCRAM_PASSWORD}";'
    ours = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    with Producer(ours) as producer:
        sent = producer.send("open", value=mechanism.encode()).result(60)
    with Consumer(ours, group_id=f"g-{mechanism}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["open"])
        found = [record for record in _some(consumer) if record.offset == sent.offset]
        assert [record.value for record in found] == [mechanism.encode()]


def _some(consumer: Consumer) -> list[Any]:
    for _ in range(60):
        if polled := consumer.poll(1):
            return [record for records in polled.values() for record in records]
    raise AssertionError("nothing came")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"sasl.password": "guess"},
            "sasl.mechanism=PLAIN: .*Invalid username or password.*check sasl.username",
        ),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "sasl.mechanism=SCRAM-SHA-512: .*invalid credentials"),
    ],
)
def test_who_does_not_get_in_is_told_at_once(address: str, changes: dict[str, str], words: str) -> None:
    wrong = {**plain(address, "alice"), **changes}
    with Producer(wrong) as producer, pytest.raises(AuthenticationFailed, match=f"{address}: {words}"):
        producer.send("open", value=b"1").result(60)
    with Admin(wrong) as client, pytest.raises(AuthenticationFailed, match=words):
        client.list_topics()
    with Consumer(wrong, group_id="g") as consumer:
        consumer.subscribe(["open"])
        with pytest.raises(AuthenticationFailed, match=words):
            consumer.poll(60)


def test_a_mechanism_that_is_not_enabled_names_those_that_are(address: str) -> None:
    token = {"sasl.oauthbearer.token": "abc"}
    with (
        Admin(plain(address, "alice") | {"sasl.mechanism": "OAUTHBEARER"} | token) as client,
        pytest.raises(AuthenticationFailed, match="offers PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ):
        client.list_topics()


def test_a_client_without_sasl_is_told_that_the_listener_may_want_it(address: str) -> None:
    with Admin(bootstrap_servers=address) as client, pytest.raises(KohortError, match="want SASL"):
        client.list_topics(timeout=0.3)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_client_with_tls_on_a_listener_without_it(address: str, protocol: str) -> None:
    """The broker just closes; the client looks whether it speaks without TLS, and says nothing secret to it."""
    wrong = plain(address, "alice") | {"security.protocol": protocol}
    with Admin(wrong) as client, pytest.raises(AuthenticationFailed, match="this is no TLS port"):
        client.list_topics()


def test_a_client_with_sasl_on_a_listener_without_it() -> None:
    with (
        running() as broker,
        Admin(plain(broker.bootstrap_servers, "alice")) as client,
        pytest.raises(AuthenticationFailed, match=r"this listener has no SASL; set security\.protocol"),
    ):
        client.list_topics()


# --- what they may do ---------------------------------------------------------------------------------------------


def test_a_producer_that_may_not_write_to_one_topic_goes_on_with_others(
    address: str, alice_may: Callable[..., None]
) -> None:
    alice_may("WRITE TOPIC open")
    with Producer(plain(address, "alice")) as producer:
        with pytest.raises(AuthorizationFailed, match="closed"):
            producer.send("closed", value=b"1").result(60)
        assert producer.send("open", value=b"2").result(60).topic == "open"


def test_a_producer_that_may_write_nowhere_gets_no_id(address: str, alice_may: Callable[..., None]) -> None:
    """CLUSTER_AUTHORIZATION_FAILED at InitProducerId fails the batches; when it is allowed, the producer goes on."""
    alice_may("DESCRIBE TOPIC open")
    with Producer(plain(address, "alice")) as producer:
        with pytest.raises(AuthorizationFailed, match="IDEMPOTENT_WRITE"):
            producer.send("open", value=b"1").result(60)
        alice_may("WRITE TOPIC open")
        assert producer.send("open", value=b"2").result(60).topic == "open"


def test_a_consumer_that_may_not_read_one_topic_reads_others(
    address: str, alice_may: Callable[..., None]
) -> None:
    alice_may("READ TOPIC open", "READ GROUP readers")
    with Producer(plain(address, "admin")) as producer:
        producer.send("open", value=b"1").result(60)
    mine = plain(address, "alice", **{"group.id": "readers", "auto.offset.reset": "earliest"})
    with Consumer(mine) as consumer:
        consumer.subscribe(["closed", "open"])
        with pytest.raises(AuthorizationFailed, match=r"closed.*READ"):
            consumer.poll(60)
        assert {record.topic for record in _through_refusals(consumer)} == {"open"}


def _through_refusals(consumer: Consumer) -> list[Any]:
    for _ in range(200):
        try:
            return _some(consumer)
        except AuthorizationFailed:
            continue
    raise AssertionError("nothing came")


def test_a_consumer_that_may_not_be_in_its_group(address: str, alice_may: Callable[..., None]) -> None:
    alice_may("READ TOPIC open")
    with Consumer(plain(address, "alice", **{"group.id": "theirs"})) as consumer:
        consumer.subscribe(["open"])
        with pytest.raises(AuthorizationFailed, match=r"group theirs.*READ on it"):
            consumer.poll(60)


def test_admin_names_what_it_may_not(address: str, alice_may: Callable[..., None]) -> None:
    alice_may("CREATE TOPIC mine*", "DELETE TOPIC mine*")
    with Admin(plain(address, "alice")) as client:
        with pytest.raises(PartlyFailed) as error:
            client.create_topics([NewTopic("mine-1"), NewTopic("theirs")])
        assert list(error.value.errors) == ["theirs"]
        assert "theirs" in str(error.value.errors["theirs"])
        assert error.value.results == {"mine-1": None}
        with pytest.raises(AuthorizationFailed, match="theirs"):
            client.create_topic("theirs")
        with pytest.raises(AuthorizationFailed, match="not allowed to see topic closed"):
            client.describe_topics("closed")
        with pytest.raises(AuthorizationFailed, match="group theirs"):
            client.describe_groups("theirs")
        client.delete_topics("mine-1")


def test_topics_beyond_a_quota_are_made_when_the_broker_says() -> None:
    """Only those are asked for again: what is done would fail a second time."""
    with running() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as client:
        _limit_mutations(broker.bootstrap_servers, 10.0)
        client.create_topics([NewTopic(f"t-{n}", 56) for n in range(3)], timeout=60)
        assert len(client.list_topics()) == 3
        with pytest.raises(KafkaError, match="t-9") as error:
            client.create_topics([NewTopic("t-9")], timeout=1)
        assert error.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def _limit_mutations(address: str, rate: float) -> None:
    operation = QuotaOp("controller_mutation_rate", rate, False)
    entry = AlterQuotaEntry([AlterQuotaEntity("user", None)], [operation])
    with BlockingConnection(address) as connection:
        answer = connection.call(AlterClientQuotasRequest([entry]))
        assert [row.error_code for row in answer.entries] == [0]


# --- sessions -----------------------------------------------------------------------------------------------------

SESSION_MS = 20_000
RENEWED, CLOSED = "successful-reauthentication-total", "connection-close-total"


@pytest.fixture(scope="module")
def short_sessions() -> Iterator[str]:
    more = {"connections_max_reauth_ms": SESSION_MS, "authorizer_class_name": "", "super_users": ""}
    given = {name: value for name, value in settings(**more).items() if value != ""}
    with running(settings=given) as broker:
        yield broker.bootstrap_servers


def make_late(engine: Any) -> None:
    """Has a client believe that most of its session is over; the broker does not."""
    clock = engine.reactor.now_ms
    engine.reactor.now_ms = engine.now_ms = lambda: clock() + int(SESSION_MS * 0.96)


def test_a_session_is_renewed_under_load_without_losing_a_record(short_sessions: str) -> None:
    with Producer(plain(short_sessions, "alice"), linger_ms=0) as producer:
        futures = []
        for number in range(1_000):
            futures.append(producer.send("load", value=b"%d" % number, partition=0))
            if number == 500:
                futures[-1].result(60)
                make_late(producer._engine)
        assert [future.result(60).offset for future in futures] == list(range(1_000))
        assert (producer.metrics().value(RENEWED), producer.metrics().value(CLOSED)) == (1, 0)


async def test_a_session_is_renewed_on_a_loop_too(short_sessions: str) -> None:
    mine = plain(short_sessions, "alice")
    async with AsyncProducer(mine, linger_ms=0) as producer, AsyncConsumer(mine, group_id="g") as consumer:
        await consumer.subscribe(["slow"])
        for count in range(20):
            sent = await producer.send("slow", value=b"1", partition=0)
            assert (await sent).offset == count
            await consumer.poll(0.01)
            if count == 10:
                make_late(producer._engine)
                make_late(consumer._engine)
        for client in (producer, consumer):
            assert client.metrics().value(RENEWED) >= 1
            assert client.metrics().value(CLOSED) == 0


# --- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_mutual_tls_by_texts(certificates: Certificates) -> None:
    alice = certificates.alice
    mine = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": Path(certificates.authority.certificate).read_text(),
        "ssl.keystore.key": alice.text("key"),
        "ssl.keystore.certificate.chain": alice.text("certificate"),
    }
    with running(settings=certificates.listener("SSL", ssl_client_auth="required")) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin({**servers, **mine}) as client:
            client.create_topic("t")
            assert client.list_topics() == ["t"]
        del mine["ssl.keystore.key"], mine["ssl.keystore.certificate.chain"]
        with (
            Admin({**servers, **mine}) as client,
            pytest.raises(AuthenticationFailed, match="our certificate"),
        ):
            client.list_topics()
        with Admin(servers) as client, pytest.raises(AuthenticationFailed, match="this is a TLS port"):
            client.list_topics()
        other = Path(certificates.strange_authority.certificate).read_text()
        stranger = {**mine, "ssl.truststore.certificates": other}
        with Admin({**servers, **stranger}) as client, pytest.raises(AuthenticationFailed, match=r"ssl\.ca"):
            client.list_topics()


def test_a_session_of_an_executor_takes_the_same_settings(certificates: Certificates) -> None:
    with running(settings=certificates.listener("SSL")) as broker:
        mine = {"bootstrap.servers": broker.bootstrap_servers, **certificates.client()}
        with Producer(mine) as producer:
            producer.send("t", value=b"1").result(60)
        with ClusterSession(mine) as session:
            assert session.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 1}
