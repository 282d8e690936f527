"""What one broker cannot show, through the real consumer: several brokers, leaders that move, logs that are cut back,
near replicas, transactions, topic ids, fetch sessions."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kohort import (
    AsyncConsumer,
    Consumer,
    NoOffsetForPartition,
    OffsetAndMetadata,
    OffsetOutOfRange,
    TopicPartition,
)
from kohort.client.errors import LogTruncation
from kohort.wire.messages.fetch import FetchRequest, FetchResponse
from kohort.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.client.brokers import Log, LogCluster, log_cluster
from tests.client.consuming import PATIENCE_S, QUICK, poll_until, quick, read
from tests.client.scripted import Received, all_versions
from tests.clients.process import eventually

T0, T1, T2 = (TopicPartition("t", n) for n in range(3))
FETCH, EPOCHS = FetchRequest.API_KEY, OffsetForLeaderEpochRequest.API_KEY


def reader(cluster: LogCluster, *partitions: TopicPartition, **settings: object) -> Consumer:
    consumer = quick(cluster.bootstrap_servers, None, **settings)
    consumer.assign(partitions or [T0])
    return consumer


# --- several brokers, leaders that move ------------------------------------------------------------------------


def test_each_partition_is_read_from_its_leader() -> None:
    logs = {T0: Log([b"a"]), T1: Log([b"b"]), T2: Log([b"c"])}
    with log_cluster(logs, nodes=3) as cluster:
        for index, leader in enumerate((1, 2, 3)):
            cluster.topics["t"][index] = (leader, 0)
        with reader(cluster, T0, T1, T2) as consumer:
            assert sorted(read(consumer, 3)) == [b"a", b"b", b"c"]
        for node in (1, 2, 3):
            asked = {
                p.partition for fetch in cluster.fetches(node) for t in fetch.topics for p in t.partitions
            }
            assert asked == {node - 1}


@pytest.mark.parametrize("tells_leader", [True, False], ids=["KIP-951", "metadata"])
def test_a_leader_that_moves_is_followed_without_loss(tells_leader: bool) -> None:
    log = Log([b"a", b"b"])
    with log_cluster({T0: log}, nodes=2) as cluster, reader(cluster) as consumer:
        cluster.tells_leader = tells_leader
        assert read(consumer, 2) == [b"a", b"b"]
        cluster.move_leader("t", 0, to=2)
        log.append([b"c"], epoch=1)
        assert read(consumer, 1) == [b"c"]
        cluster.move_leader("t", 0, to=1)
        log.append([b"d"], epoch=2)
        assert read(consumer, 1) == [b"d"]


def test_a_leader_that_dies_is_replaced_by_another() -> None:
    log = Log([b"a"])
    with log_cluster({T0: log}, nodes=2) as cluster, reader(cluster) as consumer:
        assert read(consumer, 1) == [b"a"]
        cluster[1].stop()
        cluster.move_leader("t", 0, to=2)
        log.append([b"b"], epoch=1)
        assert read(consumer, 1) == [b"b"]


def test_a_partition_without_a_leader_is_waited_for_and_the_others_go_on() -> None:
    logs = {T0: Log([b"a"]), T1: Log([b"b"])}
    with log_cluster(logs, nodes=2) as cluster, reader(cluster, T0, T1) as consumer:
        cluster.move_leader("t", 1, to=-1)
        assert read(consumer, 1) == [b"a"]
        cluster.move_leader("t", 1, to=2)
        assert read(consumer, 1) == [b"b"]


def test_a_broker_that_lags_behind_does_not_lead_back_to_an_old_leader() -> None:
    log = Log([b"a"], epoch=5)
    with log_cluster({T0: log}, nodes=2, epoch=5) as cluster, reader(cluster) as consumer:
        assert read(consumer, 1) == [b"a"]
        cluster.move_leader("t", 0, to=2)
        log.append([b"b"], epoch=6)
        assert read(consumer, 1) == [b"b"]
        fresh = list(cluster.topics["t"])
        before = len(cluster.fetches(1))
        cluster.topics["t"][0] = (1, 5)  # what a broker says that has not heard of it yet
        consumer.partitions_for("t", timeout=PATIENCE_S)
        cluster.topics["t"] = fresh
        log.append([b"c"], epoch=6)
        assert read(consumer, 1) == [b"c"]
        assert len(cluster.fetches(1)) == before


async def test_a_leader_that_moves_is_followed_with_asyncio_too() -> None:
    log = Log([b"a"])
    with log_cluster({T0: log}, nodes=2) as cluster:
        async with AsyncConsumer({**QUICK, "bootstrap.servers": cluster.bootstrap_servers}) as consumer:
            await consumer.assign([T0])
            seen: list[bytes] = []

            async def read_until(count: int) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while len(seen) < count:
                        seen.extend([r.value for some in (await consumer.poll(0.1)).values() for r in some])

            await read_until(1)
            cluster.move_leader("t", 0, to=2)
            log.append([b"b"], epoch=1)
            await read_until(2)
            assert seen == [b"a", b"b"]


# --- KIP-320: logs that are cut back -----------------------------------------------------------------------------


def truncated(cluster: LogCluster, log: Log) -> None:
    """Node 2 takes over in epoch 1 without the last record, and writes another one in its place."""
    with cluster.lock:
        log.truncate(2)
        log.append([b"C"], epoch=1)
        cluster.move_leader("t", 0, to=2)


def test_a_log_that_was_cut_back_is_read_from_where_it_diverged() -> None:
    log = Log([b"a", b"b", b"c"], records_per_batch=1)
    with log_cluster({T0: log}, nodes=2) as cluster, reader(cluster) as consumer:
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        truncated(cluster, log)
        assert read(consumer, 1) == [b"C"]  # not skipped, though its offset is that of a record that was read
        asked = cluster[2].requests_of(EPOCHS)[0].message.topics[0].partitions[0]
        assert (asked.leader_epoch, asked.current_leader_epoch) == (0, 1)


def test_without_a_reset_policy_a_log_that_was_cut_back_is_an_error_that_says_where() -> None:
    log = Log([b"a", b"b", b"c"], records_per_batch=1)
    with log_cluster({T0: log}, nodes=2) as cluster, reader(cluster, auto_offset_reset="none") as consumer:
        consumer.seek(T0, 0)
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        truncated(cluster, log)
        with pytest.raises(LogTruncation) as raised:
            poll_until(consumer, lambda: False, "it is told")
        assert raised.value.divergent[T0].offset == 2
        consumer.seek(T0, raised.value.divergent[T0])
        assert read(consumer, 1) == [b"C"]


def test_a_seek_with_a_leader_epoch_is_validated_before_anything_is_read() -> None:
    log = Log([b"a", b"b", b"c"], records_per_batch=1)
    log.truncate(2)
    log.append([b"C"], epoch=3)
    with log_cluster({T0: log}, epoch=3) as cluster, reader(cluster) as consumer:
        consumer.seek(T0, OffsetAndMetadata(3, leader_epoch=0))  # of a log that was longer
        assert read(consumer, 1) == [b"C"]


def test_a_move_without_truncation_costs_one_question_and_nothing_else() -> None:
    log = Log([b"a", b"b"])
    with log_cluster({T0: log}, nodes=2) as cluster, reader(cluster) as consumer:
        assert read(consumer, 2) == [b"a", b"b"]
        cluster.move_leader("t", 0, to=2)
        log.append([b"c"], epoch=1)
        assert read(consumer, 1) == [b"c"]
        assert consumer.position(T0) == 3


def test_an_offset_that_is_gone_follows_the_reset_policy() -> None:
    log = Log([b"a", b"b", b"c", b"d"], records_per_batch=1)
    log.start = 2
    log.batches = log.batches[2:]
    with log_cluster({T0: log}) as cluster:
        with reader(cluster) as consumer:
            consumer.seek(T0, 0)
            assert read(consumer, 2) == [b"c", b"d"]
        with reader(cluster, auto_offset_reset="none") as consumer:
            consumer.seek(T0, 0)
            with pytest.raises(OffsetOutOfRange, match="t-0") as raised:
                poll_until(consumer, lambda: False, "it is told")
            assert raised.value.partitions == {T0: 0}


# --- KIP-392: near replicas ----------------------------------------------------------------------------------------


def test_a_client_with_a_rack_reads_from_the_replica_it_is_sent_to() -> None:
    log = Log([b"a", b"b"])
    with log_cluster({T0: log}, nodes=2) as cluster:
        cluster.preferred[T0] = 2
        with reader(cluster, client_rack="near-2") as consumer:
            assert read(consumer, 2) == [b"a", b"b"]
            log.append([b"c"])
            assert read(consumer, 1) == [b"c"]
        assert {fetch.rack_id for fetch in cluster.fetches(1)} == {"near-2"}
        assert len(cluster.fetches(2)) >= 2


def test_a_client_without_a_rack_stays_with_the_leader() -> None:
    with log_cluster({T0: Log([b"a"])}, nodes=2) as cluster:
        cluster.preferred[T0] = 2
        with reader(cluster) as consumer:
            assert read(consumer, 1) == [b"a"]
        assert cluster.fetches(2) == []


def test_a_replica_that_dies_is_left_for_the_leader() -> None:
    log = Log([b"a"])
    with log_cluster({T0: log}, nodes=2) as cluster:
        cluster.preferred[T0] = 2
        with reader(cluster, client_rack="near-2") as consumer:
            assert read(consumer, 1) == [b"a"]
            cluster[2].stop()
            del cluster.preferred[T0]
            log.append([b"b"])
            assert read(consumer, 1) == [b"b"]


# --- read_committed --------------------------------------------------------------------------------------------------


def transactions() -> Log:
    """Two producers, interleaved: 7 commits, 8 aborts, then 8 commits, then 9 is still open."""
    log = Log([b"plain"])  # 0
    log.append([b"7a", b"7b"], producer_id=7)  # 1, 2
    log.append([b"8a"], producer_id=8)  # 3
    log.end_transaction(7, commit=True)  # 4
    log.append([b"8b"], producer_id=8)  # 5
    log.end_transaction(8, commit=False)  # 6
    log.append([b"8c"], producer_id=8)  # 7
    log.end_transaction(8, commit=True)  # 8
    log.append([b"9a"], producer_id=9)  # 9: open
    log.aborted = [(8, 3)]
    log.last_stable_offset = 9
    return log


def test_read_committed_gives_nothing_that_was_aborted_or_is_open_and_no_markers() -> None:
    with (
        log_cluster({T0: transactions()}) as cluster,
        reader(cluster, isolation_level="read_committed") as consumer,
    ):
        assert read(consumer, 4) == [b"plain", b"7a", b"7b", b"8c"]
        more = poll_until(consumer, lambda: consumer.position(T0) == 9, "it is behind the last marker")
        assert more == []
        assert consumer.poll(0.1) == {}
        assert consumer.end_offsets(T0, timeout=PATIENCE_S) == {T0: 9}
        assert consumer.lag(timeout=PATIENCE_S) == {T0: 0}
        assert {fetch.isolation_level for fetch in cluster.fetches()} == {1}


def test_read_uncommitted_gives_everything_but_markers() -> None:
    with log_cluster({T0: transactions()}) as cluster, reader(cluster) as consumer:
        assert read(consumer, 7) == [b"plain", b"7a", b"7b", b"8a", b"8b", b"8c", b"9a"]
        assert consumer.position(T0) == 10
        assert consumer.end_offsets(T0, timeout=PATIENCE_S) == {T0: 10}


def test_a_log_that_ends_in_aborted_records_moves_the_position_past_them() -> None:
    log = Log([b"plain"])
    log.append([b"no", b"no"], producer_id=8)
    log.end_transaction(8, commit=False)
    log.aborted = [(8, 1)]
    with (
        log_cluster({T0: log}) as cluster,
        reader(cluster, isolation_level="read_committed") as consumer,
    ):
        assert read(consumer, 1) == [b"plain"]
        poll_until(consumer, lambda: consumer.position(T0) == 4, "the position is behind the marker")
        log.append([b"next"])
        assert read(consumer, 1) == [b"next"]


def test_an_open_transaction_is_read_once_it_is_committed() -> None:
    log = transactions()
    with (
        log_cluster({T0: log}) as cluster,
        reader(cluster, isolation_level="read_committed") as consumer,
    ):
        read(consumer, 4)
        log.end_transaction(9, commit=True)
        log.last_stable_offset = log.end
        assert read(consumer, 1) == [b"9a"]


def test_arrow_is_read_committed_too() -> None:
    with (
        log_cluster({T0: transactions()}) as cluster,
        reader(cluster, isolation_level="read_committed") as consumer,
    ):
        batch = consumer.poll_arrow(PATIENCE_S)
        assert batch is not None
        assert batch.column("value").to_pylist() == [b"plain", b"7a", b"7b", b"8c"]


# --- topic ids -------------------------------------------------------------------------------------------------------


def test_topics_are_asked_for_by_id_where_the_broker_can() -> None:
    with log_cluster({T0: Log([b"a"])}) as cluster, reader(cluster) as consumer:
        assert read(consumer, 1) == [b"a"]
        first = cluster[1].requests_of(FETCH)[0]
        assert first.version >= 13
        assert [t.topic_id for t in first.message.topics] == [cluster.topic_ids["t"]]


def test_a_topic_with_another_id_is_another_topic() -> None:
    logs = {T0: Log([b"a", b"b", b"c"])}
    with log_cluster(logs) as cluster, reader(cluster) as consumer:
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        with cluster.lock:
            cluster.logs[T0] = Log([b"x"])  # deleted and made again
            cluster.topic_ids["t"] = b"\x77" * 16
        assert read(consumer, 1) == [b"x"]


# --- KIP-227: fetch sessions -----------------------------------------------------------------------------------------


def test_a_session_names_a_partition_once_and_again_only_when_it_moved() -> None:
    logs = {T0: Log([b"a"]), T1: Log([b"b"]), T2: Log()}
    with log_cluster(logs) as cluster, reader(cluster, T0, T1, T2) as consumer:
        assert sorted(read(consumer, 2)) == [b"a", b"b"]
        logs[T2].append([b"c"])
        assert read(consumer, 1) == [b"c"]
        told = len(cluster.fetches()) + 1  # the next one may still tell of the last record
        poll_until(consumer, lambda: len(cluster.fetches()) >= max(5, told + 1), "it goes on fetching")
        fetches = cluster.fetches()
        assert fetches[0].session_epoch == 0
        assert [fetch.session_epoch for fetch in fetches[1:]] == list(range(1, len(fetches)))
        assert {fetch.session_id for fetch in fetches[1:]} == {101}
        assert fetches[-1].topics == []  # nothing moved
        consumer.close()
        eventually(lambda: cluster.fetches()[-1].session_epoch == -1, "the session is ended")


def test_a_partition_that_is_paused_or_dropped_is_forgotten_by_the_session() -> None:
    logs = {T0: Log([b"a"]), T1: Log([b"b"])}
    with log_cluster(logs) as cluster, reader(cluster, T0, T1) as consumer:
        read(consumer, 2)
        consumer.pause(T1)

        def forgotten() -> list[int]:
            return [i for f in cluster.fetches() for t in f.forgotten_topics_data for i in t.partitions]

        poll_until(consumer, lambda: forgotten() == [1], "the paused one is forgotten")
        logs[T1].append([b"while paused"])
        logs[T0].append([b"c"])
        assert read(consumer, 1) == [b"c"]
        consumer.resume(T1)
        assert read(consumer, 1) == [b"while paused"]


def test_a_session_that_the_broker_forgot_is_begun_anew_without_loss() -> None:
    log = Log([b"a"])
    with log_cluster({T0: log}) as cluster, reader(cluster) as consumer:
        assert read(consumer, 1) == [b"a"]
        cluster.forget_sessions()
        log.append([b"b"])
        assert read(consumer, 1) == [b"b"]  # by the fetch that was waiting
        log.append([b"c"])
        assert read(consumer, 1) == [b"c"]
        assert [f.session_epoch for f in cluster.fetches()].count(0) == 2


def test_a_broker_without_sessions_is_asked_in_full_every_time() -> None:
    log = Log([b"a"])
    with log_cluster({T0: log}, versions=all_versions(fetch=6)) as cluster, reader(cluster) as consumer:
        assert read(consumer, 1) == [b"a"]
        log.append([b"b"])
        assert read(consumer, 1) == [b"b"]
        assert all(fetch.topics for fetch in cluster.fetches())


# --- late answers ----------------------------------------------------------------------------------------------------


class Late:
    """A fetch that node 1 answers when it is let go."""

    def __init__(self, cluster: LogCluster) -> None:
        self.came, self.let_go = threading.Event(), threading.Event()
        self._cluster = cluster

    def __call__(self, request: Received) -> FetchResponse:
        self.came.set()
        self.let_go.wait(PATIENCE_S)
        return self._cluster.fetch(1, request)


def test_a_late_answer_for_a_position_that_a_seek_changed_is_dropped() -> None:
    log = Log([b"a", b"b", b"c"], records_per_batch=1)
    with log_cluster({T0: log}) as cluster, reader(cluster, fetch_max_wait_ms=200) as consumer:
        assert read(consumer, 3) == [b"a", b"b", b"c"]
        before = len(cluster.fetches())
        poll_until(consumer, lambda: len(cluster.fetches()) > before, "a fetch at the end is under way")
        consumer.seek(T0, 1)
        log.append([b"d"])  # answers the fetch that is under way
        assert read(consumer, 3) == [b"b", b"c", b"d"]


def test_a_seek_right_after_assign_needs_no_reset_policy() -> None:
    with (
        log_cluster({T0: Log([b"a", b"b"])}) as cluster,
        reader(cluster, auto_offset_reset="none") as consumer,
    ):
        consumer.seek(T0, 0)
        assert read(consumer, 2) == [b"a", b"b"]
        consumer.assign([T0, T1])  # and without one, it is told
        with pytest.raises(NoOffsetForPartition, match=r"no group\.id"):
            poll_until(consumer, lambda: False, "it is told")


def test_out_of_range_after_a_seek_is_ignored() -> None:
    log = Log([b"a", b"b"], records_per_batch=1)
    with log_cluster({T0: log}) as cluster, reader(cluster, auto_offset_reset="none") as consumer:
        consumer.seek(T0, 99)
        late = Late(cluster)
        cluster[1].script(FETCH, late)
        poll_until(consumer, late.came.is_set, "a fetch out of range is under way")
        consumer.seek(T0, 1)
        late.let_go.set()
        assert read(consumer, 1) == [b"b"]
