"""Kafka's own client and tools on our broker with TLS: certificates of clients, and one that kafka-configs renews."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.running import running
from tests.broker.secured import AUTHORIZER
from tests.broker.tls_peer import TlsPeer
from tests.certificates import Certificates, make_certificates

from .conftest import Run
from .test_java_tools import TOOLS

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[running]:
    more = {
        "ssl.client.auth": "required",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:alice",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/L",
    }
    with running(settings=certificates.listener("SSL", name="LAN") | more) as started:
        yield started


@pytest.fixture(scope="module")
def settings(certificates: Certificates) -> Path:
    """The file of a Java client that shows alice's certificate."""
    file = certificates.directory / "alice.properties"
    file.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={certificates.authority.certificate}\n"
        f"ssl.keystore.location={certificates.alice.store}\n"
    )
    return file


def test_java_writes_and_reads_with_a_certificate(broker: running, settings: Path, java: Run) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(settings))
    load = ("--topic", "t", "--num-records", "2000", "--record-size", "5000", "--throughput", "-1")
    assert "2000 records sent" in java(f"{TOOLS}ProducerPerformance", *load, *server)
    read = java(f"{TOOLS}ConsumerPerformance", "--topic", "t", "--num-records", "2000", *server)
    assert ", 2000, " in read.splitlines()[-1]


def test_kafka_configs_renews_a_certificate(
    broker: running, certificates: Certificates, settings: Path, java: Run
) -> None:
    certificates.authority.certify("broker")
    new = certificates.broker.text("certificate")
    server = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(settings))
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    setting = f"listener.name.lan.ssl.keystore.location={certificates.broker.store}"
    java("kafka.admin.ConfigCommand", *server, *entity, "--alter", "--add-config", setting)
    with TlsPeer(broker.bootstrap_servers, certificates.context(certificates.alice)) as client:
        shown = client.tls.getpeercert(binary_form=True)
        assert shown is not None
        assert ssl.DER_cert_to_PEM_cert(shown) == new
    said = java("kafka.admin.ConfigCommand", *server, *entity, "--describe")
    assert f"{setting} sensitive=false" in said
