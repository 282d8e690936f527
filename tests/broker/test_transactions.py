"""Transactions through the broker's APIs: both versions, who is refused how, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.testing import Kafka
from kohort.wire.errors import ErrorCode
from kohort.wire.messages import add_partitions_to_txn as add
from kohort.wire.messages import write_txn_markers as markers
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kohort.wire.messages.describe_transactions import DescribeTransactionsRequest
from kohort.wire.messages.end_txn import EndTxnRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.messages.list_transactions import ListTransactionsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.peer import batch_of, create_topic, fetch, produce, values_in
from tests.broker.transactional import (
    TV1,
    TV2,
    TransactionalPeer,
    committed,
    offsets_of,
    state_of,
    until_stable,
)

E = ErrorCode
BOTH = pytest.mark.parametrize("version", [TV1, TV2])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(None) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def client(address: str) -> Iterator[BlockingConnection]:
    with BlockingConnection(address) as connection:
        yield connection


@pytest.fixture
def topic(client: BlockingConnection, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    assert create_topic(client, name, partitions=3).error_code == 0
    return name


@BOTH
def test_commits_are_seen_and_aborts_are_not(client, topic, version):
    peer = TransactionalPeer(client, topic, version)
    assert peer.init() is E.NONE
    for number in range(6):
        value = b"%d" % number
        peer.write(topic, value)
        peer.write(topic, value, partition=1)
        if number % 2:
            peer.abort()
        else:
            peer.commit()
    for partition in (0, 1):
        until_stable(client, topic, partition)
        assert committed(client, topic, partition) == [b"0", b"2", b"4"]
    assert len([v for v in values_in(fetch(client, topic)) if v and v.isdigit()]) == 6


@BOTH
def test_an_open_transaction_hides_what_follows_it(client, topic, version):
    peer = TransactionalPeer(client, topic, version)
    assert peer.init() is E.NONE
    produce(client, topic, batch_of(b"before"))
    peer.write(topic, b"in")
    produce(client, topic, batch_of(b"after"))
    assert committed(client, topic) == [b"before"]
    assert state_of(client, topic).transaction_state == "Ongoing"
    peer.commit()
    until_stable(client, topic)
    assert committed(client, topic) == [b"before", b"in", b"after"]


def test_each_end_of_version_2_raises_the_epoch(client, topic):
    peer = TransactionalPeer(client, topic, TV2)
    assert peer.init() is E.NONE
    for number in range(4):
        assert peer.producer_epoch == number
        if number < 3:
            peer.write(topic, b"x")
            peer.end(commit=number != 1)
    # nothing written: only an abort raises the epoch
    assert peer.end(commit=True) is E.INVALID_TXN_STATE
    assert peer.end(commit=False) is E.NONE
    assert peer.producer_epoch == 4


def test_versions_by_turns(client, topic):
    peer = TransactionalPeer(client, topic, TV1)
    assert peer.init() is E.NONE
    for number in range(8):
        peer.version = TV2 if number % 3 else TV1
        peer.write(topic, b"%d" % number)
        peer.commit()
    until_stable(client, topic)
    assert committed(client, topic) == [b"%d" % number for number in range(8)]


def test_the_next_transaction_begins_when_the_one_before_is_complete(tmp_path: Path) -> None:
    """It is woken then: with a pause this long between two questions each would end in the refusal."""
    pauses = {
        "add_partitions_to_txn_retry_backoff_ms": 60_000,
        "add_partitions_to_txn_retry_backoff_max_ms": 120_000,
    }
    with running(tmp_path, **pauses) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "t")
        peer = TransactionalPeer(client, "a", TV2)
        peer.init()
        group_is_known(client)
        for number in range(20):
            if number % 2:
                peer.send_offsets("g", {("t", 0): number})  # asks as Produce does
            assert peer.produce("t", b"%d" % number).error_code == 0
            peer.commit()
        until_stable(client, "t")
        assert committed(client, "t") == [b"%d" % number for number in range(20)]


def group_is_known(client: BlockingConnection) -> None:
    found = client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)
    assert found.coordinators[0].error_code == 0


@BOTH
def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(client, topic, version):
    old, new = (TransactionalPeer(client, topic, version) for _ in range(2))
    assert old.init() is E.NONE
    old.write(topic, b"lost")
    assert new.init() is E.NONE
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, 2)
    assert old.produce(topic, b"zombie").error_code == E.INVALID_PRODUCER_EPOCH
    assert old.end(commit=True) is E.PRODUCER_FENCED
    assert old.end(commit=True, version=1) is E.INVALID_PRODUCER_EPOCH
    assert old.add((topic, 1)) == [E.PRODUCER_FENCED]
    assert old.add((topic, 1), version=1) == [E.INVALID_PRODUCER_EPOCH]
    assert old.add_group("g") is E.PRODUCER_FENCED
    assert old.add_group("g", version=1) is E.INVALID_PRODUCER_EPOCH
    assert old.init(again=True) is E.PRODUCER_FENCED
    assert old.init(again=True, version=3) is E.INVALID_PRODUCER_EPOCH
    new.write(topic, b"kept")
    new.commit()
    until_stable(client, topic)
    assert committed(client, topic) == [b"kept"]


# ---- Produce asks the coordinator


def test_what_was_not_added_is_not_written(client, topic):
    peer = TransactionalPeer(client, topic)
    assert peer.init() is E.NONE
    assert peer.produce(topic, b"x", version=11).error_code == E.TRANSACTION_ABORTABLE
    assert peer.produce(topic, b"x", version=10).error_code == E.INVALID_TXN_STATE
    assert peer.add((topic, 1)) == [E.NONE]
    assert peer.produce(topic, b"x", version=11).error_code == E.TRANSACTION_ABORTABLE
    assert fetch(client, topic).high_watermark == 0


def test_what_produce_is_told_of_other_producers(client, topic):
    peer = TransactionalPeer(client, topic)
    assert peer.init() is E.NONE
    for version in (11, 12):
        other = peer.produce(topic, b"x", version=version, producer_id=peer.producer_id + 999)
        assert other.error_code == E.INVALID_PRODUCER_ID_MAPPING
        newer = peer.produce(topic, b"x", version=version, producer_epoch=7)
        assert newer.error_code == E.INVALID_PRODUCER_EPOCH
    assert fetch(client, topic).high_watermark == 0


def test_a_transactional_batch_needs_a_transactional_id_and_one_producer(client, topic):
    peer = TransactionalPeer(client, topic)
    assert peer.init() is E.NONE

    def send(transactional_id: str | None, *producer_ids: int) -> list[int]:
        parts = [
            PartitionProduceData(
                i, batch_of(b"x", producer_id=p, producer_epoch=0, base_sequence=0, transactional=True)
            )
            for i, p in enumerate(producer_ids)
        ]
        request = ProduceRequest(
            transactional_id, -1, 10_000, [TopicProduceData(topic, partition_data=parts)]
        )
        answer = client.call(request, version=9)
        return [part.error_code for part in answer.responses[0].partition_responses]

    mine = peer.producer_id
    assert send(None, mine, mine) == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert send(topic, mine, mine + 1) == [E.INVALID_PRODUCER_ID_MAPPING] * 2


def test_a_record_of_no_transaction_does_not_go_into_an_open_one(client, topic):
    peer = TransactionalPeer(client, topic, TV2)
    assert peer.init() is E.NONE
    peer.write(topic, b"x")
    assert peer.produce(topic, b"y", transactional=False).error_code == E.INVALID_TXN_STATE


# ---- adding


def test_one_partition_that_cannot_be_added_is_enough(client, topic):
    peer = TransactionalPeer(client, topic)
    assert peer.init() is E.NONE
    assert peer.add((topic, 0), (topic, 7), ("__consumer_offsets", 0)) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert state_of(client, topic).transaction_state == "Empty"


def test_nodes_ask_for_many_transactions_at_once(client, topic):
    one, two = TransactionalPeer(client, topic + "-1"), TransactionalPeer(client, topic + "-2")
    assert (one.init(), two.init()) == (E.NONE, E.NONE)
    assert one.add((topic, 0)) == [E.NONE]

    def asked(peer: TransactionalPeer, verify_only: bool, *indexes: int) -> Any:
        topics = [add.AddPartitionsToTxnTopic(topic, list(indexes))]
        fields = (peer.transactional_id, peer.producer_id, peer.producer_epoch, verify_only, topics)
        return add.AddPartitionsToTxnTransaction(*fields)

    request = add.AddPartitionsToTxnRequest(
        [asked(one, True, 0, 1), asked(two, False, 2), asked(two, True, 9)]
    )
    answer = client.call(request, version=5)
    assert answer.error_code == 0
    found = {
        (number, part.partition_index): E(part.partition_error_code)
        for number, result in enumerate(answer.results_by_transaction)
        for part in result.topic_results[0].results_by_partition
    }
    assert found == {
        (0, 0): E.NONE,
        (0, 1): E.TRANSACTION_ABORTABLE,
        (1, 2): E.NONE,
        (2, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_requests_without_a_transactional_id(client, topic):
    nobody = TransactionalPeer(client, topic)
    nobody.transactional_id = ""
    assert nobody.add((topic, 0)) == [E.INVALID_REQUEST]
    assert nobody.add_group("g") is E.INVALID_REQUEST
    assert nobody.end(commit=True) is E.INVALID_REQUEST
    assert nobody.init() is E.INVALID_REQUEST
    assert (
        client.call(DescribeTransactionsRequest([""])).transaction_states[0].error_code == E.INVALID_REQUEST
    )
    nobody.transactional_id = topic + "-unknown"
    nobody.producer_id = 7
    assert nobody.add((topic, 0)) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert nobody.end(commit=True) is E.INVALID_PRODUCER_ID_MAPPING
    nobody.timeout_ms = 900_001
    nobody.producer_id = -1
    assert nobody.init() is E.INVALID_TRANSACTION_TIMEOUT


# ---- looking and repairing


def test_describe_and_list(client, topic):
    peer = TransactionalPeer(client, topic, TV2)
    assert peer.init() is E.NONE
    peer.write(topic, b"x", partition=2)
    found = state_of(client, topic)
    assert (found.transaction_state, found.transaction_timeout_ms, found.producer_id) == (
        "Ongoing",
        60_000,
        peer.producer_id,
    )
    assert [(t.topic, t.partitions) for t in found.topics] == [(topic, [2])]
    assert state_of(client, "nobody").error_code == E.TRANSACTIONAL_ID_NOT_FOUND

    def ids(version: int = 2, **more: Any) -> list[str]:
        answer = client.call(ListTransactionsRequest(**more), version=version)
        assert answer.error_code == 0
        return [each.transactional_id for each in answer.transaction_states]

    assert topic in ids(0)
    assert topic in ids(state_filters=["Ongoing"])
    assert ids(producer_id_filters=[peer.producer_id]) == [topic]
    assert topic not in ids(state_filters=["Empty", "Nonsense"])
    assert topic not in ids(duration_filter=3_600_000)
    assert ids(transactional_id_pattern=topic[:-1] + ".") == [topic]
    assert ids(transactional_id_pattern=topic[:-1]) == []
    hostile = "(.*)*(.*)*(.*)*!"  # Python's `re` would not come back
    assert ids(transactional_id_pattern=hostile) == []
    bad = client.call(ListTransactionsRequest(["Nonsense"], transactional_id_pattern="("), version=2)
    assert (bad.error_code, bad.unknown_state_filters) == (E.INVALID_REGULAR_EXPRESSION, [])
    unknown = client.call(ListTransactionsRequest(["Empty", "Nonsense"]), version=0)
    assert unknown.unknown_state_filters == ["Nonsense"]
    peer.abort()


def test_an_administrator_ends_a_transaction_that_hangs(client, topic):
    peer = TransactionalPeer(client, topic, TV2)
    assert peer.init() is E.NONE
    peer.write(topic, b"x")
    asked = DescribeProducersRequest([TopicRequest(topic, [0])])
    (producer,) = client.call(asked).topics[0].partitions[0].active_producers
    assert producer.current_txn_start_offset == 0
    where = [markers.WritableTxnMarkerTopic(topic, [0, 9])]
    marker = markers.WritableTxnMarker(producer.producer_id, producer.producer_epoch, False, where, 0)
    answer = client.call(markers.WriteTxnMarkersRequest([marker]), version=1)
    parts = answer.markers[0].topics[0].partitions
    assert [(p.partition_index, E(p.error_code)) for p in parts] == [
        (0, E.NONE),
        (9, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    until_stable(client, topic)
    assert committed(client, topic) == []
    # an epoch that is over, as a coordinator of version 2 tells it
    old = markers.WritableTxnMarker(peer.producer_id, -1, False, where[:1], 0, 2)
    again = client.call(markers.WriteTxnMarkersRequest([old]), version=2)
    assert again.markers[0].topics[0].partitions[0].error_code == E.INVALID_PRODUCER_EPOCH


def test_the_feature_is_finalized(client):
    for version in (3, 4):
        answer = client.call(ApiVersionsRequest("a", "1"), version=version)
        told = [(f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features]
        assert ("transaction.version", 2, 2) in told
        assert answer.finalized_features_epoch >= 0
        assert ("transaction.version" in [f.name for f in answer.supported_features]) == (version == 4)


def test_the_topic_of_the_transactional_ids(client, topic):
    TransactionalPeer(client, topic)
    name = "__transaction_state"
    (found,) = client.call(MetadataRequest([MetadataRequestTopic(name=name)]), version=9).topics
    assert (len(found.partitions), found.is_internal) == (50, True)
    deleted = client.call(DeleteTopicsRequest([DeleteTopicState(name)]), version=6).responses[0]
    assert deleted.error_code == E.INVALID_TOPIC_EXCEPTION
    grown = client.call(CreatePartitionsRequest([CreatePartitionsTopic(name, 60)], 1000), version=3)
    assert grown.results[0].error_code == E.INVALID_PARTITIONS


def test_a_deleted_topic_does_not_hold_up_its_transaction(client, topic):
    peer = TransactionalPeer(client, topic, TV2)
    assert peer.init() is E.NONE
    peer.write(topic, b"x")
    assert client.call(DeleteTopicsRequest([DeleteTopicState(topic)]), version=6).responses[0].error_code == 0
    peer.commit()
    assert peer.init() is E.NONE


# ---- time


def test_a_transaction_past_its_timeout_is_aborted(kafka: Kafka) -> None:
    with BlockingConnection(kafka.bootstrap_servers) as client:
        create_topic(client, "t")
        old, new = (TransactionalPeer(client, name, v, 15_000) for name, v in (("a", TV1), ("b", TV2)))
        for peer in (old, new):
            assert peer.init() is E.NONE
            peer.write("t", b"x")
        kafka.advance(15_000)
        assert state_of(client, "a").transaction_state == "Ongoing"
        kafka.advance(10_000)
        until_stable(client, "t")
        assert committed(client, "t") == []
        assert old.produce("t", b"y").error_code == E.INVALID_PRODUCER_EPOCH
        assert old.end(commit=True) is E.PRODUCER_FENCED
        assert new.produce("t", b"y").error_code == E.INVALID_PRODUCER_EPOCH
        assert new.end(commit=True) is E.INVALID_TXN_STATE
        assert new.end(commit=False) is E.NONE
        assert old.init() is E.NONE
        old.write("t", b"z")
        old.commit()
        until_stable(client, "t")
        assert committed(client, "t") == [b"z"]


def test_a_transactional_id_that_nobody_uses_is_forgotten(kafka: Kafka) -> None:
    with BlockingConnection(kafka.bootstrap_servers) as client:
        peer = TransactionalPeer(client, "a")
        assert peer.init() is E.NONE
        kafka.advance(6 * 24 * 3_600_000)
        assert state_of(client, "a").transaction_state == "Empty"
        kafka.advance(25 * 3_600_000)
        assert state_of(client, "a").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
        before = peer.producer_id
        assert peer.init() is E.NONE
        assert peer.producer_id != before


# ---- restarts


def test_a_restart_knows_all_transactions(tmp_path: Path) -> None:
    broker = running(tmp_path, transaction_state_log_num_partitions=2)
    with broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "t")
        ended, still = TransactionalPeer(client, "ended", TV2), TransactionalPeer(client, "open", TV2)
        for peer in (ended, still):
            assert peer.init() is E.NONE
        ended.write("t", b"committed")
        ended.commit()
        still.write("t", b"open")
    # another number of partitions in the settings does not move the ids
    broker = running(tmp_path, transaction_state_log_num_partitions=3)
    with broker, BlockingConnection(broker.bootstrap_servers) as client:
        for peer in (ended, still):
            peer.connection = client
            peer.find()
        assert [state_of(client, name).transaction_state for name in ("ended", "open")] == [
            "CompleteCommit",
            "Ongoing",
        ]
        assert committed(client, "t") == [b"committed"]
        still.write("t", b"more")
        still.commit()
        ended.write("t", b"next")
        ended.abort()
        until_stable(client, "t")
        assert committed(client, "t") == [b"committed", b"open", b"more"]


# ---- offsets of groups


@BOTH
def test_offsets_of_a_transaction_count_when_it_commits(client, topic, version):
    client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)
    peer, group = TransactionalPeer(client, topic, version), topic
    assert peer.init() is E.NONE
    peer.send_offsets(group, {(topic, 0): 5, (topic, 1): 6})
    assert offsets_of(client, group, topic, 0, 1) == [-1, -1]
    assert offsets_of(client, group, topic, 0, 2, stable=True) == [E.UNSTABLE_OFFSET_COMMIT, -1]
    peer.commit()
    _wait_for(client, group, topic, 5)
    assert offsets_of(client, group, topic, 0, 1, stable=True) == [5, 6]
    peer.send_offsets(group, {(topic, 0): 50})
    peer.write(topic, b"x")
    peer.abort()
    until_stable(client, topic)
    _wait_for(client, group, topic, 5)


def _wait_for(client: BlockingConnection, group: str, topic: str, offset: int) -> None:
    for _ in range(10_000):
        if (found := offsets_of(client, group, topic, 0, stable=True)) == [offset]:
            return
    raise AssertionError(f"{found} is not {offset}")


def test_offsets_that_are_refused(client, topic):
    client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)
    peer, place = TransactionalPeer(client, topic), (topic, 0)
    assert peer.init() is E.NONE
    # not added
    assert peer.commit_offsets(topic, {place: 1}, version=4) == [E.TRANSACTION_ABORTABLE]
    assert peer.commit_offsets(topic, {place: 1}, version=3) == [E.INVALID_TXN_STATE]
    assert peer.commit_offsets("", {place: 1}) == [E.INVALID_GROUP_ID]
    assert peer.add_group(topic) is E.NONE
    # a group that nobody knows, and a member that it does not have
    assert peer.commit_offsets(topic, {place: 1}, member=(3, "m", None)) == [E.ILLEGAL_GENERATION]
    assert peer.commit_offsets(topic, {place: 1, (topic, 7): 1}) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert peer.commit_offsets(topic, {place: 1}, member=(3, "m", None)) == [E.UNKNOWN_MEMBER_ID]
    peer.commit()
    _wait_for(client, topic, topic, 1)
    # of a producer that was fenced
    assert TransactionalPeer(client, topic).init() is E.NONE
    assert peer.commit_offsets(topic, {place: 2}) == [E.INVALID_PRODUCER_EPOCH]
    assert offsets_of(client, topic, topic, 0) == [1]


def test_offsets_of_transactions_are_loaded_again(tmp_path: Path) -> None:
    broker = running(tmp_path)
    with broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "t", partitions=3)
        client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)
        peers = [TransactionalPeer(client, str(number), TV2) for number in range(3)]
        for number, peer in enumerate(peers):
            assert peer.init() is E.NONE
            peer.send_offsets("g", {("t", number): 10 + number})
        peers[0].commit()
        peers[1].abort()
        _wait_for(client, "g", "t", 10)
    broker = running(tmp_path)
    with broker, BlockingConnection(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)
        assert offsets_of(client, "g", "t", 0, 1, 2, stable=True) == [10, -1, E.UNSTABLE_OFFSET_COMMIT]
        peers[2].connection = client
        peers[2].find()
        peers[2].commit()
        for _ in range(10_000):
            if offsets_of(client, "g", "t", 2, stable=True) == [12]:
                break
        assert offsets_of(client, "g", "t", 0, 1, 2, stable=True) == [10, -1, 12]


def test_pending_offsets_keep_their_group(kafka: Kafka) -> None:
    with BlockingConnection(kafka.bootstrap_servers) as client:
        create_topic(client, "t")
        client.call(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)
        peer = TransactionalPeer(client, "a", TV2, timeout_ms=900_000)
        assert peer.init() is E.NONE
        peer.send_offsets("g", {("t", 0): 7})
        kafka.advance(700_000)  # a look for what has expired, every ten minutes
        assert offsets_of(client, "g", "t", 0, stable=True) == [E.UNSTABLE_OFFSET_COMMIT]
        peer.commit()
        _wait_for(client, "g", "t", 7)


def test_a_producer_without_a_transaction_is_as_it_was(client, topic):
    answer = client.call(InitProducerIdRequest(None, 60_000), version=5)
    sent = {"producer_id": answer.producer_id, "producer_epoch": 0}
    assert produce(client, topic, batch_of(b"x", base_sequence=0, **sent)).error_code == 0
    assert produce(client, topic, batch_of(b"x", base_sequence=0, **sent)).base_offset == 0
    assert produce(client, topic, batch_of(b"y", base_sequence=7, **sent)).error_code == (
        E.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    end = EndTxnRequest("nobody", answer.producer_id, 0, True)
    assert client.call(end, version=5).error_code == E.INVALID_PRODUCER_ID_MAPPING
