"""Streams and batches with SASL and TLS by `kafka.*` options; secrets are in no plan, log, exception or file."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin
from kohort.broker.running import running
from kohort.spark.options import OptionError, SourceOptions, read_source_options
from kohort.spark.sink import read_sink_options
from tests.certificates import Certificates, make_certificates

PASSWORD, SECRET_IN_JAAS = "hunter2-of-spark", "hunter3-of-spark"
WRONG = "hunter4-guessed"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ALL_SECRETS = (PASSWORD, SECRET_IN_JAAS, WRONG, "PRIVATE KEY-----")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[running]:
    """A broker whose listener wants a password and a certificate."""
    given = {
        **certificates.listener("SASL_SSL", name="SAFE"),
        "listener.name.safe.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": (
            f'{MODULE} user_alice="{PASSWORD}" user_bob="{SECRET_IN_JAAS}";'
        ),
    }
    with running(settings=given) as broker:
        yield broker


@pytest.fixture
def options(secured: running, certificates: Certificates) -> dict[str, str]:
    """Everything as text, by librdkafka's and by Java's names: nothing need be on the disk of an executor."""
    alice = certificates.alice
    return {
        "kafka.bootstrap.servers": secured.bootstrap_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanisms": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": PASSWORD,
        "kafka.ssl.ca.pem": Path(certificates.authority.certificate).read_text(),
        "kafka.ssl.keystore.key": alice.text("key"),
        "kafka.ssl.keystore.certificate.chain": alice.text("certificate"),
    }


@pytest.fixture
def by_jaas(options: dict[str, str]) -> dict[str, str]:
    without = {n: v for n, v in options.items() if n not in ("kafka.sasl.username", "kafka.sasl.password")}
    return {**without, "kafka.sasl.jaas.config": f'{MODULE} username="bob" password="{SECRET_IN_JAAS}";'}


def plans_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().toString()) + str(frame._jdf.queryExecution().logical().toJSON())


def files_under(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


def test_streams_and_batches_with_secrets_that_nobody_sees(
    spark: Any,
    event_log: Path,
    options: dict[str, str],
    by_jaas: dict[str, str],
    new_name: Callable[[str], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "kohort")
    topic, copy = new_name("safe"), new_name("copy")
    mine = {name.removeprefix("kafka."): value for name, value in options.items()}
    with Admin(mine) as admin:
        for name in (topic, copy):
            admin.create_topic(name)
    rows = spark.range(0, 100, 1, 1).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kohort").mode("append").options(**options).option("topic", topic).save()
    shown = [plans_of(rows)]

    stream = spark.readStream.format("kohort").options(**by_jaas).option("kafka.group.id", new_name("g"))
    frame = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = (
        frame.writeStream.format("kohort").options(**options).option("topic", copy)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(300)
    assert query.exception() is None
    shown += [plans_of(frame), str(query._jsq.explainInternal(True)), str(query.recentProgress)]

    batch = spark.read.format("kohort").options(**by_jaas).option("subscribe", copy).load()
    assert batch.count() == 100  # through executors
    shown += [plans_of(batch), repr(batch)]

    refused = {**options, "kafka.sasl.password": WRONG}
    with pytest.raises(Exception, match="Invalid username or password") as error:
        spark.read.format("kohort").options(**refused).option("subscribe", topic).load().collect()
    shown.append(str(error.value))
    with pytest.raises(Exception, match="Invalid username or password") as error:
        rows.write.format("kohort").mode("append").options(**refused).option("topic", topic).save()
    shown += [str(error.value), caplog.text]

    for text in shown:
        assert not [secret for secret in ALL_SECRETS if secret in text], text[:2_000]
    seen = 0
    for path, content in files_under(event_log, tmp_path / "checkpoint"):
        seen += 1
        assert not [secret for secret in ALL_SECRETS if secret.encode() in content], path
    assert seen >= 3  # the event log, and what a checkpoint has
    assert any(topic.encode() in content for _, content in files_under(event_log))  # it was written


def test_the_options_of_a_query_do_not_show_secrets(options: dict[str, str], by_jaas: dict[str, str]) -> None:
    source = read_source_options({**by_jaas, "subscribe": "t"}, streaming=True)
    sink = read_sink_options({**options, "topic": "t"})
    for text in (repr(source), repr(sink), repr(source.kafka), str(pickle.loads(pickle.dumps(sink)))):
        assert not [secret for secret in ALL_SECRETS if secret in text]
        assert "<hidden>" in text
    carried: SourceOptions = pickle.loads(pickle.dumps(source))
    assert SECRET_IN_JAAS in carried.kafka["sasl.jaas.config"]  # the executors have them
    assert carried.kafka["sasl.mechanism"] == "PLAIN"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kafka.sasl.jaas.config": f'{MODULE} username="bob" password="{WRONG}"'}, "semicolon"),
        ({"kafka.sasl.mechanism": "SCRAM-SHA-256"}, "given twice"),
        ({"kafka.ssl.keystore.type": "JKS"}, "openssl pkcs12"),
        ({"kafka.ssl.truststore.location": "/ca.pem"}, "say the same"),
    ],
)
def test_wrong_options_are_told_without_secrets(
    options: dict[str, str], changes: dict[str, str], words: str
) -> None:
    for read in (lambda given: read_source_options(given, streaming=False), read_sink_options):
        with pytest.raises(OptionError, match=words) as error:
            read({**options, **changes, "subscribe" if read is not read_sink_options else "topic": "t"})
        assert not [secret for secret in ALL_SECRETS if secret in str(error.value)]
