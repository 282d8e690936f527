"""Secrets of clients and of the broker appear neither in what the doctor says nor in the metrics."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kohort.broker.running import running
from kohort.cli.doctor.cluster import check_cluster
from kohort.cli.doctor.settings import check_settings
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.broker.test_metrics import Metered
from tests.broker.test_sasl import SETTINGS, handshake, is_closed, login

SECRET = "hunter2"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LOGIN = f'username="a" password="{SECRET}"'


@pytest.mark.parametrize("client", ["producer", "consumer", "admin"])
@pytest.mark.parametrize(
    "line",
    [
        f"sasl.password={SECRET}",
        f"sasl.pasword={SECRET}",
        f"password={SECRET}",
        f"my.own.secret={SECRET}",
        f"sasl.jaas.config={PLAIN} {LOGIN};",
        f"sasl.jaas.config={PLAIN} {LOGIN}",
        f"sasl.jaas.config={PLAIN} {LOGIN} and more;",
        f"sasl.jaas.config={OAUTH} {LOGIN};",
        f"sasl.jaas.config={SECRET}",
        f"ssl.key.password={SECRET}",
        f"ssl.keystore.key={SECRET}",
        f"ssl.keystore.password={SECRET}",
        f"ssl.truststore.password={SECRET}",
        f"ssl.key.pem={SECRET}",
        f"sasl.oauthbearer.client.secret={SECRET}",
        f"sasl.oauthbearer.client.credentials.client.secret={SECRET}",
        f"sasl.oauthbearer.token.endpoint.url=https://name:{SECRET}@127.0.0.1:1/token",
        f"basic.auth.user.info=name:{SECRET}",
        f"bootstrap.servers=name:{SECRET}@127.0.0.1:x",
    ],
)
def test_doctor_settings_shows_no_value_of_a_secret(tmp_path: Path, line: str, client: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_SSL\n{line}\n")
    found = list(check_settings(file, client))
    assert found
    assert SECRET not in repr(found)


def test_doctor_cluster_and_its_log_show_no_password(caplog: pytest.LogCaptureFixture) -> None:
    quick = {"request.timeout.ms": "300", "default.api.timeout.ms": "600"}
    with caplog.at_level(logging.DEBUG), running(settings=SETTINGS) as broker:
        common = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT"}
        for own in (
            {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": SECRET},
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": SECRET},
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} {LOGIN};"},
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": f"http://name:{SECRET}@127.0.0.1:1/token",
                "sasl.oauthbearer.client.credentials.client.id": "name",
                "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            },
        ):
            found = list(check_cluster({**common, **quick, **own}))
            assert any(each.verdict == "wrong" for each in found)
            assert SECRET not in repr(found)
    assert SECRET not in caplog.text


def test_metrics_and_described_settings_show_no_secret() -> None:
    jaas = f'{PLAIN} user_alice="secret" user_bob="{SECRET}";'
    own = {**SETTINGS, "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas}
    with Metered(settings=own) as metered:
        with BlockingConnection(metered.bootstrap) as wrong:
            handshake(wrong)
            assert wrong.call(SaslAuthenticateRequest(f"\0{SECRET}\0{SECRET}".encode()), 2).error_code
            assert is_closed(wrong)
        with BlockingConnection(metered.bootstrap, client_id="me") as client:
            login(client)
            described = client.call(DescribeConfigsRequest([DescribeConfigsResource(4, "1")]))
        text = metered.scrape()
    configs = {each.name: each for each in described.results[0].configs}
    assert configs["listener.name.sasl_plaintext.plain.sasl.jaas.config"].value is None
    assert SECRET not in repr(described)
    assert "SaslAuthenticate" in text
    assert SECRET not in text
