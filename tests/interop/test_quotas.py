"""Quotas and SCRAM users by Kafka's own kafka-configs, and the throttle times that follow.

With KOHORT_INTEROP_TARGET=kafka the same requests go to an Apache Kafka.
"""

from __future__ import annotations

import pytest
from benchmarks.targets import Target

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.compiler.compile import codec
from kohort.wire.frame import request_frame
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, QuotaFilterComponent
from kohort.wire.messages.metadata import MetadataRequest
from tests.broker.peer import batch_of, create_topic, fetch_request, produce, produce_request, values_in
from tests.clients.process import eventually

from .conftest import Run
from .test_java_tools import check

pytestmark = pytest.mark.interop

# Arguments, what the output must match, what it must not.
QUOTA_COMMANDS = [
    (
        "--alter --add-config producer_byte_rate=1024,request_percentage=12.5 --entity-type users --entity-name x "
        "--entity-type clients --entity-name app",
        "Completed updating config for user x",
        None,
    ),
    (
        "--describe --entity-type users --entity-name x --entity-type clients --entity-name app",
        r"user-principal 'x', client-id 'app' are (?=.*producer_byte_rate=1024.0)(?=.*request_percentage=12.5)",
        None,
    ),
    (
        "--alter --add-config consumer_byte_rate=2048 --entity-type users --entity-default",
        "Completed updating default config for users",
        None,
    ),
    ("--describe --entity-type users", r"default user-principal are consumer_byte_rate=2048.0", None),
    (
        "--alter --add-config controller_mutation_rate=5 --entity-type clients --entity-default",
        "Completed",
        None,
    ),
    ("--describe --entity-type clients", "default client-id are controller_mutation_rate=5.0", None),
    (
        "--alter --add-config connection_creation_rate=500 --entity-type ips --entity-name 127.0.0.1",
        "Completed",
        None,
    ),
    ("--describe --entity-type ips", "ip '127.0.0.1' are connection_creation_rate=500.0", None),
    (
        "--alter --delete-config producer_byte_rate,request_percentage --entity-type users --entity-name x "
        "--entity-type clients --entity-name app",
        "Completed updating config",
        None,
    ),
    ("--alter --delete-config consumer_byte_rate --entity-type users --entity-default", "Completed", None),
    (
        "--alter --delete-config controller_mutation_rate --entity-type clients --entity-default",
        "Completed",
        None,
    ),
    (
        "--alter --delete-config connection_creation_rate --entity-type ips --entity-name 127.0.0.1",
        "Completed",
        None,
    ),
    ("--describe --entity-type users --entity-type clients", "", "byte_rate|percentage"),
]
SCRAM_COMMANDS = [
    (
        "--alter --add-config SCRAM-SHA-256=[iterations=8192,password=secret] "
        "--entity-type users --entity-name scrammed",
        "Completed updating config for user scrammed",
        None,
    ),
    (
        "--describe --entity-type users --entity-name scrammed",
        "SCRAM credential configs for user-principal 'scrammed' are SCRAM-SHA-256=iterations=8192",
        "secret",
    ),
    ("--alter --delete-config SCRAM-SHA-256 --entity-type users --entity-name scrammed", "Completed", None),
    ("--describe --entity-type users --entity-name scrammed", "", "SCRAM-SHA-256"),
]


@pytest.mark.parametrize("commands", [QUOTA_COMMANDS, SCRAM_COMMANDS], ids=["quotas", "scram"])
def test_config_command(java: Run, broker: Target, commands: list[tuple[str, str, str | None]]) -> None:
    for arguments, wanted, unwanted in commands:
        words = ["--bootstrap-server", broker.address, *arguments.split()]
        check(java("kafka.admin.ConfigCommand", *words), wanted, unwanted, arguments)


def limit(java: Run, broker: Target, client_id: str, quotas: str) -> None:
    words = f"--alter --add-config {quotas} --entity-type clients --entity-name {client_id}".split()
    java("kafka.admin.ConfigCommand", "--bootstrap-server", broker.address, *words)
    with BlockingConnection(broker.address) as client:
        asked = DescribeClientQuotasRequest([QuotaFilterComponent("client-id", 0, client_id)])
        eventually(lambda: client.call(asked).entries, "the quota has reached the broker")


def ready(broker: Target, topic: str) -> None:
    with BlockingConnection(broker.address) as client:
        assert create_topic(client, topic).error_code == 0
        eventually(lambda: produce(client, topic, batch_of(b"warm")).error_code == 0, "a leader")


def test_a_produce_is_throttled_for_the_same_time(java: Run, broker: Target) -> None:
    ready(broker, "limited")
    limit(java, broker, "slow", "producer_byte_rate=1000")
    with BlockingConnection(broker.address, client_id="slow") as slow:
        request = produce_request("limited", batch_of(bytes(20_000)))
        answer = slow.call(request, version=9)
        size = len(request_frame(codec(0, 9), 1, "slow", codec(0, 9).encode_request(request))) - 4
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms == pytest.approx((size / 10 - 1000) / 1000 * 10_000, abs=1)


def test_a_fetch_is_cut_and_throttled_alike(java: Run, broker: Target) -> None:
    ready(broker, "stream")
    with BlockingConnection(broker.address) as client:
        for _ in range(40):
            produce(client, "stream", batch_of(bytes(900)))
    limit(java, broker, "reader", "consumer_byte_rate=1000")
    answers = []
    for session_epoch in (-1, -1, 0):
        with BlockingConnection(broker.address, client_id="reader") as reader:
            request = fetch_request("stream", 1, max_bytes=9500, session_epoch=session_epoch)
            answers.append(reader.call(request, version=12))
    first, *throttled = answers
    assert first.throttle_time_ms == 0
    size = sum(map(len, codec(1, 12).encode_response(first))) + 4
    assert len(values_in(first.responses[0].partitions[0])) == 9
    for answer in throttled:
        assert answer.throttle_time_ms == pytest.approx((2 * size / 10 - 1000) / 1000 * 10_000, abs=500)
        assert (answer.responses, answer.session_id, answer.error_code) == ([], 0, 0)


def test_partitions_cost_alike(java: Run, broker: Target) -> None:
    limit(java, broker, "maker", "controller_mutation_rate=1")
    outcomes = []
    for number, (partitions, version) in enumerate([(16, 7), (1, 7), (1, 5), (1, 7)]):
        with BlockingConnection(broker.address, client_id="maker") as maker:
            request = CreateTopicsRequest([CreatableTopic(f"made-{number}", partitions, 1)], 30_000)
            answer = maker.call(request, version=version)
            outcomes.append((answer.topics[0].error_code, answer.throttle_time_ms))
    codes = [code for code, _ in outcomes]
    assert codes == [0, 89, 0, 89]
    for (_, throttle_ms), most_ms in zip(outcomes, (0, 5000, 6000, 6000), strict=True):
        assert most_ms - 3000 <= throttle_ms <= most_ms or throttle_ms == most_ms == 0


def test_the_time_of_requests_is_capped_at_one_second(java: Run, broker: Target) -> None:
    limit(java, broker, "busy", "request_percentage=0.000001")
    with BlockingConnection(broker.address, client_id="busy") as busy:
        assert busy.call(MetadataRequest([]), version=12).throttle_time_ms == 1000
