"""ShareFetch and ShareAcknowledge through real bytes: records, waiting, sessions, errors, restarts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.broker import running
from kohort.client.io.blocking_connection import BlockingConnection
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.records.batch import ControlKind, iter_batches, iter_records, read_header
from tests.broker.peer import LONG_POLL_MS, batch_of, create_topic, fetch, produce, values_in
from tests.broker.share_peer import ShareMember, acquired_in, data_of, initialize_state, topic_id_of

E = ErrorCode


@pytest.fixture(scope="module", params=["memory", "disk"])
def broker(request: Any, tmp_path_factory: Any) -> Iterator[running]:
    directory = None if request.param == "memory" else tmp_path_factory.mktemp("data")
    with running(directory, durability=request.param) as started:
        yield started


@pytest.fixture
def client(broker: running) -> Iterator[BlockingConnection]:
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def topic(client: BlockingConnection, request: Any) -> str:
    name = f"t{abs(hash(request.node.name))}"
    create_topic(client, name, partitions=2)
    return name


@pytest.fixture
def member(broker: running, client: BlockingConnection, topic: str) -> Iterator[ShareMember]:
    """A member of a group whose share partition is loaded, because another member has a session already."""
    topic_id = topic_id_of(client, topic)
    assert initialize_state(client, topic, topic_id) == 0
    with BlockingConnection(broker.bootstrap_servers) as connection:
        first = ShareMember(connection, topic, "m0", topic_id)
        assert first.fetch().error_code == 0
        broker.call(until_loaded(broker, topic), 60)
        yield ShareMember(client, topic, "m1", topic_id)


async def until_loaded(broker: running, group_id: str) -> None:
    while any(led.core is None for led in broker.server.broker.shares.of_group(group_id)):
        await asyncio.sleep(0.001)


@pytest.fixture
def other(broker: running, member: ShareMember) -> Iterator[ShareMember]:
    with BlockingConnection(broker.bootstrap_servers) as connection:
        yield ShareMember(connection, member.group_id, "m2", member.topic_id)


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_acquired_as_the_log_has_them_and_acknowledged(client, topic, member, version):
    produce(client, topic, batch_of(b"a", b"b"))
    produce(client, topic, batch_of(b"c"))
    answer = member.fetch(version=version)
    assert acquired_in(answer) == [(0, 2, 1)]
    assert values_in(data_of(answer)) == [b"a", b"b", b"c"]
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert member.acknowledge((0, 2, 1), version=version) == 0
    assert member.acquire(version=version) == []


def test_acknowledgements_come_with_the_next_fetch(client, topic, member):
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    assert member.acquire() == [(0, 2, 1)]
    answer = member.fetch((0, 0, 1), (1, 2, 2, 3), max_wait_ms=LONG_POLL_MS)
    assert acquired_in(answer) == [(1, 1, 2)]  # released, and acquired again at once
    assert data_of(answer).acknowledge_error_code == 0
    answer = member.fetch((1, 1, 1), (2, 2, 1))
    assert (
        data_of(answer).acknowledge_error_code == E.INVALID_RECORD_STATE
    )  # 2 was rejected; so 1 is not taken
    assert member.acknowledge((1, 1, 1)) == 0


def test_only_the_batches_that_hold_what_was_acquired_are_sent(client, topic, member):
    for value in (b"a", b"b", b"c"):
        produce(client, topic, batch_of(value))
    answer = member.fetch(max_records=1)
    assert acquired_in(answer) == [(0, 0, 1)]
    assert values_in(data_of(answer)) == [b"a"]
    answer = member.fetch(max_records=2)
    assert values_in(data_of(answer)) == [b"b", b"c"]


def test_record_limit_never_gives_more_than_was_asked_for(client, topic, member):
    produce(client, topic, batch_of(b"a", b"b", b"c", b"d"))
    assert member.acquire(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert member.acquire(max_records=3, share_acquire_mode=1) == [(3, 3, 1)]
    assert member.acquire(max_records=3) == []


def test_two_members_never_have_the_same_record(client, topic, member, other):
    produce(client, topic, batch_of(b"a", b"b"))
    assert member.acquire() == [(0, 1, 1)]
    assert other.acquire() == []
    assert other.acknowledge((0, 1, 1)) == E.INVALID_RECORD_STATE
    assert member.acknowledge((0, 0, 2)) == 0
    assert other.acquire() == [(0, 0, 2)]


@pytest.mark.parametrize("what", ["data", "release", "close"])
def test_a_fetch_that_waits_wakes_when_records_are_available(client, topic, member, other, what):
    if what != "data":
        produce(client, topic, batch_of(b"a"))
        assert member.acquire() == [(0, 0, 1)]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(other.acquire(max_wait_ms=LONG_POLL_MS)))
    thread.start()
    if what == "data":
        produce(client, topic, batch_of(b"a"))
    elif what == "release":
        assert member.acknowledge((0, 0, 2)) == 0
    else:
        assert member.fetch(epoch=-1).error_code == 0
    thread.join(60)
    assert found == [[(0, 0, 1 if what == "data" else 2)]]


def test_a_lost_connection_releases_what_its_member_holds(client, topic, member, other):
    produce(client, topic, batch_of(b"a"))
    assert other.acquire() == [(0, 0, 1)]
    assert member.acquire() == []
    other.client.close()
    assert member.acquire(max_wait_ms=LONG_POLL_MS) == [(0, 0, 2)]


def test_a_fetch_that_finds_nothing_is_answered_after_its_time(member):
    answer = member.fetch(max_wait_ms=10)
    assert (answer.error_code, data_of(answer).records or b"") == (0, b"")
    answer = member.fetch(max_wait_ms=10)
    assert answer.responses == []  # no news


def test_epochs_of_a_session(member):
    assert member.fetch(epoch=1).error_code == E.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge((0, 0, 1), epoch=1) == E.SHARE_SESSION_NOT_FOUND
    assert member.fetch((0, 0, 1), epoch=0).error_code == E.INVALID_REQUEST
    assert member.fetch(epoch=0).error_code == 0
    assert member.fetch(epoch=2).error_code == E.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge((0, 0, 1), epoch=0) == E.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge((0, 0, 1), epoch=3) == E.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(epoch=1).error_code == 0
    assert member.fetch(epoch=0).error_code == 0  # a new session
    assert member.fetch(epoch=-1).error_code == 0
    assert member.fetch(epoch=-1).error_code == E.SHARE_SESSION_NOT_FOUND


def test_group_and_member_ids_are_checked(member):
    member.group_id = None
    assert member.fetch(epoch=0).error_code == E.INVALID_REQUEST
    member.group_id = "g"
    for wrong in (None, "", "m" * 37):
        member.member_id = wrong
        assert member.fetch(epoch=0).error_code == E.INVALID_REQUEST
        assert member.acknowledge((0, 0, 1), epoch=1) == E.INVALID_REQUEST


@pytest.mark.parametrize(
    "acks",
    [
        [(1, 0, 1)],  # first > last
        [(0, 1, 1), (1, 2, 1)],  # overlap
        [(0, 0)],  # no types
        [(0, 2, 1, 1)],  # wrong count
        [(0, 0, 5)],  # unknown
        [(0, 0, -1)],
        [(0, 0, 4)],  # renew, and the request does not say so
        [(0, 9, 1)],  # beyond what was acquired
    ],
)
def test_acknowledgements_that_make_no_sense(client, topic, member, acks):
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    assert member.acquire() == [(0, 2, 1)]
    assert member.acknowledge(*acks) == E.INVALID_REQUEST
    assert member.acknowledge((0, 2, 1)) == 0


def test_version_1_cannot_renew(client, topic, member):
    produce(client, topic, batch_of(b"a"))
    assert member.acquire() == [(0, 0, 1)]
    assert member.acknowledge((0, 0, 4), version=1) == E.INVALID_REQUEST


def test_a_renewing_fetch_fetches_nothing(client, topic, member):
    produce(client, topic, batch_of(b"a"))
    assert member.acquire() == [(0, 0, 1)]
    produce(client, topic, batch_of(b"b"))
    assert member.fetch((0, 0, 4), epoch=1, is_renew_ack=True).error_code == E.INVALID_REQUEST
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    answer = member.fetch((0, 0, 4), is_renew_ack=True, **nothing)
    assert (data_of(answer).acknowledge_error_code, data_of(answer).acquired_records) == (0, [])
    assert member.acquire() == [(1, 1, 1)]


def test_unknown_topics_and_partitions(client, topic, member):
    answer = member.fetch(partitions=(7,))
    assert data_of(answer).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert member.acknowledge((0, 0, 1), partition=7) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert member.acknowledge((0, 0, 1), partition=1) == E.UNKNOWN_TOPIC_OR_PARTITION  # it was never fetched
    assert member.acknowledge((0, 0, 1), topic_id=b"x" * 16) == E.UNKNOWN_TOPIC_ID
    member.topic_id = b"x" * 16
    assert data_of(member.fetch(epoch=0)).error_code == E.UNKNOWN_TOPIC_ID


def test_a_partition_without_state_cannot_be_fetched(client, topic, member):
    assert data_of(member.fetch(partitions=(1,))).error_code == E.UNKNOWN_SERVER_ERROR


def test_a_deleted_topic_ends_a_fetch_that_waits(client, topic, member, other):
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(other.fetch(max_wait_ms=LONG_POLL_MS)))
    thread.start()
    client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), version=5)
    thread.join(60)
    assert data_of(found[0]).error_code in (E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID)


def test_records_below_the_start_of_the_log_are_passed_over(client, topic, member):
    produce(client, topic, batch_of(b"a", b"b"))
    produce(client, topic, batch_of(b"c"))
    part = DeleteRecordsPartition(0, 2)
    client.call(DeleteRecordsRequest([DeleteRecordsTopic(topic, [part])], 1000), version=1)
    assert member.acquire() == [(2, 2, 1)]


def test_altered_offsets_fence_the_leader_and_load_it_anew(client, topic, member):
    produce(client, topic, batch_of(b"a", b"b"))
    assert member.acquire() == [(0, 1, 1)]
    assert initialize_state(client, topic, member.topic_id, start_offset=1, state_epoch=5) == 0
    assert member.acknowledge((0, 1, 1)) == E.NOT_LEADER_OR_FOLLOWER
    assert member.acquire() == [(1, 1, 1)]
    assert initialize_state(client, topic, member.topic_id, state_epoch=4) == E.FENCED_STATE_EPOCH


def test_locks_expire(broker, client, topic, member, other):
    produce(client, topic, batch_of(b"a"))
    assert member.acquire() == [(0, 0, 1)]

    async def later() -> None:
        broker.server.broker.clock.shift_ms += 30_000
        broker.server.broker.shares.fire_due()

    broker.call(later())
    assert member.acknowledge((0, 0, 1)) == E.INVALID_RECORD_STATE
    assert other.acquire() == [(0, 0, 2)]


def test_sessions_are_limited():
    with (
        running(group_share_max_share_sessions=1, group_share_max_size=1) as broker,
        BlockingConnection(broker.bootstrap_servers) as one,
        BlockingConnection(broker.bootstrap_servers) as two,
    ):
        create_topic(one, "t")
        topic_id = topic_id_of(one, "t")
        initialize_state(one, "g", topic_id)
        assert ShareMember(one, "g", "m1", topic_id).fetch().error_code == 0
        answer = ShareMember(two, "g", "m2", topic_id).fetch(max_wait_ms=5)
        assert answer.error_code == E.SHARE_SESSION_LIMIT_REACHED


def test_what_was_answered_survives_a_restart(tmp_path):
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "t")
        topic_id = topic_id_of(client, "t")
        initialize_state(client, "g", topic_id)
        produce(client, "t", batch_of(b"a", b"b", b"c", b"d"))
        member = ShareMember(client, "g", "m1", topic_id)
        assert member.acquire(max_wait_ms=LONG_POLL_MS) == [(0, 3, 1)]
        assert member.acknowledge((1, 1, 1), (2, 2, 2)) == 0
    with running(tmp_path) as broker, BlockingConnection(broker.bootstrap_servers) as client:
        member = ShareMember(client, "g", "m1", topic_id)
        # The lost connection has released what was not acknowledged, and a release keeps the count.
        assert member.acquire(max_wait_ms=LONG_POLL_MS) == [(0, 0, 2), (2, 3, 2)]


def test_records_that_are_given_up_go_to_the_dead_letter_topic():
    with running() as broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "jobs")
        topic_id = topic_id_of(client, "jobs")
        initialize_state(client, "g", topic_id)
        set_group(client, "g", {"share.dlq.topic": "jobs.dlq", "share.delivery.count.limit": "2"})
        produce(client, "jobs", batch_of(b"a", b"b", b"c"))
        member = ShareMember(client, "g", "m1", topic_id)
        assert member.acquire(max_wait_ms=LONG_POLL_MS) == [(0, 2, 1)]
        assert member.acknowledge((0, 2, 3, 2, 1)) == 0  # reject, release, accept
        assert member.acquire() == [(1, 1, 2)]
        assert member.acknowledge((1, 1, 2)) == 0  # released at the limit
        assert member.acquire() == []
        data = fetch(client, "jobs.dlq")
        view = memoryview(data.records)
        records = [r for at, header in iter_batches(view) for r in iter_records(view[at : at + header.size])]
    assert [(r.key, r.value) for r in records] == [(b"k", b"a"), (b"k", b"b")]
    told = [{name.removeprefix("__kohort.errors."): value for name, value in r.headers} for r in records]
    assert [(t["offset"], t["delivery.count"], t["reason"]) for t in told] == [
        (b"0", b"1", b"rejected"),
        (b"1", b"2", b"delivery limit"),
    ]
    assert (told[0]["topic"], told[0]["partition"], told[0]["group"], told[0]["member"]) == (
        b"jobs",
        b"0",
        b"g",
        b"m1",
    )


def set_group(client: BlockingConnection, group_id: str, values: dict[str, str]) -> None:
    configs = [AlterableConfig(name, 0, value) for name, value in values.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(32, group_id, configs)])
    assert client.call(request, version=1).responses[0].error_code == 0


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_records_of_aborted_transactions(isolation):
    with running() as broker, BlockingConnection(broker.bootstrap_servers) as client:
        create_topic(client, "t")
        topic_id = topic_id_of(client, "t")
        initialize_state(client, "g", topic_id)
        set_group(client, "g", {"share.isolation.level": isolation})
        log_partition = broker.server.broker.store.topics["t"].partitions[0]

        async def write(kind: ControlKind) -> None:
            batch = bytearray(
                batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
            )
            log_partition.append(memoryview(batch), read_header(batch), 0)
            log_partition.append_marker(
                kind, producer_id=7, producer_epoch=0, coordinator_epoch=0, transaction_version=0, now_ms=0
            )

        for kind in (ControlKind.ABORT, ControlKind.COMMIT):
            broker.call(write(kind))
        got = ShareMember(client, "g", "m1", topic_id).acquire(max_wait_ms=LONG_POLL_MS)
    assert got == ([(1, 3, 1)] if isolation == "read_committed" else [(0, 3, 1)])
