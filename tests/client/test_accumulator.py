"""The accumulator in virtual time: batches, lingering, memory, the sticky partition, merged batches."""

from __future__ import annotations

import dataclasses
import random
import threading

import pytest

from kohort.client.core.effects import Send
from kohort.client.errors import ClosedClient
from kohort.client.produce.accumulator import GROWTH, MERGED_BATCH_BYTES, MOST_GROWTH, NoRoom
from kohort.client.produce.batch import Batch, BatchMemberFailed, RecordHandle
from kohort.client.produce.fast_send import fast_send
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.produce import BatchIndexAndErrorMessage
from kohort.wire.records.batch import crc_is_good
from kohort.wire.records.compression import Buffer
from tests.client.producing import Core, cluster, numbers, outcome, parts, produced, values


def plain(**settings: object) -> Core:
    return Core(**{"enable_idempotence": False, **settings})  # type: ignore[arg-type]


def without_growth(**settings: object) -> Core:
    """A core whose topic has batches of batch.size at most, because a broker refused larger ones."""
    core = plain(**settings)
    core.sender._learn(core.now_ms)
    core.accumulator.topics["orders"].merge_limit = 0
    return core


def test_a_batch_is_ready_when_it_has_lingered() -> None:
    core = plain(linger_ms=10)
    core.send(b"a")
    assert core.tick(after_ms=9) == []
    assert core.sender.next_deadline_ms() == core.now_ms + 1
    core.send(b"b")
    (send,) = core.tick(after_ms=1)
    assert values(send) == [b"a", b"b"]


# --- full batches --------------------------------------------------------------------------------------------


def test_a_full_batch_does_not_linger_and_takes_more_records_until_the_sender_comes() -> None:
    core = plain(linger_ms=60_000, batch_size=1000, delivery_timeout_ms=200_000)
    core.send(b"x" * 400)
    core.send(b"x" * 400)
    assert core.tick() == []
    assert core.sender.next_deadline_ms() != 0
    woken = core.woken
    core.send(b"x" * 400)  # more than batch.size
    assert core.woken == woken + 1
    assert core.sender.next_deadline_ms() == 0
    core.send(b"x" * 400)
    assert core.woken == woken + 1
    (send,) = core.tick()
    assert len(values(send)) == 4
    core.send(b"x" * 400)
    assert core.tick() == []  # the next one lingers again
    assert core.accumulator.next_linger_ms() is not None


def test_a_single_record_larger_than_batch_size_does_not_linger() -> None:
    core = plain(linger_ms=60_000, batch_size=1000, delivery_timeout_ms=200_000)
    core.send(b"x" * 5000)
    assert core.sender.next_deadline_ms() == 0
    assert len(core.tick()) == 1


def test_records_that_come_faster_than_the_sender_looks_make_few_large_batches() -> None:
    core = plain()
    sent = [b"%06d" % n + b"x" * 994 for n in range(10_000)]
    for value in sent:
        core.send(value)
    batches = core.accumulator.flush()
    assert len(batches) == 11  # of 16 KB they would be 625
    assert all(batch.size <= MERGED_BATCH_BYTES for batch in batches)
    assert [value for batch in batches for value in batch.values] == sent


def all_sent(core: Core) -> list[Send]:
    """Sends all that there is, and answers it; returns the requests, whose batches are kept for the test to read."""
    sends: list[Send] = []
    for _ in range(10):
        new = core.tick()
        for send in new:
            made = send.make(12)
            core.written(send)
            sends.append(dataclasses.replace(send, make=lambda version, made=made: made))
    return sends


def test_a_batch_that_cannot_grow_any_more_is_encoded_by_the_caller_and_numbered_by_the_sender() -> None:
    core = Core()
    core.start(producer_id=7, epoch=3)
    sent = [b"%06d" % n + b"x" * 994 for n in range(2_500)]
    for value in sent:
        core.send(value)
    first, second, last = core.accumulator.incomplete
    assert first.encoded is not None
    assert second.encoded is not None
    assert last.encoded is None  # it is open
    sends = all_sent(core)
    assert [value for send in sends for value in values(send)] == sent
    firsts = (0, first.count, first.count + second.count)
    assert [numbers(send) for send in sends] == [(7, 3, number) for number in firsts]
    for send in sends:
        (data,) = parts(send)
        assert crc_is_good(bytes(data.records or b""), 0, len(data.records or b""))


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_while_a_caller_encodes_a_batch_the_sender_neither_sends_nor_merges_it(compression: str) -> None:
    core = plain(compression_type=compression)
    encode, sent_meanwhile = core.accumulator.encode, []
    assert encode is not None

    def encode_slowly(batch: Batch) -> Buffer:
        sent_meanwhile.append(core.tick())
        assert core.accumulator.lock.acquire(blocking=False)  # type: ignore[attr-defined]
        core.accumulator.lock.release()  # type: ignore[attr-defined]
        return encode(batch)

    core.accumulator.encode = encode_slowly
    sent = [b"%06d" % n + b"x" * 994 for n in range(1_000)]
    for value in sent:
        core.send(value)
    assert sent_meanwhile == [[]]
    assert core.sender.next_deadline_ms() == 0  # it is told to look again
    sends = all_sent(core)
    assert len(sends) == 2
    assert [value for send in sends for value in values(send)] == sent


def test_a_batch_that_fails_while_a_caller_encodes_it_stays_failed() -> None:
    core = plain()
    encode = core.accumulator.encode
    assert encode is not None

    def give_up_meanwhile(batch: Batch) -> Buffer:
        core.sender.close_now()
        return encode(batch)

    core.accumulator.encode = give_up_meanwhile
    handles = [core.send(b"x" * 1000) for _ in range(1_000)]
    batch = handles[0]._batch
    assert batch.done
    assert batch.encoded is None  # its memory is free
    assert isinstance(outcome(handles[0]), ClosedClient)
    with_it = batch.count + 1  # the record that did not fit any more was there already
    assert sum(len(values(send)) for send in all_sent(core)) == len(handles) - with_it


def test_a_batch_that_a_caller_cannot_encode_is_failed_by_the_sender_and_not_by_the_next_record() -> None:
    core = plain()

    def fail(batch: Batch) -> Buffer:
        raise ValueError("no")

    core.accumulator.encode = fail
    handles = [core.send(b"x" * 1000) for _ in range(1_000)]
    assert handles[0]._batch.encoded is None
    assert sum(len(values(send)) for send in all_sent(core)) == len(handles)  # the sender has encoded it


@pytest.mark.parametrize(
    ("settings", "largest"),
    [
        ({"buffer_memory": 400_000}, 100_000),
        ({"max_request_size": 50_000}, 50_000),
        ({"batch_size": 300_000, "max_request_size": 200_000}, 200_000),
        ({"batch_size": 2_000_000, "max_request_size": 4_000_000}, 2_000_000),
        ({"batch_size": 0}, 1_100),  # a record alone
    ],
)
def test_how_far_a_batch_grows_while_nobody_looks(settings: dict[str, object], largest: int) -> None:
    core = plain(linger_ms=1000, **settings)
    while isinstance(core.try_send(b"x" * 1000), RecordHandle) and len(core.accumulator.incomplete) < 4:
        assert core.accumulator.used_bytes <= core.config.buffer_memory
    sizes = [batch.size for batch in core.accumulator.flush()]
    assert largest - 2_000 < max(sizes) <= largest


def test_a_growing_batch_reserves_little_more_memory_than_it_fills() -> None:
    core = plain(partitions=20, linger_ms=1000)
    for partition in range(20):
        for _ in range(300):
            core.send(b"x" * 1000, partition)
    batches = list(core.accumulator.incomplete)
    assert len(batches) == 20
    assert all(batch.size <= batch.charge <= batch.size + MOST_GROWTH for batch in batches)
    assert core.accumulator.used_bytes == sum(batch.charge for batch in batches)
    core.accumulator.flush()
    assert core.accumulator.used_bytes == sum(batch.size for batch in batches)


def test_what_became_full_while_all_requests_are_under_way_is_closed_and_sent_with_the_others() -> None:
    core = plain(partitions=2, batch_size=1000, linger_ms=1000, max_in_flight_requests_per_connection=1)
    core.send(b"x" * 1000, 0)
    (first,) = core.tick()
    for step in range(3):
        for n in range(3):
            core.send(b"%d%d" % (step, n) * 200, 0)
        assert core.tick() == []
        assert len(core.accumulator.topics["orders"].queues[0].closed) == step + 1
    core.written(first)
    (send,) = core.tick()
    assert values(send) == [b"%d%d" % (step, n) * 200 for step in range(3) for n in range(3)]


def test_a_batch_that_grew_too_large_for_its_topic_is_split_and_the_next_ones_grow_half_as_far() -> None:
    core = Core()
    core.start()
    limit, refused, largest = 100_000, 0, 0
    handles = []
    for turn in range(6):
        handles += [core.send(b"%d" % turn * 1000) for _ in range(500)]
        while not core.sender.is_idle:
            for send in core.tick():
                (data,) = parts(send)
                size = len(data.records or b"")
                if size > limit:
                    refused += 1
                    core.reply(send, ErrorCode.MESSAGE_TOO_LARGE)
                else:
                    largest = max(largest, size)
                    core.written(send, produced(send)[0].base_sequence)
            core.take_completed()
    assert [outcome(p).offset for p in handles] == list(range(3000))
    assert refused == 1 + 2 + 4  # of half a megabyte, a quarter, an eighth
    assert largest > limit // 2
    assert core.accumulator.used_bytes == 0


def test_no_batch_is_larger_than_batch_size_unless_one_record_is_where_a_broker_refused_larger_ones() -> None:
    core = without_growth(batch_size=1000, linger_ms=1000)
    chance = random.Random(5)
    sizes = [chance.randrange(1, 1500) for _ in range(300)]
    sent = [bytes([n % 256]) * size for n, size in enumerate(sizes)]
    for value in sent:
        core.send(value)
    core.accumulator.flush()
    got: list[bytes | None] = []
    for batch in core.accumulator.topics["orders"].queues[0].closed:
        assert batch.size <= 1000 or batch.count == 1
        got += batch.values
    assert got == sent


def test_the_sender_is_woken_for_the_first_open_batch_and_for_every_closed_one() -> None:
    core = plain(linger_ms=50, batch_size=1000, partitions=2)
    core.send(b"a", 0)
    assert core.woken == 1
    core.send(b"b", 0)
    core.send(b"c", 1)  # it will look at the older one before
    assert core.woken == 1
    core.send(b"x" * 999, 0)
    assert core.woken == 2


def test_back_pressure_no_room_until_a_batch_is_done() -> None:
    core = plain(buffer_memory=3000, batch_size=1000)
    taken = 0
    while isinstance(core.try_send(b"x" * 500), RecordHandle):
        taken += 1
    assert taken == 5
    assert core.try_send(b"x" * 500) is NoRoom.MEMORY
    assert not core.accumulator.has_room(575)
    sends = core.tick()
    core.written(sends[0])
    assert core.accumulator.has_room(575)
    core.send(b"x" * 500)


def test_open_batches_are_sent_at_once_while_a_caller_waits_for_memory() -> None:
    core = plain(linger_ms=60_000, delivery_timeout_ms=200_000)
    core.send(b"a")
    assert core.tick() == []
    core.accumulator.wait_for_memory(1)
    assert len(core.tick()) == 1


def test_memory_is_taken_in_steps_so_that_many_open_batches_fit() -> None:
    core = plain(partitions=50, batch_size=1 << 20, linger_ms=1000)
    for partition in range(50):
        core.send(b"x", partition)
    assert core.accumulator.used_bytes == 50 * GROWTH
    core.accumulator.flush()
    assert core.accumulator.used_bytes < 50 * 100


def test_records_without_a_partition_fill_one_batch_after_the_other_and_use_all_partitions() -> None:
    chance = random.Random(3)
    core = plain(partitions=4, batch_size=1000, linger_ms=1000, jitter=chance.random)
    for _ in range(400):
        core.send(b"x" * 100)
        core.tick()
    assert len(core.under_way) == 5  # the others wait
    queues = core.accumulator.topics["orders"].queues
    core.accumulator.flush()
    batches = [batch for queue in queues for batch in queue.closed]
    assert all(len(queue.closed) > 5 for queue in queues)
    assert sum(batch.count == 9 for batch in batches) >= len(batches) - 1


def test_a_small_batch_that_lingered_does_not_move_the_topic_to_another_partition() -> None:
    core = plain(partitions=4, batch_size=1000, jitter=random.Random(1).random)
    seen = []
    for _ in range(8):
        core.send(b"x" * 100)
        (send,) = core.tick()
        seen.append(parts(send)[0].index)
        core.written(send)
    assert len(set(seen[:5])) == 1


def records_until_it_moves(core: Core, interval_ms: int, together: int = 1) -> int:
    """Sends records of 100 bytes to the current partition, `together` at a time, until another one is chosen."""
    core.sender._learn(core.now_ms)
    topic = core.accumulator.topics["orders"]
    chosen, sent = topic.sticky, 0
    while topic.sticky == chosen:
        for _ in range(together):
            core.send(b"x" * 100)
        sent += together
        for send in core.tick(after_ms=interval_ms):
            core.written(send, sent)
    return sent


@pytest.mark.parametrize(
    ("interval_ms", "together", "expected"),
    [(1000, 1, 82), (5, 50, 150), (5, 200, 200), (5, 5000, 5000)],
)
def test_how_many_records_without_a_key_a_partition_keeps(
    interval_ms: int, together: int, expected: int
) -> None:
    """The numbers of docs/producer.md."""
    turns = iter([0.0, *[0.9] * 10])
    core = plain(partitions=4, linger_ms=5, jitter=lambda: next(turns))
    assert records_until_it_moves(core, interval_ms, together) == expected


def test_a_partition_whose_node_is_busy_gets_no_more_of_the_records_without_a_key() -> None:
    chance = random.Random(2)
    core = plain(partitions=2, nodes=2, max_in_flight_requests_per_connection=1, jitter=chance.random)
    core.sender._learn(core.now_ms)
    topic = core.accumulator.topics["orders"]
    sent = [0, 0]
    for _ in range(4000):
        sent[topic.sticky] += 10
        for _ in range(10):
            core.send(b"x" * 1000)
        for send in core.tick():
            if send.node_id == 1:  # node 2 never answers
                core.written(send)
        core.take_completed()
        if core.accumulator.used_bytes > 20_000_000:
            break
    assert 0.7 < sent[1] / sent[0] < 1.4


def test_partitions_without_a_leader_get_no_records_that_have_a_choice() -> None:
    from kohort.client.core.cluster import Cluster, PartitionInfo, TopicInfo

    core = plain(partitions=3, batch_size=100, jitter=random.Random(1).random)
    known = core.metadata.cluster
    info = TopicInfo("orders", bytes(16), {0: PartitionInfo(), 1: PartitionInfo(1, 5), 2: PartitionInfo()})
    core.metadata.cluster = Cluster("c", 1, known.nodes, {"orders": info}, {}, 2)
    for _ in range(20):
        core.send(b"x" * 90)
    assert {batch.queue.index for batch in core.accumulator.flush()} == {1}


def test_new_partitions_are_used_and_old_batches_stay() -> None:
    core = plain(partitions=1, linger_ms=10)
    core.send(b"a", 0)
    core.metadata.cluster = cluster(3, version=2)
    core.tick()
    core.send(b"b", 2)
    (send,) = core.tick(after_ms=10)
    assert [data.index for data in parts(send)] == [0, 2]


def test_an_unused_topic_is_forgotten_and_a_send_looks_it_up_again() -> None:
    core = plain(metadata_max_idle_ms=5_000)
    core.send(b"a")
    core.written(core.tick()[0])
    topic = core.accumulator.topics["orders"]
    core.metadata.cluster = cluster(version=2)
    core.tick(after_ms=6_000)
    assert "orders" not in core.accumulator.topics
    answer = core.accumulator.append(topic, 0, None, b"late", 1, None, None, core.now_ms)
    assert answer is NoRoom.FORGOTTEN


def test_after_shut_nothing_is_taken_and_what_is_there_is_sent() -> None:
    core = plain(linger_ms=60_000, delivery_timeout_ms=200_000)
    core.send(b"a")
    core.accumulator.shut()
    assert core.try_send(b"b") is NoRoom.CLOSED
    (send,) = core.tick()
    assert values(send) == [b"a"]


def test_what_many_threads_append_is_all_there_and_in_each_threads_order() -> None:
    core = plain(partitions=2, batch_size=2000, buffer_memory=1 << 30)
    core.sender.tick(core.now_ms)

    def fill(number: int) -> None:
        for turn in range(2000):
            core.send(b"%d:%d" % (number, turn), turn % 2, key=b"k" if turn % 3 else None)

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    core.accumulator.flush()
    seen: dict[tuple[int, int], list[int]] = {}
    for queue in core.accumulator.topics["orders"].queues:
        for batch in queue.closed:
            assert (
                batch.count == len(batch.values) == len(batch.timestamps) == len(batch.keys or batch.values)
            )
            for value, key in zip(batch.values, batch.keys or [], strict=True):
                number, turn = map(int, (value or b"").split(b":"))
                assert (key is not None) == bool(turn % 3)
                seen.setdefault((queue.index, number), []).append(turn)
    assert seen == {(p, n): list(range(p, 2000, 2)) for p in range(2) for n in range(4)}


def test_records_have_the_time_of_their_sending_also_when_the_clock_is_set_back() -> None:
    core = plain(linger_ms=1000)
    core.send(b"first")
    now_ns = 0
    fast = fast_send(core.accumulator, core.outgoing, lambda: now_ns, lambda: 0, lambda *record: None)
    clock = [1_999_999, 2_000_000, 2_999_999, 3_000_000, 2_999_999, 2_000_000, 7_500_000_000, 0]
    for now_ns in clock:  # noqa: B007 the clock reads it
        fast("orders", b"x")
    (batch,) = core.accumulator.flush()
    assert batch.timestamps[1:] == [1, 2, 2, 3, 2, 2, 7500, 0]


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_without_idempotence_a_batch_that_comes_back_goes_before_newer_ones(code: ErrorCode) -> None:
    core = plain()
    core.send(b"a")
    (send,) = core.tick()
    core.reply(send, code)
    core.send(b"b")
    core.accumulator.flush()
    sends = core.tick(after_ms=2000)
    assert [values(send) for send in sends] == [[b"a"], [b"b"]]


# --- batches that wait are merged ----------------------------------------------------------------------------


def queued_behind_one(**settings: object) -> tuple[Core, list[RecordHandle]]:
    """One request under way, and five batches of two records each behind it."""
    core = Core(max_in_flight_requests_per_connection=1, batch_size=1000, **settings)  # type: ignore[arg-type]
    core.start()
    core.send(b"first")
    core.tick()
    handles = []
    for n in range(10):
        handles.append(core.send(b"%d" % n * 400, key=b"k" if n % 3 else None, timestamp=n))
        if n % 2:
            core.accumulator.flush()
    return core, handles


def test_batches_that_had_to_wait_are_sent_as_one_and_each_record_knows_its_offset() -> None:
    core, handles = queued_behind_one()
    core.written(core.under_way[0], 0)
    (send,) = core.tick()
    header, got = produced(send)
    assert (header.record_count, header.base_sequence) == (10, 1)
    assert got == [b"%d" % n * 400 for n in range(10)]
    core.written(send, 1)
    assert [outcome(p).offset for p in handles] == list(range(1, 11))
    assert core.take_completed() == 6
    assert core.sender.is_idle
    assert core.accumulator.used_bytes == 0
    core.send(b"next")
    assert produced(core.tick()[0])[0].base_sequence == 11


def test_a_merged_batch_that_is_lost_is_sent_again_as_it_was() -> None:
    core, handles = queued_behind_one()
    core.written(core.under_way[0], 0)
    (send,) = core.tick()
    core.lose(send)
    (again,) = core.tick(after_ms=2000)
    assert parts(again) == parts(send)
    core.written(again, 1)
    assert outcome(handles[-1]).offset == 10


def test_a_merged_batch_that_is_too_large_is_sent_batch_by_batch_from_then_on() -> None:
    core, handles = queued_behind_one()
    core.written(core.under_way[0], 0)
    (send,) = core.tick()
    core.reply(send, ErrorCode.MESSAGE_TOO_LARGE)
    for first in range(0, 10, 2):
        (part,) = core.tick()
        header, got = produced(part)
        assert (header.base_sequence, len(got)) == (1 + first, 2)
        core.written(part, 1 + first)
    assert [outcome(p).offset for p in handles] == list(range(1, 11))
    core.take_completed()
    assert core.sender.is_idle


def test_a_merged_batch_expires_with_all_its_records() -> None:
    core, handles = queued_behind_one(delivery_timeout_ms=40_000)
    core.written(core.under_way[0], 0)
    core.tick()
    core.tick(after_ms=40_000)
    assert all(isinstance(outcome(p), Exception) for p in handles)
    assert core.accumulator.used_bytes == 0
    assert core.sender.is_idle


def test_a_bad_record_in_a_merged_batch_is_found_in_its_own_batch() -> None:
    core, handles = queued_behind_one()
    core.written(core.under_way[0], 0)
    (send,) = core.tick()
    bad = [BatchIndexAndErrorMessage(7, "a compacted topic needs keys")]
    core.reply(send, ErrorCode.INVALID_RECORD, record_errors=bad)
    assert "needs keys" in str(outcome(handles[7]))
    assert all(isinstance(outcome(p), BatchMemberFailed) for n, p in enumerate(handles) if n != 7)


def test_an_interrupt_between_two_columns_leaves_neither_longer() -> None:
    class Interrupted(list[int]):
        def append(self, timestamp: int) -> None:
            raise KeyboardInterrupt

    core = plain(linger_ms=5)
    core.send(b"a", key=b"1")
    batch = core.accumulator.topics["orders"].open[0]
    good, batch.timestamps = batch.timestamps, Interrupted(batch.timestamps)
    with pytest.raises(KeyboardInterrupt):
        core.send(b"lost", key=b"2")
    batch.timestamps = good
    core.send(b"b")
    (send,) = core.tick(after_ms=5)
    assert values(send) == [b"a", b"b"]
