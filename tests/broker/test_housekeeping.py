"""Retention and compaction while a broker runs: what clients see of them."""

from __future__ import annotations

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.records.batch import iter_batches, iter_records
from tests.broker.peer import batch_of, create_topic, fetch, produce
from tests.clients.process import eventually

QUICK = {"log.retention.check.interval.ms": 100, "log.cleaner.backoff.ms": 100}


@pytest.fixture(params=["memory", "os"])
def broker(request, tmp_path):
    directory = None if request.param == "memory" else tmp_path
    with running(directory, settings={**QUICK, "durability": request.param}) as started:
        yield started


def earliest(client: BlockingConnection, topic: str) -> int:
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -2)])
    return client.call(ListOffsetsRequest(-1, 0, [asked]), version=5).topics[0].partitions[0].offset


def test_what_is_older_than_retention_ms_goes_and_the_log_starts_later(broker):
    with BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "old", retention_ms=3_600_000, segment_bytes=1048576)
        for _ in range(3):
            produce(client, "old", batch_of(b"x" * 500_000, timestamp=1_600_000_000_000))
        produce(client, "old", batch_of(b"fresh"))
        eventually(lambda: earliest(client, "old") >= 2, "what is old is deleted")
        assert fetch(client, "old", 3).high_watermark == 4


def test_retention_bytes_keeps_the_newest(broker):
    with BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "big", retention_bytes=1_500_000, segment_bytes=1048576)
        for _ in range(8):
            produce(client, "big", batch_of(b"x" * 900_000))
        eventually(lambda: earliest(client, "big") > 0, "what is too much is deleted")
        assert fetch(client, "big", 7).high_watermark == 8


def test_a_compacted_topic_keeps_the_last_value_of_each_key_at_its_offset(broker):
    with BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(
            client, "latest", cleanup_policy="compact", segment_bytes=1048576, min_cleanable_dirty_ratio=0.01
        )
        value = b"v" * 90_000
        for number in range(30):
            produce(client, "latest", batch_of(b"%d" % number + value, key=b"key-%d" % (number % 3)))

        def offsets() -> list[int]:
            found, at = [], earliest(client, "latest")
            while at < 30:
                data = memoryview(fetch(client, "latest", at, partition_max_bytes=8 << 20).records)
                for position, header in iter_batches(data):
                    found += [r.offset for r in iter_records(data[position : position + header.size])]
                    at = header.last_offset + 1
            return found

        eventually(lambda: len(offsets()) < 20, "the log is compacted")
        left = offsets()
        assert left == sorted(set(left))
        assert left[-1] == 29
        assert {offset % 3 for offset in left} == {0, 1, 2}
