"""Records through real clients: what one library wrote, every library reads."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.records.batch import BatchHeader, iter_batches
from kohort.wire.records.compression import Compression
from tests.broker.peer import batch_of, fetch
from tests.clients.client import Client, Headers, Received, Refused, Sent
from tests.clients.clients import CLIENTS, each_client, each_codec
from tests.clients.confluent import Confluent
from tests.clients.conftest import Connect
from tests.clients.process import BrokerProcess

VALUES = [Sent(b"value %d" % i * 10, b"key %d" % i) for i in range(50)]


def stored_batches(broker: BrokerProcess, topic: str) -> list[BatchHeader]:
    with BlockingConnection(broker.bootstrap_servers) as raw:
        data = fetch(raw, topic, partition_max_bytes=1 << 24)
    return [header for _, header in iter_batches(memoryview(data.records))]


def content(records: list[Received]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


@each_codec()
def test_every_client_reads_what_it_wrote(
    client: Client, codec: str, broker: BrokerProcess, connect: Connect, name: str
) -> None:
    assert client.produce(name, VALUES, compression=codec) == list(range(50))
    assert {header.compression for header in stored_batches(broker, name)} == {Compression[codec.upper()]}
    readers = [reader for reader in CLIENTS if codec in reader.codecs]
    assert len(readers) >= 2
    for reader in readers:
        read = connect(reader).fetch(name, 50)
        assert content(read) == [(sent.key, sent.value) for sent in VALUES], reader.name
        assert [record.offset for record in read] == list(range(50))


@each_client()
def test_idempotent_producer(client: Client, broker: BrokerProcess, name: str) -> None:
    assert client.produce(name, VALUES, idempotent=True) == list(range(50))
    batches = stored_batches(broker, name)
    assert all(header.producer_id >= 0 and header.producer_epoch == 0 for header in batches)
    assert [header.base_sequence for header in batches] == [header.base_offset for header in batches]
    assert content(client.fetch(name, 50)) == [(sent.key, sent.value) for sent in VALUES]


@each_client()
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, acks: str, name: str) -> None:
    offsets = client.produce(name, VALUES, acks=acks)
    if acks != "0":
        assert offsets == list(range(50))
    assert content(client.fetch(name, 50)) == [(sent.key, sent.value) for sent in VALUES]


@each_client()
def test_headers_and_nulls_arrive_as_they_were_sent(client: Client, connect: Connect, name: str) -> None:
    headers: Headers = [
        ("trace", b"\x00\xff"),
        ("empty", b""),
        ("twice", b"1"),
        ("twice", b"2"),
        ("größe", b"x"),
    ]
    sent = [Sent(b"v", b"k", headers), Sent(None, b"tombstone"), Sent(b"no key"), Sent(b"", b"")]
    client.produce(name, sent)
    for reader in CLIENTS:
        read = connect(reader).fetch(name, len(sent))
        assert content(read) == [(record.key, record.value) for record in sent], reader.name
        assert read[0].headers == headers, reader.name
        assert read[2].headers == []


@each_client()
def test_a_null_header_value(client: Client, connect: Connect, name: str) -> None:
    # kafka-python reads them, but does not let its users write them.
    connect(Confluent).produce(name, [Sent(b"v", headers=[("null", None)])])
    assert client.fetch(name, 1)[0].headers == [("null", None)]


@each_client("create_topic")
def test_batches_up_to_max_message_bytes(client: Any, name: str) -> None:
    limit = 50_000
    client.create_topic(name, config={"max.message.bytes": str(limit)})
    overhead = len(batch_of(b"x" * 40_000, key=None)) - 40_000
    largest = b"x" * (limit - overhead)
    assert client.produce(name, [Sent(largest)]) == [0]
    with pytest.raises(Refused) as refused:
        client.produce(name, [Sent(largest + b"x")])
    assert refused.value.error == "MESSAGE_TOO_LARGE"
    assert client.produce(name, [Sent(b"after")]) == [1]
    assert [record.value for record in client.fetch(name, 2)] == [largest, b"after"]


@each_client()
def test_a_message_of_a_megabyte(client: Client, name: str) -> None:
    value = bytes(range(256)) * 3900
    client.produce(name, [Sent(value), Sent(b"small")])
    assert [record.value for record in client.fetch(name, 2)] == [value, b"small"]


@each_client("offsets", "create_topic")
def test_offsets_earliest_latest_and_by_time(client: Any, name: str) -> None:
    start_ms = time.time_ns() // 1_000_000 - 100_000
    client.create_topic(name)
    assert client.offsets(name, start_ms) == (0, 0, -1)
    for second in range(5):
        client.produce(name, [Sent(b"v", timestamp_ms=start_ms + second * 1000)])
    assert client.offsets(name, start_ms - 1) == (0, 5, 0)
    assert client.offsets(name, start_ms + 2000)[2] == 2
    assert client.offsets(name, start_ms + 2001)[2] == 3
    assert client.offsets(name, start_ms + 4001)[2] in (
        -1,
        5,
    )  # nothing so late; librdkafka then says "the end"
    assert [record.timestamp_ms for record in client.fetch(name, 5)] == [
        start_ms + i * 1000 for i in range(5)
    ]


@each_client()
def test_a_waiting_fetch_is_answered_when_a_record_arrives(client: Client, name: str) -> None:
    # The poll may last longer than the client waits for its result: only the record can have ended it.
    client.produce(name, [Sent(b"old")])
    waiting, read = threading.Event(), []
    options: dict[str, Any] = {"offset": 1, "waiting": waiting, "max_wait_ms": 100_000}
    reader = threading.Thread(target=lambda: read.extend(client.fetch(name, 1, **options)))
    reader.start()
    assert waiting.wait(60)
    assert not read
    client.produce(name, [Sent(b"new")])
    reader.join(60)
    assert [record.value for record in read] == [b"new"]


@each_client("topics")
def test_producing_creates_the_topic(client: Any, name: str) -> None:
    assert name not in client.topics()
    assert client.produce(name, [Sent(b"first")]) == [0]
    assert client.topics()[name] == 1  # num.partitions


@each_client("create_topic")
def test_a_compacted_topic_refuses_records_without_a_key(client: Any, name: str) -> None:
    client.create_topic(name, config={"cleanup.policy": "compact"})
    with pytest.raises(Refused) as refused:
        client.produce(name, [Sent(b"no key")])
    assert refused.value.error == client.shows.get("INVALID_RECORD", "INVALID_RECORD")
    assert client.produce(name, [Sent(b"value", b"key")]) == [0]


@pytest.mark.timeout(600)  # it takes seconds; many times as long on a machine that is busy
@each_client("create_topic")
def test_a_hundred_topics_of_ten_partitions(client: Any, name: str) -> None:
    topics = [f"{name}-{i}" for i in range(100)]
    for topic in topics:
        client.create_topic(topic, partitions=10)
    parts = [(topic, index) for topic in topics for index in range(10)]
    sent = {part: b"%s/%d" % (part[0].encode(), part[1]) for part in parts}
    offsets = client.send([(part, Sent(value, b"k")) for part, value in sent.items()])
    assert offsets == [0] * 1000
    read = client.read(dict.fromkeys(parts, 0), 1000)
    assert {(record.topic, record.partition): record.value for record in read} == sent
