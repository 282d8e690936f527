"""What others write we read, and what we write they read: Java, librdkafka, aiokafka, kafka-python, kio."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
from collections.abc import Iterator
from datetime import UTC, datetime

import aiokafka.record.default_records as aio
import kafka.record.default_records as kpy
import kio.records.readers
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.wire.records.batch import (
    BatchRecord,
    ControlKind,
    assign,
    check_batch,
    control_kind,
    coordinator_epoch,
    encode_batch,
    encode_control_batch,
    iter_records,
    read_header,
    recompress,
)
from kohort.wire.records.compression import Compression

ALL_CODECS = list(Compression)
PATIENCE_S = 60  # for what never comes: a machine may be slow
T = 1_700_000_000_000

RECORDS = [
    BatchRecord(0, T, b"key", b"value", []),
    BatchRecord(1, T + 250, None, b"x" * 70, [("trace", b"abc"), ("none", None), ("größe", b"")]),
    BatchRecord(2, T - 10_000, b"tombstone", None, []),
    BatchRecord(3, T + 1, b"", b"", []),
]

# Larger than one block of any codec, and with lengths of one, two and three bytes.
MANY = [
    BatchRecord(
        i,
        T + i * i,
        None if i % 3 else b"k%d" % i,
        bytes([i % 7]) * (i * 37 % 3_000),
        [("n", b"%d" % i)] * (i % 3),
    )
    for i in range(300)
]


# --- Java: bytes written by kafka-clients 4.3.1 (MemoryRecordsBuilder) ------------------------------

WRITTEN_BY_JAVA = {
    Compression.NONE: (
        "AAAAAAAAAAAAAADC/////wJDcns1AAAAAAADAAABi8/laAAAAAGLz+Vo+gAAAAAAABJnAAMAAAARAAAABBwAAAAGa2V5CnZh"
        "bHVlAM4BAPQDAgGMAXh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"
        "eHh4eHh4eHh4eHgGCnRyYWNlBmFiYwhub25lAQ5ncsO2w59lACIAn5wBBBJ0b21ic3RvbmUBAAwAAgYAAAA="
    ),
    Compression.GZIP: (
        "AAAAAAAAAAAAAACR/////wJQJKI0AAEAAAADAAABi8/laAAAAAGLz+Vo+gAAAAAAABJnAAMAAAARAAAABB+LCAAAAAAAAP+T"
        "YWBgYMtOreQqS8wpTWU4x8jwhZmJsYexgiqAjaukKDE5lS0xKZkjLz8vlZEvvejwtsPzUxmUGObPYWQRKsnPTSouAckw8DAw"
        "sQEdAwCx6JqBkQAAAA=="
    ),
    Compression.SNAPPY: (
        "AAAAAAAAAAAAAACa/////wJTHkDjAAIAAAADAAABi8/laAAAAAGLz+Vo+gAAAAAAABJnAAMAAAARAAAABIJTTkFQUFkAAAAA"
        "AQAAAAEAAABVkQFgHAAAAAZrZXkKdmFsdWUAzgEA9AMCAYwBeP4BAAUByAYKdHJhY2UGYWJjCG5vbmUBDmdyw7bDn2UAIgCf"
        "nAEEEnRvbWJzdG9uZQEADAACBgAAAA=="
    ),
    Compression.LZ4: (
        "AAAAAAAAAAAAAACS/////wIMCuFBAAMAAAADAAABi8/laAAAAAGLz+Vo+gAAAAAAABJnAAMAAAARAAAABAQiTRhgQIJSAAAA"
        "/wocAAAABmtleQp2YWx1ZQDOAQD0AwIBjAF4AQAy8BgGCnRyYWNlBmFiYwhub25lAQ5ncsO2w59lACIAn5wBBBJ0b21ic3Qa"
        "AIAADAACBgAAAAAAAAA="
    ),
    Compression.ZSTD: (
        "AAAAAAAAAAAAAACQ/////wJ8K5irAAQAAAADAAABi8/laAAAAAGLz+Vo+gAAAAAAABJnAAMAAAARAAAABCi1L/0AWJwCAMQE"
        "HAAAAAZrZXkKdmFsdWUAzgEA9AMCAYwBeAYKdHJhY2UGYWJjCG5vbmUBDmdyw7bDn2UAIgCfnAEEEnRvbWJzdG9uZQEADAAC"
        "BgAAAAEACQrGAQAA"
    ),
}
COMMIT_BY_JAVA = (
    "AAAAAAAAACoAAABCAAAACQJcARW7ADAAAAAAAAABi8/laAAAAAGLz+VoAAAAAAAAABJnAAP/////AAAAASAAAAAIAAAAAQwAAAAAAAcA"
)


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_a_batch_of_the_java_client_is_accepted_and_read(codec: Compression) -> None:
    batch = base64.b64decode(WRITTEN_BY_JAVA[codec])
    header = check_batch(batch)
    assert (header.compression, header.producer_id, header.producer_epoch, header.base_sequence) == (
        codec,
        4711,
        3,
        17,
    )
    assert header.max_timestamp == T + 250
    assert list(iter_records(batch)) == RECORDS


def test_uncompressed_we_write_the_very_bytes_of_the_java_client() -> None:
    ours = encode_batch(RECORDS, producer_id=4711, producer_epoch=3, base_sequence=17)
    assert ours == base64.b64decode(WRITTEN_BY_JAVA[Compression.NONE])


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_recompressed_to_none_a_java_batch_is_the_uncompressed_one(codec: Compression) -> None:
    batch = base64.b64decode(WRITTEN_BY_JAVA[codec])
    assert recompress(batch, Compression.NONE) == base64.b64decode(WRITTEN_BY_JAVA[Compression.NONE])


def test_a_commit_marker_is_the_one_that_java_writes() -> None:
    java = base64.b64decode(COMMIT_BY_JAVA)
    ours = encode_control_batch(
        ControlKind.COMMIT,
        producer_id=4711,
        producer_epoch=3,
        timestamp=T,
        coordinator_epoch=7,
        base_offset=42,
        partition_leader_epoch=9,
    )
    assert ours == java
    (marker,) = iter_records(java)
    assert (marker.offset, control_kind(marker.key), coordinator_epoch(marker.value)) == (
        42,
        ControlKind.COMMIT,
        7,
    )


# --- librdkafka, through its own mock broker --------------------------------------------------------


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class RawBroker:
    """Just enough of Produce 3 and Fetch 4 to put bytes into librdkafka's mock broker and get them out."""

    def __init__(self) -> None:
        self.owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1})
        node = next(iter(self.owner.list_topics("t", timeout=PATIENCE_S).brokers.values()))
        self.address = f"{node.host}:{node.port}"
        self.socket = socket.create_connection((node.host, node.port), timeout=PATIENCE_S)

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        message = struct.pack(">hhi", api_key, version, 1) + _string("raw") + body
        self.socket.sendall(struct.pack(">i", len(message)) + message)
        return self._read(struct.unpack(">i", self._read(4))[0])

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            assert chunk, "the mock broker hung up"
            data += chunk
        return data

    def fetch(self, offset: int = 0) -> bytes:
        body = struct.pack(">iiiibi", -1, 100, 1, 1 << 24, 0, 1) + _string("t")
        answer = self.ask(1, 4, body + struct.pack(">iiqi", 1, 0, offset, 1 << 24))
        error, _, _, aborted, size = struct.unpack_from(">hqqii", answer, 4 + 4 + 4 + 3 + 4 + 4)
        assert (error, max(aborted, 0)) == (0, 0)
        return answer[-size:]

    def produce(self, batch: bytes) -> None:
        body = struct.pack(">hhii", -1, -1, 5000, 1) + _string("t") + struct.pack(">iii", 1, 0, len(batch))
        answer = self.ask(0, 3, body + batch)
        assert struct.unpack_from(">h", answer, 4 + 4 + 3 + 4 + 4) == (0,)


@pytest.fixture
def raw_broker() -> Iterator[RawBroker]:
    broker = RawBroker()
    with contextlib.closing(broker.socket):
        yield broker


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_a_batch_of_librdkafka_is_accepted_and_read(raw_broker: RawBroker, codec: Compression) -> None:
    name = codec.name.lower()
    producer = Producer(
        {"bootstrap.servers": raw_broker.address, "compression.type": name, "linger.ms": 5000}
    )
    for record in MANY:
        producer.produce("t", record.value, record.key, 0, timestamp=record.timestamp, headers=record.headers)
    assert producer.flush(PATIENCE_S) == 0
    # Usually one batch; a busy machine may send the first record alone, and that is too small to compress.
    read: list[BatchRecord] = []
    codecs = set()
    while len(read) < len(MANY):
        batch = bytearray(raw_broker.fetch(len(read)))
        assign(batch, 0, 0, 0)
        codecs.add(check_batch(batch).compression)
        assign(batch, 0, len(read), 0)
        read += iter_records(batch)
    assert codec in codecs
    assert read == MANY


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_librdkafka_reads_our_batch(raw_broker: RawBroker, codec: Compression) -> None:
    raw_broker.produce(bytes(encode_batch(MANY, compression=codec)))
    settings = {"bootstrap.servers": raw_broker.address, "group.id": "g", "check.crcs": True}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        messages = consumer.consume(len(MANY), timeout=PATIENCE_S)
    read = [
        BatchRecord(
            m.offset(),
            m.timestamp()[1],
            m.key(),
            m.value(),
            m.headers() or [],
        )
        for m in messages
    ]
    assert read == MANY


# --- aiokafka and kafka-python ----------------------------------------------------------------------


@pytest.mark.parametrize("records", [RECORDS, MANY], ids=["few", "many"])
@pytest.mark.parametrize("codec", ALL_CODECS)
@pytest.mark.parametrize("builder_class", [aio.DefaultRecordBatchBuilder, aio._DefaultRecordBatchBuilderPy])
def test_a_batch_of_aiokafka_is_accepted_and_read(
    builder_class: type, codec: Compression, records: list[BatchRecord]
) -> None:
    builder = builder_class(
        magic=2, compression_type=codec, is_transactional=1, producer_id=9, producer_epoch=1, base_sequence=4,
        batch_size=1 << 24,
    )  # fmt: skip
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    batch = bytes(builder.build())
    header = check_batch(batch)
    assert (header.is_transactional, header.producer_id, header.producer_epoch, header.base_sequence) == (
        True,
        9,
        1,
        4,
    )
    assert list(iter_records(batch)) == records


@pytest.mark.parametrize("records", [RECORDS, MANY], ids=["few", "many"])
@pytest.mark.parametrize("codec", ALL_CODECS)
@pytest.mark.parametrize("reader_class", [aio.DefaultRecordBatch, aio._DefaultRecordBatchPy])
def test_aiokafka_reads_our_batch(reader_class: type, codec: Compression, records: list[BatchRecord]) -> None:
    reader = reader_class(bytes(encode_batch(records, compression=codec)))
    assert reader.validate_crc()
    assert [BatchRecord(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in reader] == records


# kafka-python's lz4, snappy and zstd need packages that are not installed here.
KAFKA_PYTHON_CODECS = [Compression.NONE, Compression.GZIP]


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_a_batch_of_kafka_python_is_accepted_and_read(codec: Compression) -> None:
    builder = kpy.DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=False, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 24,
    )  # fmt: skip
    for record in MANY:
        builder.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    batch = builder.build()
    check_batch(batch)
    assert list(iter_records(batch)) == MANY


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_kafka_python_reads_our_batch(codec: Compression) -> None:
    reader = kpy.DefaultRecordBatch(bytes(encode_batch(MANY, compression=codec)))
    assert reader.validate_crc()
    assert [BatchRecord(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in reader] == MANY


def test_kafka_python_reads_our_markers() -> None:
    for kind, expected in [(ControlKind.ABORT, (True, False)), (ControlKind.COMMIT, (False, True))]:
        batch = encode_control_batch(kind, producer_id=1, producer_epoch=0, timestamp=T)
        (marker,) = kpy.DefaultRecordBatch(bytes(batch))
        assert (marker.abort, marker.commit) == expected


# --- kio --------------------------------------------------------------------------------------------


def test_kio_reads_our_uncompressed_batch() -> None:
    ours = encode_batch(RECORDS, base_offset=0, partition_leader_epoch=6)
    batch, size = kio.records.readers.read_batch(bytes(ours), 0)
    header = read_header(ours)
    assert size == len(ours)
    assert (batch.crc, batch.last_offset_delta, batch.partition_leader_epoch) == (header.crc, 3, 6)
    for theirs, record in zip(batch.records, RECORDS, strict=True):
        # kio cuts timestamps down to whole seconds.
        assert theirs.timestamp == datetime.fromtimestamp(record.timestamp // 1000, UTC)
        assert (theirs.offset, theirs.key, theirs.value) == (record.offset, record.key, record.value)
        assert [(h.key.decode(), h.value) for h in theirs.headers] == record.headers
