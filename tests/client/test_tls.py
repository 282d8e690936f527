"""TLS: certificates that are trusted and ones that are not, names, mutual TLS, and ports that do not fit."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from kohort.client.core.effects import Failure, FailureKind
from kohort.client.io.tls import security_for
from kohort.client.io.tls_context import tls_context
from kohort.security.cipher_suites import TLS_1_3
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
from tests.client.scripted import Raw, ScriptedBroker

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


def text_of(path: str) -> str:
    return Path(path).read_text("utf-8")


def as_java(certificates: Certificates, folder: Path) -> dict[str, Any]:
    """Java's files: the key and the certificate in one."""
    store = folder / "store.pem"
    store.write_text(
        text_of(certificates.path("client.locked.key")) + text_of(certificates.path("client.pem"))
    )
    return {
        "ssl_keystore_type": "PEM", "ssl_keystore_location": str(store), "ssl_key_password": "sesame",
        "ssl_truststore_type": "pem", "ssl_truststore_location": certificates.authority,
    }  # fmt: skip


def as_java_text(certificates: Certificates, folder: Path) -> dict[str, Any]:
    """Java's texts, with the key on one line, as in a properties file."""
    return {
        "ssl_keystore_key": text_of(certificates.path("client.locked.key")).replace("\n", " "),
        "ssl_keystore_certificate_chain": text_of(certificates.path("client.pem")),
        "ssl_key_password": "sesame",
        "ssl_truststore_certificates": text_of(certificates.authority),
    }


def as_librdkafka_text(certificates: Certificates, folder: Path) -> dict[str, Any]:
    return {
        "ssl_key_pem": text_of(certificates.path("client.key")),
        "ssl_certificate_pem": text_of(certificates.path("client.pem")),
        "ssl_ca_pem": text_of(certificates.authority),
    }


def as_both(certificates: Certificates, folder: Path) -> dict[str, Any]:
    """librdkafka takes one as a file and the other as text."""
    return {
        "ssl_key_location": certificates.path("client.key"),
        "ssl_certificate_pem": text_of(certificates.path("client.pem")),
        "ssl_ca_location": certificates.authority,
    }


@pytest.mark.parametrize("way", [as_java, as_java_text, as_librdkafka_text, as_both])
def test_mutual_tls_by_any_names(
    certificates: Certificates, tmp_path: Path, way: Callable[[Certificates, Path], dict[str, Any]]
) -> None:
    settings = {"security_protocol": "SSL", **way(certificates, tmp_path)}
    with (
        tls_broker(certificates.server_context(ask_client=True)) as broker,
        driven(broker.address, **settings) as client,
    ):
        assert client.call().response == OK


def test_no_file_is_left_of_a_key_that_was_given_as_text(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no file system in memory, one that only we can read is written and removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create", raising=False)
    security_for(
        config_for("127.0.0.1:1", security_protocol="SSL", **as_librdkafka_text(certificates, tmp_path))
    )
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_password_of_the_key_is_an_error_without_the_password(certificates: Certificates) -> None:
    settings = as_java_text(certificates, Path()) | {"ssl_key_password": "guess"}
    with pytest.raises(SettingError, match=r"ssl\.key\.password") as error:
        security_for(config_for("127.0.0.1:1", security_protocol="SSL", **settings))
    assert "guess" not in str(error.value)
    assert "PRIVATE KEY" not in str(error.value)


def test_verification_that_is_switched_off(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with tls_broker(certificates.server_context(name="stranger")) as broker:
        settings = {"security_protocol": "SSL", "enable_ssl_certificate_verification": "false"}
        with driven(broker.address, **settings) as client:
            assert client.call().response == OK
    assert "enable.ssl.certificate.verification=false" in caplog.text


@pytest.mark.parametrize(
    ("settings", "spoken"),
    [
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl_protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl_enabled_protocols": "TLSv1.3"}, "TLSv1.3"),
        ({"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1.2"),
        ({"ssl_cipher_suites": ",".join(TLS_1_3)}, "TLSv1.3"),
        ({"ssl_cipher_suites": "ECDHE-ECDSA-AES128-GCM-SHA256"}, "TLSv1.3"),
    ],
)
def test_versions_and_ciphers(certificates: Certificates, settings: dict[str, str], spoken: str) -> None:
    config = config_for(
        "127.0.0.1:1", security_protocol="SSL", ssl_ca_location=certificates.authority, **settings
    )
    client, server = shaken_hands(tls_context(config), certificates.server_context())
    assert client.version() == server.version() == spoken
    if "AES128" in settings.get("ssl_cipher_suites", "") and spoken == "TLSv1.2":
        assert "AES128-GCM" in str(client.cipher())


def shaken_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Two ends that have shaken hands in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(back, there, server_hostname="localhost"),
        server.wrap_bio(there, back, server_side=True),
    )
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return ends


# --- what a user is told ----------------------------------------------------------------------------------------------


def expired_context() -> tuple[ssl.SSLContext, str]:
    authority = trustme.CA()
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    issued = authority.issue_cert(
        "127.0.0.1", not_before=yesterday - datetime.timedelta(days=1), not_after=yesterday
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    return context, authority.cert_pem.bytes().decode()


def test_a_certificate_that_has_expired() -> None:
    context, authority = expired_context()
    with tls_broker(context) as broker:
        failure = failure_of(broker, security_protocol="SSL", ssl_ca_pem=authority)
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "certificate has expired" in failure.message
        assert "renewed" in failure.message


def test_a_certificate_for_another_name_says_which_name_is_missing(certificates: Certificates) -> None:
    with tls_broker(certificates.server_context(name="elsewhere")) as broker:
        failure = failure_of(broker, security_protocol="SSL", ssl_ca_location=certificates.authority)
        assert "it is for another name" in failure.message
        assert "127.0.0.1" in failure.message


def test_a_broker_that_wants_our_certificate_says_so(certificates: Certificates) -> None:
    """In TLS 1.3 it says so only after the handshake."""
    with tls_broker(certificates.server_context(ask_client=True)) as broker:
        failure = failure_of(broker, security_protocol="SSL", ssl_ca_location=certificates.authority)
        assert "the broker wants to see our certificate" in failure.message
        settings = {"ssl_certificate_location": "stranger.pem", "ssl_key_location": "stranger.key"}
        own = {name: certificates.path(path) for name, path in settings.items()}
        failure = failure_of(broker, security_protocol="SSL", ssl_ca_location=certificates.authority, **own)
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "does not trust the authority that signed our certificate" in failure.message


def test_no_version_of_tls_in_common(certificates: Certificates) -> None:
    context = certificates.server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with tls_broker(context) as broker:
        settings = {"ssl_ca_location": certificates.authority, "ssl_enabled_protocols": "TLSv1.3"}
        assert "ssl.enabled.protocols" in failure_of(broker, security_protocol="SSL", **settings).message


@pytest.mark.parametrize(("protocol", "better"), [("PLAINTEXT", " SSL,"), ("SASL_PLAINTEXT", " SASL_SSL,")])
def test_the_alert_of_a_tls_port_is_understood(protocol: str, better: str) -> None:
    """Java's brokers and ours answer plain bytes with an alert, which is an error at once."""
    with ScriptedBroker() as broker:
        broker.on(18, Raw(b"\x15\x03\x03\0\x02\x02\x46"))
        settings = {"sasl_username": "a", "sasl_password": "b"} if protocol.startswith("SASL") else {}
        failure = failure_of(broker, security_protocol=protocol, **settings)
        assert failure.kind is FailureKind.AUTHENTICATION
        assert f"this is a TLS port: set security.protocol to{better}" in failure.message


def test_a_plain_answer_to_a_tls_hello_is_understood() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer_plainly() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(1)
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            sock.recv(1 << 16)

    thread = threading.Thread(target=answer_plainly, daemon=True)
    thread.start()
    with listener, driven(f"127.0.0.1:{listener.getsockname()[1]}", security_protocol="SSL") as client:
        failure = client.call().failure
        assert failure is not None
        assert failure.kind is FailureKind.AUTHENTICATION
        assert "this is no TLS port" in failure.message
    thread.join(60)


@pytest.mark.parametrize(
    ("setting", "word"),
    [("ssl_ca_location", "ssl.ca.location"), ("ssl_certificate_location", "ssl.certificate.location")],
)
def test_a_file_that_is_not_there_is_an_error_that_names_the_setting(setting: str, word: str) -> None:
    config = config_for("127.0.0.1:1", security_protocol="SSL", **{setting: "/nowhere.pem"})
    with pytest.raises(SettingError, match=f"{word}=/nowhere.pem"):
        security_for(config)
