"""Every setting of Apache Kafka 4.3's clients is there, is refused by name, or is warned about."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kohort import KohortError, Producer, SettingError, ShareConsumer
from kohort.client import consumer, share_consumer
from kohort.client.config import ADMIN, CONSUMER, PRODUCER, SECURITY_OBJECTS, SHARE_CONSUMER, read_config
from kohort.client.core import missing_settings
from kohort.client.core.missing_settings import NO_EFFECT, NOT_OF_SHARE_GROUPS, OTHER_NAMES, REFUSED
from kohort.client.produce import outgoing
from kohort.settings import Table

SERVERS = {"bootstrap.servers": "a:9092"}


def names_in(text: str) -> list[str]:
    return text.split()


# As ConsumerConfig, ProducerConfig and AdminClientConfig of Kafka 4.3 define them.
ALL = names_in("""
    bootstrap.servers client.dns.lookup client.id config.providers connections.max.idle.ms default.api.timeout.ms
    enable.metrics.push metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
    sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type
""")
OF_CONSUMER = names_in("""
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack enable.auto.commit
    exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id
    group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes internal.leave.group.on.close
    internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer max.partition.fetch.bytes
    max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms value.deserializer
""")
OF_SHARE_CONSUMER = ["share.acknowledgement.mode", "share.acquire.mode"]
OF_PRODUCER = names_in("""
    acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level delivery.timeout.ms enable.idempotence interceptor.classes key.serializer linger.ms
    max.block.ms max.in.flight.requests.per.connection max.request.size metadata.max.idle.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys retries transaction.timeout.ms transaction.two.phase.commit.enable transactional.id
    value.serializer
""")
OF_ADMIN = ["bootstrap.controllers", "retries"]

CLIENTS: list[tuple[Table[Any], tuple[str, ...], list[str]]] = [
    (CONSUMER, consumer.OBJECTS, ALL + OF_CONSUMER),
    (PRODUCER, outgoing.OBJECTS, ALL + OF_PRODUCER),
    (ADMIN, SECURITY_OBJECTS, ALL + OF_ADMIN),
]


@pytest.mark.parametrize(("table", "objects", "names"), CLIENTS, ids=["consumer", "producer", "admin"])
def test_every_setting_of_kafkas_is_known(
    table: Table[Any], objects: tuple[str, ...], names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    for name in names:
        caplog.clear()
        ways = [name in table.settings or name in objects, name in REFUSED, name in NO_EFFECT]
        assert ways.count(True) == 1, name
        if name in REFUSED:
            with pytest.raises(SettingError) as error:
                read_config(table, SERVERS | {name: "1"}, {}, objects)
            assert str(error.value).startswith(
                f"{name} is a setting of Kafka's that Kohort's {table.what} does not"
            )
            assert REFUSED[name][1] in str(error.value)
        elif name in NO_EFFECT:
            config, _ = read_config(table, SERVERS | {name: "1"}, {}, objects)
            assert config == read_config(table, SERVERS, {})[0]
            (record,) = caplog.records
            assert record.levelno == logging.WARNING
            assert record.getMessage() == (
                f"{name} is a setting of Kafka's that has no effect in Kohort's {table.what}: {NO_EFFECT[name]}"
            )


def test_a_share_consumer_knows_every_setting_of_a_consumer_or_refuses_it_in_words() -> None:
    objects = share_consumer.SHARE_OBJECTS
    for name in ALL + OF_CONSUMER + OF_SHARE_CONSUMER:
        if name in SHARE_CONSUMER.settings or name in objects:
            assert name not in NOT_OF_SHARE_GROUPS
        elif name in NOT_OF_SHARE_GROUPS:
            with pytest.raises(SettingError, match=f"{name} cannot be set for a share consumer: ") as error:
                read_config(SHARE_CONSUMER, SERVERS | {"group.id": "g", name: "1"}, {}, objects)
            assert NOT_OF_SHARE_GROUPS[name] in str(error.value)
        else:
            assert name in REFUSED or name in NO_EFFECT, name
    assert set(NOT_OF_SHARE_GROUPS) >= {
        "auto.offset.reset", "enable.auto.commit", "group.instance.id", "isolation.level", "session.timeout.ms",
        "heartbeat.interval.ms", "group.protocol", "group.remote.assignor", "partition.assignment.strategy",
        "interceptor.classes",
    }, "what Kafka's ShareConsumerConfig refuses"  # fmt: skip


def test_the_settings_of_a_share_consumer_are_not_those_of_a_consumer() -> None:
    for name in OF_SHARE_CONSUMER:
        with pytest.raises(SettingError, match="it is a setting of the share consumer, not of the consumer"):
            read_config(CONSUMER, SERVERS | {name: "1"}, {})
    with pytest.raises(SettingError, match=r"group.id is missing: name the share group"):
        ShareConsumer(SERVERS)
    with pytest.raises(SettingError, match=r"share.acknowledgement.mode.*implicit, explicit"):
        ShareConsumer(SERVERS, group_id="g", share_acknowledgement_mode="perhaps")
    with pytest.raises(SettingError, match=r"groups settings GROUP --set share.auto.offset.reset="):
        ShareConsumer(SERVERS | {"group.id": "g", "auto.offset.reset": "earliest"})


def test_nothing_is_both_there_and_missing() -> None:
    missing = {*REFUSED, *NO_EFFECT, *OTHER_NAMES}
    assert len(missing) == len(REFUSED) + len(NO_EFFECT) + len(OTHER_NAMES)
    for table, objects, _ in CLIENTS:
        assert missing.isdisjoint(table.settings)
        assert missing.isdisjoint(objects)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_of_librdkafka_are_refused_with_the_right_one(name: str) -> None:
    with pytest.raises(SettingError) as error:
        read_config(CONSUMER, SERVERS | {name: "1"}, {})
    assert OTHER_NAMES[name] in str(error.value)


def test_names_with_a_free_end_have_no_effect_either(caplog: pytest.LogCaptureFixture) -> None:
    read_config(CONSUMER, SERVERS | {"metrics.context.shop": "1"}, {})
    assert "metrics.context.shop is a setting of Kafka's that has no effect" in caplog.text


def test_a_producer_does_not_do_without_the_two_phases_that_were_asked_for() -> None:
    with pytest.raises(
        KohortError, match=r"two.phase.commit.enable is a setting of Kafka's that Kohort's producer does not"
    ):
        Producer({"bootstrap.servers": "127.0.0.1:9", "transaction.two.phase.commit.enable": "true"})


def test_a_value_that_is_not_given_is_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    read_config(CONSUMER, SERVERS | {"metric.reporters": None, "transactional.id": None}, {})
    assert not caplog.records
    assert missing_settings.log.name == "kohort.client.config"
