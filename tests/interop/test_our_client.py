"""Our client against Apache Kafka: its own tests, unchanged, and every way of proving who one is."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kohort import Admin, AuthenticationFailed, Consumer

from .apache_kafka import PASSWORD, SCRAM_PASSWORD, USER, ApacheKafka
from .conftest import ROOT

pytestmark = pytest.mark.interop
WHOLE_SUITE_S = 260


@pytest.mark.timeout(WHOLE_SUITE_S + 20)
def test_the_clients_own_tests_pass_against_apache_kafka(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    """tests/client/conftest.py takes the address from the environment; what looks inside a broker keeps to ours."""
    words = "-m pytest tests/client -p tests.interop.only_cluster --no-header -rfE --tb=short --maxfail=20"
    environment = os.environ | {"KOHORT_TEST_BOOTSTRAP": apache_kafka.bootstrap_servers}
    said = tmp_path / "said"
    with said.open("w") as out:
        suite = subprocess.Popen(
            [sys.executable, *words.split()], cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            suite.wait(WHOLE_SUITE_S)
        except subprocess.TimeoutExpired:
            suite.kill()
            suite.wait(10)
    text = said.read_text()
    print(text.splitlines()[-1])
    if suite.returncode:
        failures = text.rpartition("= FAILURES =")[2] or text[-8000:]
        pytest.fail(f"exit code {suite.returncode}\n{failures[:12_000]}\n{text[-2000:]}", pytrace=False)


def unsecured_token(lifetime_s: int = 3600) -> str:
    """A JSON web token without a signature, which Kafka takes where nothing else is configured."""
    now = int(time.time())
    parts = {"alg": "none"}, {"sub": USER, "iat": now + min(lifetime_s - 1, 0), "exp": now + lifetime_s}
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, ""])


CREDENTIALS: dict[str, dict[str, object]] = {
    "PLAIN": {"sasl.username": USER, "sasl.password": PASSWORD},
    "SCRAM-SHA-256": {"sasl.username": USER, "sasl.password": SCRAM_PASSWORD},
    "SCRAM-SHA-512": {"sasl.username": USER, "sasl.password": SCRAM_PASSWORD},
    "OAUTHBEARER": {"sasl.oauthbearer.token": unsecured_token},
}


def settings_for(kafka: ApacheKafka, listener: str, mechanism: str = "") -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.address(listener),
        "default.api.timeout.ms": 20_000,
    }
    if "TLS" in listener or listener == "MUTUAL":
        settings["ssl.ca.location"] = str(kafka.certificates.authority)
    if listener == "MUTUAL":
        settings["ssl.certificate.location"] = str(kafka.certificates.of("client"))
    if mechanism:
        settings |= {"sasl.mechanism": mechanism, **CREDENTIALS[mechanism]}
    protocols = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL"}
    return settings | {"security.protocol": protocols[listener]}


SECURE = [("TLS", ""), ("MUTUAL", "")] + [(how, m) for how in ("SASL", "SASLTLS") for m in CREDENTIALS]


@pytest.mark.parametrize(("listener", "mechanism"), SECURE)
def test_a_group_over_a_secure_listener(apache_kafka: ApacheKafka, listener: str, mechanism: str) -> None:
    settings = settings_for(apache_kafka, listener, mechanism)
    topic = f"secure-{listener}-{mechanism or 'certificate'}"
    with Admin(settings) as admin:
        admin.create_topic(topic, 3, 1)
    producer = Producer({"bootstrap.servers": apache_kafka.bootstrap_servers})
    sent = {(partition, b"%d" % i * 100) for partition in range(3) for i in range(500)}
    for partition, value in sent:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    got: set[tuple[int, bytes]] = set()
    with Consumer(settings | group) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while len(got) < len(sent) and time.monotonic() < deadline:
            for records in consumer.poll(1.0).values():
                got |= {(record.partition, record.value) for record in records}
        assert got == sent
        consumer.commit()
    with Admin(settings) as admin:
        assert {offset.offset for offset in admin.group_offsets(topic).values()} == {500}


WRONG = [
    pytest.param("SASL", "PLAIN", {"sasl.password": "no"}, "Invalid username or password", id="PLAIN"),
    pytest.param("SASL", "SCRAM-SHA-256", {"sasl.password": "no"}, "invalid credentials", id="SCRAM-SHA-256"),
    pytest.param("SASLTLS", "SCRAM-SHA-512", {"sasl.username": "bob"}, "invalid credentials", id="no user"),
    pytest.param(
        "SASL",
        "OAUTHBEARER",
        {"sasl.oauthbearer.token": unsecured_token(-60)},
        "invalid_token",
        id="token",
    ),
    pytest.param("TLS", "", {"ssl.ca.location": ""}, "certificate was not accepted", id="unknown authority"),
    pytest.param("MUTUAL", "", {"ssl.certificate.location": ""}, "TLS", id="no certificate of ours"),
]


@pytest.mark.parametrize(("listener", "mechanism", "wrong", "words"), WRONG)
def test_wrong_credentials_are_told_at_once(
    apache_kafka: ApacheKafka, listener: str, mechanism: str, wrong: dict[str, object], words: str
) -> None:
    settings = settings_for(apache_kafka, listener, mechanism) | wrong
    began = time.monotonic()
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match=f"(?i){words}"):
        admin.list_topics()
    assert time.monotonic() - began < 10, "not only after default.api.timeout.ms"
