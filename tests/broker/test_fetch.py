"""Fetch: limits, long poll, sessions, epochs, topics that go away."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.broker import running
from kohort.broker.apis.fetch import _Fetch
from kohort.broker.apis.table import TABLE
from kohort.broker.call import Call
from kohort.broker.fetch_sessions import FetchSessions
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.security.acls import ANONYMOUS
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.records.batch import iter_batches
from tests.broker.handlers import Node
from tests.broker.peer import LONG_POLL_MS, batch_of, create_topic, fetch, fetch_request, produce, values_in


@pytest.fixture(scope="module", params=["memory", "disk"])
def broker(request, tmp_path_factory):
    directory = None if request.param == "memory" else tmp_path_factory.mktemp("data")
    with running(directory, durability=request.param) as started:
        yield started


@pytest.fixture
def client(broker):
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def topic(client, request):
    name = f"t{abs(hash(request.node.name))}"
    create_topic(client, name, partitions=3)
    return name


def topic_id_of(client: BlockingConnection, name: str) -> bytes:
    return next(t.topic_id for t in client.call(MetadataRequest(None), version=12).topics if t.name == name)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_what_was_written(client, topic, version):
    produce(client, topic, batch_of(b"a", b"b"))
    request = fetch_request(topic, 0)
    if version >= 13:
        request.topics[0].topic_id = topic_id_of(client, topic)
    response = client.call(request, version=version)
    data = response.responses[0].partitions[0]
    assert (data.error_code, data.high_watermark, values_in(data)) == (0, 2, [b"a", b"b"])


def test_from_the_middle_of_a_batch_the_whole_batch_comes(client, topic):
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    assert values_in(fetch(client, topic, 2)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [-1, 3, 99])
def test_offsets_outside_the_log(client, topic, offset):
    produce(client, topic, batch_of(b"a", b"b"))
    data = fetch(client, topic, offset)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_in(data) == []


def test_a_batch_larger_than_every_limit_still_comes(client, topic):
    produce(client, topic, batch_of(b"x" * 50_000))
    data = fetch(client, topic, 0, max_bytes=10, partition_max_bytes=10)
    assert values_in(data) == [b"x" * 50_000]


def test_only_the_first_partition_with_data_may_exceed_the_limits(client, topic):
    for partition in range(3):
        produce(client, topic, batch_of(b"x" * 5000), partition)
    request = fetch_request(topic, 0, max_bytes=100)
    request.topics[0].partitions = [FetchPartition(i, partition_max_bytes=100) for i in range(3)]
    parts = client.call(request, version=11).responses[0].partitions
    assert [len(values_in(part)) for part in parts] == [1, 0, 0]


def test_a_partition_whose_first_batch_does_not_fit_comes_empty_and_not_with_a_piece_of_it(client, topic):
    """The Java consumer fails for good on records that hold no whole batch."""
    for partition in range(3):
        produce(client, topic, batch_of(b"x" * 1000), partition)
    request = fetch_request(topic, 0, max_bytes=1500)
    request.topics[0].partitions = [FetchPartition(i, partition_max_bytes=1500) for i in range(3)]
    parts = client.call(request, version=11).responses[0].partitions
    assert [len(values_in(part)) for part in parts] == [1, 0, 0]
    assert [len(part.records) for part in parts[1:]] == [0, 0]


def test_max_bytes_may_cut_a_batch_but_never_the_first(client, topic):
    for number in range(10):
        produce(client, topic, batch_of(b"%d" % number * 1000))
    data = fetch(client, topic, 0, partition_max_bytes=2500)
    assert values_in(data) == [b"0" * 1000, b"1" * 1000]
    assert len(data.records) == 2500


def test_reading_on_from_where_each_answer_ended_gives_every_record_once(client, topic):
    expected = [b"%d" % number * (number % 700 + 1) for number in range(200)]
    for value in expected:
        produce(client, topic, batch_of(value))
    found, offset = [], 0
    while offset < 200:
        data = fetch(client, topic, offset, partition_max_bytes=3000)
        found += values_in(data)
        offset = max(header.last_offset + 1 for _, header in iter_batches(memoryview(data.records)))
    assert found == expected


@pytest.mark.parametrize("version", [11, 17])
@pytest.mark.parametrize("batch_bytes", [10_000, 60_000, 700_000])
def test_large_answers_of_several_partitions(client, topic, version, batch_bytes):
    """Copied or by sendfile: it is what was written."""
    values = {p: [b"%d-%d " % (p, n) * (batch_bytes // 4) for n in range(9)] for p in range(3)}
    for partition, written in values.items():
        for value in written:
            produce(client, topic, batch_of(value), partition)
    found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    while any(len(found[p]) < 9 for p in found):
        request = fetch_request(topic, 0, max_bytes=50 << 20)
        request.topics[0].topic_id = topic_id_of(client, topic)
        parts = [FetchPartition(p, fetch_offset=len(found[p]), partition_max_bytes=1 << 20) for p in found]
        request.topics[0].partitions = parts
        for data in client.call(request, version=version).responses[0].partitions:
            found[data.partition_index] += values_in(data)
    assert found == values


def test_a_waiting_fetch_is_answered_when_a_record_comes(broker, client, topic):
    client.send(fetch_request(topic, 0, max_wait_ms=LONG_POLL_MS), version=11)
    with BlockingConnection(broker.bootstrap_servers) as other:
        produce(other, topic, batch_of(b"at last"))
    assert values_in(client.receive().responses[0].partitions[0]) == [b"at last"]


def test_min_bytes_are_waited_for(broker, client, topic):
    client.send(fetch_request(topic, 0, max_wait_ms=LONG_POLL_MS, min_bytes=3000), version=11)
    with BlockingConnection(broker.bootstrap_servers) as other:
        for _ in range(4):
            produce(other, topic, batch_of(b"x" * 900))
    assert len(values_in(client.receive().responses[0].partitions[0])) >= 3


@pytest.mark.parametrize("unknown", ["no-such-topic", None])
def test_a_partition_that_is_not_here_does_not_keep_the_others_from_waiting(broker, client, topic, unknown):
    request = fetch_request(topic, 0, max_wait_ms=LONG_POLL_MS)
    request.topics.insert(0, fetch_request(unknown or topic, 0, partition=0 if unknown else 99).topics[0])
    client.send(request, version=11)
    with BlockingConnection(broker.bootstrap_servers) as other:
        produce(other, topic, batch_of(b"at last"))
    answer = client.receive()
    parts = {(t.topic, part.partition_index): part for t in answer.responses for part in t.partitions}
    assert values_in(parts.pop((topic, 0))) == [b"at last"]
    assert [part.error_code for part in parts.values()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_fetch_of_nothing_that_is_here_is_answered_at_once(client):
    data = fetch(client, "no-such-topic", 0, max_wait_ms=600_000)
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert data.aborted_transactions == []


def test_max_wait_ends_a_fetch_that_finds_nothing(client, topic):
    data = fetch(client, topic, 0, max_wait_ms=50)
    assert (data.error_code, values_in(data), data.high_watermark) == (0, [], 0)


def test_many_waiting_fetches_are_all_answered(broker, topic):
    readers = [BlockingConnection(broker.bootstrap_servers) for _ in range(20)]
    for reader in readers:
        reader.send(fetch_request(topic, 0, max_wait_ms=LONG_POLL_MS), version=11)
    with BlockingConnection(broker.bootstrap_servers) as other:
        produce(other, topic, batch_of(b"all"))
    for reader in readers:
        assert values_in(reader.receive().responses[0].partitions[0]) == [b"all"]
        reader.close()


def test_a_topic_deleted_while_it_is_read(broker, client, topic):
    topic_id = topic_id_of(client, topic)
    by_name, by_id = (
        fetch_request(topic, 0, max_wait_ms=LONG_POLL_MS),
        fetch_request(topic, 0, max_wait_ms=LONG_POLL_MS),
    )
    by_id.topics[0].topic_id = topic_id
    with (
        BlockingConnection(broker.bootstrap_servers) as second,
        BlockingConnection(broker.bootstrap_servers) as admin,
    ):
        client.send(by_name, version=11)
        second.send(by_id, version=13)
        admin.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), version=5)
        assert client.receive().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert second.receive().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        create_topic(admin, topic)
        assert produce(admin, topic, batch_of(b"new")).base_offset == 0
        assert topic_id_of(admin, topic) != topic_id


def test_a_client_with_older_or_newer_metadata_is_told(client, topic):
    for epoch, code in ((99, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE), (-1, ErrorCode.NONE)):
        request = fetch_request(topic, 0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert client.call(request, version=11).responses[0].partitions[0].error_code == code


# Sessions (KIP-227)


def session_request(topic: str, offsets: dict[int, int], session_id: int, epoch: int, **more) -> FetchRequest:
    parts = [FetchPartition(p, fetch_offset=o, partition_max_bytes=1 << 20) for p, o in offsets.items()]
    topics = [FetchTopic(topic, partitions=parts)] if parts else []
    return FetchRequest(
        max_wait_ms=more.pop("max_wait_ms", 0),
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        **more,
    )


def test_an_incremental_fetch_names_only_what_changed(client, topic):
    first = client.call(session_request(topic, {0: 0, 1: 0, 2: 0}, 0, 0), version=11)
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 3
    nothing = client.call(session_request(topic, {}, first.session_id, 1), version=11)
    assert nothing.responses == []
    produce(client, topic, batch_of(b"x"), partition=1)
    news = client.call(session_request(topic, {}, first.session_id, 2), version=11)
    assert [part.partition_index for part in news.responses[0].partitions] == [1]
    assert values_in(news.responses[0].partitions[0]) == [b"x"]
    moved = client.call(session_request(topic, {1: 1}, first.session_id, 3), version=11)
    assert moved.responses == []


def test_partitions_join_and_leave_a_session(client, topic):
    first = client.call(session_request(topic, {0: 0}, 0, 0), version=11)
    for partition in (0, 1):
        produce(client, topic, batch_of(b"x"), partition=partition)
    request = session_request(topic, {1: 0}, first.session_id, 1)
    request.forgotten_topics_data = [ForgottenTopic(topic, partitions=[0])]
    news = client.call(request, version=11)
    assert [part.partition_index for part in news.responses[0].partitions] == [1]


def test_a_session_that_is_not_known_or_out_of_step(client, topic):
    lost = client.call(session_request(topic, {}, 12345, 1), version=11)
    assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    first = client.call(session_request(topic, {0: 0}, 0, 0), version=11)
    wrong = client.call(session_request(topic, {}, first.session_id, 7), version=11)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_error_is_told_in_every_incremental_answer_until_it_is_over(client, topic):
    first = client.call(session_request(topic, {0: 50}, 0, 0), version=11)
    assert first.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    for epoch in (1, 2):
        again = client.call(session_request(topic, {}, first.session_id, epoch), version=11)
        assert again.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    healed = client.call(session_request(topic, {0: 0}, first.session_id, 3), version=11)
    assert healed.responses[0].partitions[0].error_code == 0


def test_a_session_ends_by_epoch_minus_1(client, topic):
    first = client.call(session_request(topic, {0: 0}, 0, 0), version=11)
    ended = client.call(session_request(topic, {0: 0}, first.session_id, -1), version=11)
    assert (ended.error_code, ended.session_id) == (0, 0)
    gone = client.call(session_request(topic, {}, first.session_id, 1), version=11)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_is_bound_to_names_or_to_ids(client, topic):
    first = client.call(session_request(topic, {0: 0}, 0, 0), version=11)
    other = client.call(session_request(topic, {}, first.session_id, 1), version=13)
    assert other.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_when_all_slots_are_used_a_full_fetch_without_a_session_is_answered():
    ids = iter(range(1, 99))
    sessions = FetchSessions(2, lambda: next(ids))
    request = session_request("t", {0: 0}, 0, 0)
    assert [sessions.plan(request, 11, 0).session_id for _ in range(3)] == [1, 2, 0]
    # Two minutes later the one that was longest unused gives way.
    assert sessions.plan(request, 11, 120_000).session_id == 3
    assert (
        sessions.plan(session_request("t", {}, 1, 1), 11, 120_000).error
        == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_a_long_poll_in_a_session_hears_of_any_of_its_partitions(broker, client, topic):
    first = client.call(session_request(topic, {0: 0, 1: 0, 2: 0}, 0, 0), version=11)
    client.send(session_request(topic, {}, first.session_id, 1, max_wait_ms=LONG_POLL_MS), version=11)
    done = threading.Event()
    with BlockingConnection(broker.bootstrap_servers) as other:
        produce(other, topic, batch_of(b"x"), partition=2)
        done.set()
    assert done.is_set()
    assert [p.partition_index for p in client.receive().responses[0].partitions] == [2]


def fetches_of(call: Call) -> int:
    """A broker of other tests may have fetches of its own."""
    return sum(isinstance(found, _Fetch) and found._call is call for found in gc.get_objects())


def test_an_answered_long_poll_leaves_no_garbage():
    """A circle of references would be found by the garbage collector only, after thousands of polls."""
    with Node() as node:
        node.create("t", 2)
        connection: Any = SimpleNamespace(principal=ANONYMOUS, loop=node.loop, answered=lambda call: None)
        codec = TABLE[1].codec(11)
        parts = [FetchPartition(p, partition_max_bytes=100) for p in range(2)]
        asked = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, max_bytes=100, topics=[FetchTopic("t", partitions=parts)]
        )
        gc.collect()
        gc.disable()
        try:
            call = Call(connection, codec, 1, None, asked)
            assert TABLE[1].handler(node.broker, call) is None
            assert fetches_of(call) == 1
            node.append("t", 1)
            assert call.chunks
            assert fetches_of(call) == 0
        finally:
            gc.enable()
