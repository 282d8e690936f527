"""Logs with transactions: Kafka's dump tool reads ours, and we read those that an Apache Kafka has written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from kohort import Admin
from kohort.log.storage.files import DiskDirectory
from kohort.log.storage.transactions import AbortedTxn, TransactionIndex
from kohort.wire.records.batch import ControlKind
from tests.clients.process import eventually
from tests.log.support import node_on
from tests.log.test_transactions import Event, mark, read_committed, write

from .apache_kafka import ApacheKafka
from .conftest import Run

pytestmark = pytest.mark.interop
PATIENCE_S = 60.0
ENTRY = re.compile(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)")


def test_kafkas_dump_tool_reads_our_index_of_aborted_transactions(java: Run, tmp_path: Path) -> None:
    events: list[Event] = []
    with node_on(DiskDirectory(tmp_path), "os", segment_bytes=600) as node:
        partition = node.open()
        for number in range(30):
            write(partition, events, number % 3, (number % 5, 1))
            if number % 4 == 3:
                end = ControlKind.ABORT if number % 8 == 3 else ControlKind.COMMIT
                mark(partition, events, number % 3, end, 2)
        node.syncer.drain()
        expected = [tuple(entry) for entry in partition.aborted_before(partition.log_end_offset)]
        partition.close()
    folder = tmp_path / "t-0"
    files = sorted(map(str, folder.glob("*.txnindex")))
    assert len(expected) >= 3
    assert len(files) >= 2
    said = java("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files))
    assert [tuple(map(int, found)) for found in ENTRY.findall(said)] == expected
    logs = ",".join(sorted(map(str, folder.glob("*.log"))))
    dumped = java("org.apache.kafka.tools.DumpLogSegments", "--files", logs, "--deep-iteration")
    markers = sum(event.end is not None for event in events)
    assert dumped.count("endTxnMarker: ") == markers
    assert dumped.count("endTxnMarker: ABORT") == len(expected)


TOPIC = "written-by-kafka"


def fill(servers: str) -> None:
    """Eight transactions of two producers by turns, every other one aborted, and one that stays open."""
    settings = {"bootstrap.servers": servers, "transaction.timeout.ms": 300_000}
    producers = [ConfluentProducer({**settings, "transactional.id": f"log-{n}"}) for n in range(2)]
    for producer in producers:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for number in range(8):
        producer = producers[number % 2]
        for n in range(20):
            producer.produce(TOPIC, b"x" * 100, b"key-%d" % (100 * number + n), partition=0)
        for each in producers:
            each.flush(PATIENCE_S)
        if number % 4 < 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
        producer.begin_transaction()
    producers[0].produce(TOPIC, b"open", b"key-9999", partition=0)
    producers[0].flush(PATIENCE_S)


def read_from(servers: str) -> tuple[dict[int, bytes | None], int]:
    """Offsets and keys of what is committed, and the last stable offset, as Kafka answers them."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": "log-reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ConfluentPartition(TOPIC, 0, 0)])
    rows: dict[int, bytes | None] = {}
    while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
        rows[message.offset() or 0] = message.key()
    _, stable = consumer.get_watermark_offsets(ConfluentPartition(TOPIC, 0))
    consumer.close()
    return rows, stable


def test_a_log_that_kafka_wrote_reads_the_same(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    servers = apache_kafka.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(TOPIC, 1, 1, {"segment.bytes": str(1 << 20)})
    fill(servers)
    rows, stable = read_from(servers)
    assert len(rows) == 80
    theirs, mine = apache_kafka.target.data / f"{TOPIC}-0", tmp_path / "t-0"
    eventually(lambda: any(file.stat().st_size for file in theirs.glob("*.txnindex")), "an index of Kafka")
    mine.mkdir()
    for file in theirs.glob("*.log"):
        shutil.copyfile(file, mine / file.name)
    index = b"".join(file.read_bytes() for file in sorted(theirs.glob("*.txnindex")))
    with node_on(DiskDirectory(tmp_path), "os") as node:
        partition = node.open()
        found: list[AbortedTxn] = partition.aborted_before(partition.log_end_offset)
        assert found == TransactionIndex.decode(index).entries
        assert partition.last_stable_offset == stable < partition.log_end_offset
        assert read_committed(partition) == rows
