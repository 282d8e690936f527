"""TLS: certificates that are trusted and ones that are not, names, mutual TLS, and ports that do not fit."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort.client.core.effects import Failure, FailureKind
from kohort.client.io.tls import security_for
from kohort.settings import SettingError
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.wire.messages.heartbeat import HeartbeatResponse
from kohort.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.client.certificates import Certificates, make_certificates
from tests.client.driving import HEARTBEAT, config_for, driven
from tests.client.scripted import ScriptedBroker

OK = HeartbeatResponse()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def tls_broker(context: ssl.SSLContext | None) -> Iterator[ScriptedBroker]:
    with ScriptedBroker(tls=context) as broker:
        broker.on(HEARTBEAT, OK)
        yield broker


def failure_of(broker: ScriptedBroker, **settings: Any) -> Failure:
    with driven(broker.address, **settings) as client:
        failure = client.call().failure
        assert failure is not None
        return failure


def test_a_broker_whose_certificate_is_signed_by_our_authority(certificates: Certificates) -> None:
    with tls_broker(certificates.server_context()) as broker:
        settings = {"security_protocol": "SSL", "ssl_ca_location": certificates.authority}
        with driven(broker.address, **settings) as client:
            assert client.call().response == OK
        with driven(f"localhost:{broker.port}", **settings) as client:
            assert client.call().response == OK


def test_large_requests_and_answers_pass_through_tls_whole(certificates: Certificates) -> None:
    data = bytes(range(256)) * (16 << 10)
    with tls_broker(certificates.server_context()) as broker:
        broker.on(
            1,
            FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=data)])]),
        )
        broker.on(0, ProduceResponse())
        settings = {
            "security_protocol": "SSL",
            "ssl_ca_location": certificates.authority,
            "send_buffer_bytes": 16384,
        }
        with driven(broker.address, **settings) as client:
            fetched = client.call(FetchRequest(), max_version=12).response
            assert fetched.responses[0].partitions[0].records == data
            topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(0, data)])
            sent = [
                client.asker.ask(ProduceRequest(acks=1, topic_data=[topic]), max_version=8) for _ in range(3)
            ]
            assert client.call().response == OK
            assert [answer.send for answer in client.asker.answers[1:4]] == sent
            assert bytes(broker.requests_of(0)[2].message.topic_data[0].partition_data[0].records) == data


def test_a_certificate_of_a_stranger_is_an_error_at_once(certificates: Certificates) -> None:
    with tls_broker(certificates.server_context(name="stranger")) as broker:
        failure = failure_of(broker, security_protocol="SSL", ssl_ca_location=certificates.authority)
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "ssl.ca.location" in failure.message
    with tls_broker(certificates.server_context()) as broker:  # the system's authorities do not know ours
        assert failure_of(broker, security_protocol="SSL").kind is FailureKind.AUTHENTICATION


def test_the_name_in_the_certificate_is_checked_unless_that_is_switched_off(
    certificates: Certificates,
) -> None:
    with tls_broker(certificates.server_context(name="elsewhere")) as broker:
        settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_location": certificates.authority}
        failure = failure_of(broker, **settings)
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "ssl.endpoint.identification.algorithm" in failure.message
        with driven(broker.address, ssl_endpoint_identification_algorithm="none", **settings) as client:
            assert client.call().response == OK


def test_a_broker_that_wants_our_certificate(certificates: Certificates) -> None:
    with tls_broker(certificates.server_context(ask_client=True)) as broker:
        settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_location": certificates.authority}
        failure = failure_of(broker, **settings)
        assert failure.kind is FailureKind.AUTHENTICATION
        settings["ssl_certificate_location"] = certificates.path("client.pem")
        settings["ssl_key_location"] = certificates.path("client.locked.key")
        settings["ssl_key_password"] = "sesame"
        with driven(broker.address, **settings) as client:
            assert client.call().response == OK


def test_a_context_of_the_users_own(certificates: Certificates) -> None:
    own = ssl.create_default_context(cafile=certificates.authority)
    with tls_broker(certificates.server_context()) as broker:
        config = config_for(broker.address, security_protocol="SSL")
        with driven(broker.address, security=security_for(config, {"ssl.context": own})) as client:
            assert client.call().response == OK


def test_tls_to_a_port_without_tls_and_the_other_way_round(certificates: Certificates) -> None:
    with tls_broker(certificates.server_context()) as broker, driven(broker.address) as client:
        client.failure("security.protocol", timeout_ms=150)
    with tls_broker(None) as plain:
        settings = {"security_protocol": "SSL", "ssl_ca_location": certificates.authority}
        with driven(plain.address, request_timeout_ms=100, **settings) as client:
            client.failure("TLS", timeout_ms=250)


@pytest.mark.parametrize(
    ("setting", "word"),
    [("ssl_ca_location", "ssl.ca.location"), ("ssl_certificate_location", "ssl.certificate.location")],
)
def test_a_file_that_is_not_there_is_an_error_that_names_the_setting(setting: str, word: str) -> None:
    config = config_for("127.0.0.1:1", security_protocol="SSL", **{setting: "/nowhere.pem"})
    with pytest.raises(SettingError, match=f"{word}=/nowhere.pem"):
        security_for(config)
