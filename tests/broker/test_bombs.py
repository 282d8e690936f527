"""Batches of kilobytes that decompress to very much: refused where the broker decompresses, harmless elsewhere."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from kohort.broker.running import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.records.compression import MAX_DECOMPRESSED, Compression
from tests.broker.peer import PATIENCE_S, batch_of, create_topic, fetch, produce, values_in
from tests.clients.process import eventually

NOW = 1_700_000_000_000


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A batch of one record of 130 MB, which is 12 KB on the wire."""
    return batch_of(bytes(MAX_DECOMPRESSED + 2_000_000), compression=Compression.ZSTD, timestamp=NOW)


@pytest.fixture(scope="module")
def client() -> Iterator[BlockingConnection]:
    with running() as broker, BlockingConnection(broker.bootstrap_servers, timeout_s=PATIENCE_S) as connected:
        yield connected


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("setting", [{"cleanup_policy": "compact"}, {"compression_type": "gzip"}], ids=str)
def test_a_topic_whose_batches_are_read_refuses_it(client, bomb, setting):
    assert len(bomb) < 100_000
    name = "-".join(setting.values())
    create_topic(client, name, **setting)
    before = peak_mb()
    assert produce(client, name, bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert peak_mb() - before < 400  # twice what is allowed, and some
    assert produce(client, name, batch_of(b"good")).error_code == 0


def test_a_batch_that_grows_beyond_max_message_bytes_is_refused(client):
    create_topic(client, "unpacked", compression_type="uncompressed")
    grows = batch_of(bytes(5_000_000), compression=Compression.ZSTD)
    assert produce(client, "unpacked", grows).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(client, "unpacked", batch_of(b"good")).base_offset == 0


def test_where_it_is_only_stored_it_harms_nobody(client, bomb):
    create_topic(client, "stored")
    assert produce(client, "stored", bomb).error_code == 0
    assert produce(client, "stored", batch_of(b"good")).base_offset == 1
    asked = ListOffsetsRequest(
        topics=[ListOffsetsTopic("stored", [ListOffsetsPartition(0, timestamp=NOW - 1)])], replica_id=-1
    )
    answer = client.call(asked, 5).topics[0].partitions[0]
    assert answer.error_code in (0, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE)
    assert values_in(fetch(client, "stored", 1)) == [b"good"]


def test_compaction_leaves_it_where_it_is_and_the_broker_goes_on(bomb, caplog):
    quick = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 100}
    with running(settings=quick) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "later", segment_bytes=1048576, min_cleanable_dirty_ratio=0.01)
        assert produce(client, "later", bomb).error_code == 0
        for _ in range(4):  # the segment of the bomb is full
            produce(client, "later", batch_of(b"x" * 600_000))
        compact = AlterableConfig("cleanup.policy", 0, "compact")
        resource_ = AlterConfigsResource(2, "later", [compact])
        assert client.call(IncrementalAlterConfigsRequest([resource_])).responses[0].error_code == 0
        eventually(lambda: "decompresses to more" in caplog.text, "compaction has met it")
        assert produce(client, "later", batch_of(b"good")).base_offset == 5
        assert values_in(fetch(client, "later", 5)) == [b"good"]
        assert fetch(client, "later", 0, partition_max_bytes=200_000).records
