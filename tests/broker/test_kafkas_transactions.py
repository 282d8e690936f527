"""Offsets that Kafka committed in transactions: a broker starts with its log, and is asked for the offsets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.coordinator.records import CommittedOffset, offset_records, offset_tombstone
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kohort.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kohort.wire.records.batch import (
    ControlKind,
    assign,
    encode_control_batch,
    encode_pairs_batch,
    read_header,
)
from tests.broker.peer import create_topic

OFFSETS = "__consumer_offsets"
COMMIT, ABORT = ControlKind.COMMIT, ControlKind.ABORT
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
T = 1_700_000_000_000


class KafkasLog:
    """The one partition of an offsets topic, as a group coordinator of Kafka writes it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._end = 0

    def commit(self, group: str, offsets: dict[int, int], producer: int = -1) -> None:
        keys = [("orders", partition) for partition in offsets]
        committed = [CommittedOffset(offset, -1, "", 2**62) for offset in offsets.values()]
        self._add(
            encode_pairs_batch(offset_records(group, keys, committed), T, producer, _epoch(producer))[0]
        )

    def forget(self, group: str, partition: int) -> None:
        self._add(encode_pairs_batch([offset_tombstone(group, "orders", partition)], T)[0])

    def end(self, kind: ControlKind, producer: int) -> None:
        self._add(encode_control_batch(kind, producer_id=producer, producer_epoch=3, timestamp=T))

    def _add(self, batch: bytearray) -> None:
        assign(batch, 0, self._end, 0)
        self._end = read_header(batch).last_offset + 1
        self.data += batch


def _epoch(producer: int) -> int:
    return -1 if producer == -1 else 3


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a stopped broker with the topics, and an offsets topic of one partition."""
    broker = running(tmp_path, offsets_topic_num_partitions=1)
    with broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("any"), version=2)
        create_topic(client, "orders", partitions=4)
        part = OffsetCommitRequestPartition(0, 1)  # makes the partition's directory
        topic = OffsetCommitRequestTopic("orders", partitions=[part])
        client.call(OffsetCommitRequest("any", topics=[topic]), version=8)
    (tmp_path / "clean-stop").unlink()  # so that the next start looks at what is there
    return tmp_path


def put(directory: Path, log: KafkasLog) -> None:
    partition = directory / f"{OFFSETS}-0"
    for file in partition.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (partition / f"{0:020}.log").write_bytes(log.data)


def fetched(
    client: BlockingConnection, group: str, partitions: Sequence[int] = range(4), *, stable: bool = False
) -> list[int | ErrorCode]:
    """The committed offsets, or the error instead of one."""
    topics = [OffsetFetchRequestTopics("orders", partition_indexes=list(partitions))]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=stable
    )
    answer = client.call(request, version=9).groups[0]
    assert answer.error_code == 0
    return [
        ErrorCode(found.error_code) if found.error_code else found.committed_offset
        for found in answer.topics[0].partitions
    ]


def test_a_marker_makes_offsets_visible_or_drops_them(directory: Path) -> None:
    log = KafkasLog()
    log.commit("g", {0: 1, 1: 1, 2: 1, 3: 1})
    log.commit("g", {0: 10}, producer=100)
    log.commit("g", {1: 20}, producer=200)
    log.commit("g", {2: 30}, producer=300)
    log.end(COMMIT, 100)
    log.end(ABORT, 200)
    log.commit("g", {1: 21}, producer=200)  # the same producer's next transaction
    log.end(COMMIT, 200)
    log.commit("g", {3: 40}, producer=100)
    log.end(ABORT, 100)
    put(directory, log)
    with running(directory) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        assert fetched(client, "g") == [10, 21, 1, 1]
        assert fetched(client, "g", stable=True) == [10, 21, UNSTABLE, 1], "300 has not ended"


def test_what_is_later_in_the_log_counts_not_what_ends_later(directory: Path) -> None:
    log = KafkasLog()
    log.commit("g", {0: 10, 1: 10, 2: 10}, producer=100)
    log.commit("g", {0: 11})
    log.forget("g", 1)
    log.commit("g", {2: 12}, producer=200)
    log.end(COMMIT, 200)
    log.end(COMMIT, 100)
    put(directory, log)
    with running(directory) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        assert fetched(client, "g", stable=True) == [11, -1, 12, -1]


def test_a_group_that_is_known_by_an_open_transaction_alone_can_be_deleted(directory: Path) -> None:
    log = KafkasLog()
    log.commit("g", {0: 10}, producer=100)
    put(directory, log)
    with running(directory) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        assert fetched(client, "g", [0], stable=True) == [UNSTABLE]
        assert fetched(client, "g", [0]) == [-1]
        assert client.call(DeleteGroupsRequest(["g"])).results[0].error_code == 0
        assert fetched(client, "g", [0], stable=True) == [-1]
    with running(directory) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g"), version=2)
        assert fetched(client, "g", [0], stable=True) == [-1], "after a restart too"


def test_the_groups_are_the_same_after_another_restart(directory: Path) -> None:
    log = KafkasLog()
    log.commit("g", {0: 10, 1: 20}, producer=100)
    log.commit("h", {0: 30}, producer=100)
    log.end(COMMIT, 100)
    put(directory, log)
    for _ in range(2):
        with running(directory) as broker, BlockingConnection(broker.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest("g"), version=2)
            assert fetched(client, "g", [0, 1], stable=True) == [10, 20]
            assert fetched(client, "h", [0], stable=True) == [30]


def test_an_administrator_ends_a_transaction_that_kafka_left_open(directory: Path) -> None:
    log = KafkasLog()
    log.commit("g", {0: 1})
    log.commit("g", {0: 10}, producer=100)
    log.commit("g", {1: 20}, producer=200)
    put(directory, log)
    with (
        running(directory, offsets_topic_num_partitions=1) as broker,
        BlockingConnection(broker.bootstrap_servers) as client,
    ):
        client.call(FindCoordinatorRequest("any"), version=2)
        assert fetched(client, "g", (0, 1), stable=True) == [UNSTABLE, UNSTABLE]
        where = [WritableTxnMarkerTopic(OFFSETS, [0])]
        ends = [WritableTxnMarker(100, 3, True, where, 0), WritableTxnMarker(200, 3, False, where, 0)]
        answer = client.call(WriteTxnMarkersRequest(ends), version=1)
        assert [m.topics[0].partitions[0].error_code for m in answer.markers] == [0, 0]
        assert fetched(client, "g", (0, 1), stable=True) == [10, -1]
    with (
        running(directory, offsets_topic_num_partitions=1) as broker,
        BlockingConnection(broker.bootstrap_servers) as client,
    ):
        client.call(FindCoordinatorRequest("any"), version=2)
        assert fetched(client, "g", (0, 1), stable=True) == [10, -1]
