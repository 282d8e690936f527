"""Transactions in a partition's log, against a naive model: last stable offset, aborted ones, restarts, compaction."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.log.config import TopicConfig
from kohort.log.durability import tracker
from kohort.log.maintenance.cleaner import CleanedSegments, clean, txn_index_name
from kohort.log.maintenance.compaction import job_for, plan, prepare_swap, swap
from kohort.log.maintenance.retention import expire
from kohort.log.partition import Durability, Partition
from kohort.log.registry import TopicCreated
from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.memory import MemoryDirectory
from kohort.log.storage.producers import ProducerStates
from kohort.log.storage.recovery import StateFile
from kohort.log.storage.segment import LOG
from kohort.log.storage.transactions import AbortedTxn, TransactionIndex
from kohort.log.store import Store
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.records.batch import (
    BatchRecord,
    ControlKind,
    check_batch,
    control_kind,
    encode_batch,
    iter_batches,
    iter_records,
)
from kohort.wire.records.columns import decode_columns
from tests.log.support import Inbox, Node, append, content, make_batch, node_on

ROOT = Path(__file__).parents[2]
COMMIT, ABORT = ControlKind.COMMIT, ControlKind.ABORT


@dataclass(frozen=True)
class Event:
    """A batch in the log. `producer` is None for one of no transaction, `end` is how a marker ends one."""

    base: int
    keys: tuple[int, ...] = (0,)
    producer: int | None = None
    epoch: int = 0
    end: ControlKind | None = None

    @property
    def next(self) -> int:
        return self.base + len(self.keys)


def stable_in(events: Sequence[Event], high_watermark: int, start: int) -> int:
    """Last stable offset, as the definition has it."""
    unstable = []
    for at, event in enumerate(events):
        if event.producer is not None and event.end is None:
            ends = [e for e in events[at:] if e.end is not None and e.producer == event.producer]
            if not ends or ends[0].base >= high_watermark:
                unstable.append(event.base)
    return max(min([high_watermark, *unstable]), start)


def is_committed(events: Sequence[Event], at: int) -> bool:
    event = events[at]
    if event.producer is None:
        return True
    later = (e.end for e in events[at:] if e.end is not None and e.producer == event.producer)
    return next(later, None) is COMMIT


def visible_in(events: Sequence[Event], stable: int, start: int) -> dict[int, int]:
    """Offset -> key of what a read_committed consumer gets."""
    return {
        event.base + n: key
        for at, event in enumerate(events)
        if event.end is None and is_committed(events, at)
        for n, key in enumerate(event.keys)
        if start <= event.base + n < stable
    }


def aborted_in(events: Sequence[Event]) -> set[tuple[int, int, int]]:
    """(producer, first offset, marker's offset) of each aborted transaction."""
    found = set()
    first: dict[int, int] = {}
    for event in events:
        if event.producer is None:
            continue
        if event.end is None:
            first.setdefault(event.producer, event.base)
        else:
            began = first.pop(event.producer, None)
            if began is not None and event.end is ABORT:
                found.add((event.producer, began, event.base))
    return found


def write(partition: Partition, events: list[Event], producer: int | None, keys: tuple[int, ...]) -> None:
    """Appends a batch as Produce does, and notes it."""
    mine = [e for e in events if e.producer == producer]
    epoch = mine[-1].epoch if mine else 0
    known = [
        e.last_sequence
        for e in partition.producers.entries()
        if (e.producer_id, e.producer_epoch) == (producer, epoch)
    ]
    sequence = known[0] + 1 if known else 0
    records = [BatchRecord(n, 1_000 + n, b"key-%d" % key, b"v" * 20, []) for n, key in enumerate(keys)]
    if producer is None:
        batch = encode_batch(records)
    else:
        batch = encode_batch(
            records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
    header = check_batch(batch)
    guard = None
    if producer is not None:
        # `adds` would refuse a producer that goes on after all that is known of it was deleted.
        guard = partition.begin_verification(producer, epoch, sequence, adds=False, now_ms=0)
    assert partition.check(header, guard) is None
    base = partition.append(memoryview(batch), header, 0)
    events.append(Event(base, keys, producer, epoch))


def mark(partition: Partition, events: list[Event], producer: int, end: ControlKind, version: int) -> None:
    mine = [e.epoch for e in events if e.producer == producer]
    epoch = (mine[-1] if mine else 0) + (1 if version == 2 else 0)
    offset = partition.append_marker(
        end, producer_id=producer, producer_epoch=epoch, coordinator_epoch=3, transaction_version=version, now_ms=0
    )  # fmt: skip
    events.append(Event(offset, (0,), producer, epoch, end=end))


def read_committed(partition: Partition, max_bytes: int = 150) -> dict[int, bytes | None]:
    """Offset -> key of all that a consumer reads, answer by answer."""
    found: dict[int, bytes | None] = {}
    offset, stable = partition.log_start_offset, partition.last_stable_offset
    while offset < stable:
        piece = partition.read(offset, max_bytes, at_least_one=True, up_to=stable)
        if not len(piece):
            break  # compaction has taken what is behind
        aborted = partition.aborted_transactions(offset, piece)
        for entry in aborted:
            assert entry.last_offset >= offset, "it ended before"
            assert entry.first_offset < stable, "it begins behind"
        told = [(entry.producer_id, entry.first_offset) for entry in aborted]
        decoded = decode_columns(b"".join(piece.chunks()), offset, aborted=told)
        assert decoded.error is None
        assert decoded.next_offset > offset
        columns = decoded.columns
        found |= {int(columns.offsets[row]): key for row, key in enumerate(columns.cut()[0])}
        offset = decoded.next_offset
    return found


def check_transactions(partition: Partition) -> None:
    """Compares what a reader gets with what the batches in the log say. All of it must be durable."""
    data = content(partition)
    batches = [(header, data[at : at + header.size]) for at, header in iter_batches(data)]
    ends: dict[int, list[tuple[int, ControlKind | None]]] = {}
    for header, batch in batches:
        for record in iter_records(batch) if header.is_control else ():
            ends.setdefault(header.producer_id, []).append((header.base_offset, control_kind(record.key)))
    start, stable = partition.log_start_offset, partition.last_stable_offset
    visible, first_open = set(), partition.high_watermark
    for header, batch in batches:
        if header.is_control:
            continue
        after = [end for end in ends.get(header.producer_id, ()) if end[0] > header.base_offset]
        if header.is_transactional and not after:
            first_open = min(first_open, header.base_offset)
        elif not header.is_transactional or after[0][1] is COMMIT:
            visible |= {record.offset for record in iter_records(batch) if start <= record.offset < stable}
    assert stable in (start, max(first_open, start)), (
        "the first records of an open transaction may be deleted"
    )
    assert read_committed(partition, 4_000).keys() == visible


@dataclass
class Scene:
    """A partition, the model of it, and how to stop and start it."""

    node: Node
    partition: Partition
    events: list[Event] = field(default_factory=list)
    is_compacted: bool = False

    def check(self) -> None:
        partition, events = self.partition, self.events
        # After a crash that cost a state file, what was in deleted segments is not known any more.
        first = partition.segments[0].base_offset if partition.segments else 0
        kept = [event for event in events if event.base >= first]
        stable, high, start = (
            partition.last_stable_offset,
            partition.high_watermark,
            partition.log_start_offset,
        )
        assert stable in (stable_in(events, high, start), stable_in(kept, high, start))
        expected = {
            o: b"key-%d" % key for o, key in visible_in(events, stable, partition.log_start_offset).items()
        }
        ends = [entry.last_offset for entry in partition.aborted_before(partition.log_end_offset)]
        assert ends == sorted(set(ends)), "each marker ends one transaction, in the order of the log"
        got = read_committed(partition)
        if self.is_compacted:
            assert got.items() <= expected.items()
            assert _last_of_each(got) == _last_of_each(expected)
        else:
            assert got == expected
            ended = {(entry.producer_id, entry.last_offset) for entry in partition.aborted_before(stable)}
            assert ended >= {(t[0], t[2]) for t in aborted_in(kept) if t[1] < stable}
            assert ended <= {(t[0], t[2]) for t in aborted_in(events)}

    def restart(self, *, clean: bool, lost_bytes: int = 0) -> None:
        """Stops cleanly, or kills and takes the last bytes from the end of the log."""
        left = self.partition.close() if clean else None
        self.node.crash()
        if lost_bytes:
            directory = self.partition.directory
            last = max((name for name in directory.names() if name.endswith(LOG)), default="none")
            file = directory.open(last, private=True)
            file.truncate(max(file.size - lost_bytes, 0))
            file.close()
        self.partition = self.node.open(clean=left)
        end = self.partition.log_end_offset
        self.events = [event for event in self.events if event.next <= end]

    def compact(self) -> None:
        self.node.syncer.drain()
        chosen, _ = plan(self.partition, None, 10_000)
        if chosen is None:
            return
        job = job_for(self.partition, chosen, 10_000, 1_000)
        for step in clean(self.partition.directory, type(job).from_json(job.to_json())):
            if isinstance(step, CleanedSegments):
                prepare_swap(self.partition.directory, step)
                for remove in swap(self.partition, step):
                    remove()
        self.is_compacted = True


def _last_of_each(rows: Mapping[int, bytes | None]) -> dict[bytes | None, int]:
    return {key: offset for offset, key in sorted(rows.items())}


def drawn_steps(random: Random) -> Iterator[tuple[object, ...]]:
    """Yields what happens to a partition."""
    for _ in range(random.randint(5, 60)):
        keys = tuple(random.randrange(5) for _ in range(random.randint(1, 3)))
        kinds = {
            "data": 8,
            "plain": 4,
            "marker": 6,
            "stop": 1,
            "kill": 1,
            "delete": 1,
            "compact": 1,
            "sync": 2,
        }
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        match kind:
            case "data":
                yield kind, random.randrange(4), keys
            case "plain":
                yield kind, keys
            case "marker":
                yield kind, random.randrange(4), random.choice([COMMIT, ABORT]), random.choice([1, 2])
            case "kill":
                yield kind, random.choice([0, 0, 1, 90, 300])
            case "delete":
                yield kind, random.random()
            case _:
                yield (kind,)


def run(scene: Scene, step: tuple[Any, ...]) -> None:
    partition, events = scene.partition, scene.events
    match step:
        case ("data", producer, keys):
            write(partition, events, producer, keys)
        case ("plain", keys):
            write(partition, events, None, keys)
        case ("marker", producer, end, version):
            mark(partition, events, producer, end, version)
        case ("stop",):
            scene.node.syncer.drain()
            scene.restart(clean=True)
        case ("kill", lost_bytes):
            # Compaction, and acknowledgements with durability disk, count on what is synced.
            may_lose = scene.node.durability == "os" and not scene.is_compacted
            scene.restart(clean=False, lost_bytes=lost_bytes if may_lose else 0)
        case ("delete", share):
            start, end = partition.log_start_offset, partition.high_watermark
            partition.delete_records(start + int((end - start) * share))
        case ("compact",):
            scene.compact()
        case _:
            scene.node.syncer.drain()


@pytest.mark.parametrize("durability", ["os", "disk"])
@pytest.mark.parametrize("seed", range(60))
def test_readers_see_what_the_model_says(
    durability: Durability, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker, "STATE_EVERY_BATCHES", 3)
    config: dict[str, Any] = {
        "segment_bytes": 700,
        "index_interval_bytes": 200,
        "min_cleanable_dirty_ratio": 0.0,
    }
    with node_on(MemoryDirectory(), durability, **config) as node:
        scene = Scene(node, node.open())
        done: list[object] = []
        for step in [*drawn_steps(Random(seed)), ("kill", 0)]:
            done.append(step)
            run(scene, step)
            try:
                scene.check()
            except AssertionError as wrong:
                raise AssertionError(f"after {done}") from wrong


def events_in(partition: Partition) -> list[Event]:
    """What is in a log, read batch by batch."""
    events = []
    data = content(partition)
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        rows = list(iter_records(batch))
        end = control_kind(rows[0].key) if header.is_control else None
        keys = (0,) if header.is_control else tuple(int((row.key or b"")[4:]) for row in rows)
        producer = header.producer_id if header.is_transactional else None
        events.append(Event(header.base_offset, keys, producer, max(header.producer_epoch, 0), end))
    return events


def open_store(directory: Path, inbox: Inbox) -> Store:
    """Opens a data directory as a broker does; the topic `t` is created with it."""
    defaults = replace(TopicConfig(), segment_bytes=2_000, index_interval_bytes=300)
    store = Store.open(directory, durability="disk", defaults=defaults, now_ms=0, call_soon=inbox)
    if not store.topics:
        created = TopicCreated("t", b"t" * 16, 1, {})
        store.persist(created)
        store.apply(created)
    return store


def test_transactions_survive_a_killed_process(tmp_path: Path) -> None:
    acknowledged = 0
    for cycle in range(4):
        command = [sys.executable, "-m", "tests.log.transactions_child", str(tmp_path), str(cycle)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            for line in islice(child.stdout, 40 + 30 * cycle):
                acknowledged = int(line)
            child.kill()
        inbox = Inbox()
        store = open_store(tmp_path, inbox)
        try:
            partition = store.topics["t"].partitions[0]
            assert partition.log_end_offset >= acknowledged
            Scene(Node(partition.directory, "disk"), partition, events_in(partition)).check()
        finally:
            if cycle % 2:
                store.close()
            else:
                store._syncer.close()
                assert store._data is not None
                store._data.close()  # without the file of a clean stop
    assert acknowledged > 200


@pytest.fixture
def partition() -> Partition:
    with node_on(MemoryDirectory(), "memory") as node:
        return node.open()


def refusal(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        act()
    return refused.value.code


def transactional(producer: int = 7, epoch: int = 0, sequence: int = 0, count: int = 1) -> tuple:  # type: ignore[type-arg]
    records = [BatchRecord(n, 1_000, b"k", b"v", []) for n in range(count)]
    batch = encode_batch(
        records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    return memoryview(batch), check_batch(batch)


def begin(partition: Partition, producer: int = 7, epoch: int = 0, sequence: int = 0) -> int:
    batch, header = transactional(producer, epoch, sequence)
    guard = partition.begin_verification(producer, epoch, sequence, adds=True, now_ms=0)
    assert partition.check(header, guard) is None
    return partition.append(batch, header, 0)


def end(
    partition: Partition, kind: ControlKind = ABORT, producer: int = 7, epoch: int = 0, **more: int
) -> int:
    given = {"coordinator_epoch": 0, "transaction_version": 1, **more}
    return partition.append_marker(kind, producer_id=producer, producer_epoch=epoch, now_ms=5, **given)


def test_a_first_batch_needs_a_living_verification(partition: Partition) -> None:
    batch, header = transactional()
    assert refusal(lambda: partition.check(header)) is ErrorCode.INVALID_TXN_STATE
    guard = partition.begin_verification(7, 0, 0, adds=False, now_ms=0)
    assert partition.begin_verification(7, 0, 0, adds=False, now_ms=0) is guard, "they wait together"
    end(partition)
    assert refusal(lambda: partition.check(header, guard)) is ErrorCode.INVALID_TXN_STATE
    guard = partition.begin_verification(7, 0, 0, adds=False, now_ms=0)
    assert partition.check(header, guard) is None
    partition.append(batch, header, 0)
    assert partition.begin_verification(7, 0, 1, adds=False, now_ms=0) is None, "it is open"
    assert guard is not None
    assert not guard.is_alive


def test_the_marker_of_the_last_transaction_leaves_the_guard_of_the_next(partition: Partition) -> None:
    """With transaction version 2 it has the epoch of the next one."""
    begin(partition)
    guard = partition.begin_verification(7, 1, 0, adds=True, now_ms=0)
    end(partition, epoch=1, transaction_version=2)
    assert partition.check(transactional(epoch=1)[1], guard) is None
    end(partition, epoch=2, transaction_version=2)
    assert refusal(lambda: partition.check(transactional(epoch=2)[1], guard)) is ErrorCode.INVALID_TXN_STATE


def test_a_producer_that_was_fenced_while_it_waited_is_told_so(partition: Partition) -> None:
    """The marker of the fence kills the guard, but the epoch says more than that."""
    guard = partition.begin_verification(7, 0, 0, adds=False, now_ms=0)
    end(partition, epoch=1, transaction_version=2)
    batch, header = transactional()
    assert refusal(lambda: partition.check(header, guard)) is ErrorCode.INVALID_PRODUCER_EPOCH
    offsets = header._replace(base_sequence=-1)
    code = refusal(lambda: partition.append_offsets(batch, offsets, 0, guard))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_a_client_may_not_append(partition: Partition) -> None:
    guard = partition.begin_verification(7, 0, 3, adds=True, now_ms=0)
    code = refusal(lambda: partition.check(transactional(sequence=3)[1], guard))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a producer without state begins at 0"
    partition.begin_verification(7, 0, 0, adds=True, now_ms=0)
    code = refusal(lambda: partition.check(transactional(sequence=3)[1], guard))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch waits"
    begin(partition)
    plain = encode_batch(
        [BatchRecord(0, 0, b"k", b"v", [])], producer_id=7, producer_epoch=0, base_sequence=1
    )
    assert refusal(lambda: partition.check(check_batch(plain))) is ErrorCode.INVALID_TXN_STATE
    assert partition.check(transactional(sequence=1)[1]) is None
    assert partition.check(transactional()[1]) is not None, "a retry is a duplicate"


def test_offsets_of_a_transaction_are_checked_by_their_epoch_alone(partition: Partition) -> None:
    records = [BatchRecord(0, 0, b"k", b"v", [])]
    made = encode_batch(records, producer_id=7, producer_epoch=2, transactional=True)
    batch, header = memoryview(made), transactional(epoch=2)[1]._replace(base_sequence=-1)
    code = refusal(lambda: partition.append_offsets(batch, header, 0, None))
    assert code is ErrorCode.INVALID_TXN_STATE
    guard = partition.begin_verification(7, 2, -1, adds=True, now_ms=0)
    assert partition.append_offsets(batch, header, 0, guard) == 0
    assert partition.append_offsets(batch, header, 0, None) == 1
    old = header._replace(producer_epoch=1)
    guard = partition.begin_verification(7, 1, -1, adds=True, now_ms=0)
    code = refusal(lambda: partition.append_offsets(batch, old, 0, guard))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.last_stable_offset == 0
    end(partition, COMMIT, epoch=2)
    assert partition.last_stable_offset == 3


def test_markers_of_old_epochs_are_refused_and_retries_are_written_again(partition: Partition) -> None:
    begin(partition, epoch=3)
    assert refusal(lambda: end(partition, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    code = refusal(lambda: end(partition, epoch=3, transaction_version=2))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH, "version 2 raises the epoch"
    end(partition, epoch=4, transaction_version=2, coordinator_epoch=9)
    assert end(partition, epoch=4, transaction_version=2, coordinator_epoch=9) == 2, "a retry"
    code = refusal(lambda: end(partition, epoch=4, coordinator_epoch=8))
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert partition.aborted_before(9) == [AbortedTxn(7, 0, 1, 2)], "a retry ends nothing"
    entry = next(partition.producers.entries())
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.batches) == (4, 9, [])


def test_a_producer_with_an_open_transaction_never_expires(partition: Partition) -> None:
    begin(partition)
    begin(partition, producer=8)
    end(partition, producer=8)
    guard = partition.begin_verification(9, 0, 0, adds=True, now_ms=0)
    assert partition.producers.expire(10**12, 1) == 1
    assert [entry.producer_id for entry in partition.producers.entries()] == [7]
    assert guard is not None
    assert not guard.is_alive


def test_waiting_readers_hear_of_the_marker(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path), "disk") as node:
        partition = node.open()
        begin(partition)
        node.syncer.drain()
        heard: list[int] = []
        partition.add_waiter(lambda: heard.append(partition.last_stable_offset))
        end(partition)
        assert heard == []
        assert partition.last_stable_offset == 0, "its marker is not durable"
        node.syncer.drain()
        assert heard[-1] == 2


def test_records_that_are_deleted_move_the_last_stable_offset(partition: Partition) -> None:
    begin(partition)
    append(partition, 3)
    assert partition.last_stable_offset == 0
    partition.delete_records(2)
    assert partition.last_stable_offset == 2
    partition.delete_records(-1)
    assert partition.last_stable_offset == 4


@pytest.mark.parametrize("how", ["stopped", "unloaded"])
def test_an_open_transaction_is_known_without_loading_the_partition(tmp_path: Path, how: str) -> None:
    with node_on(DiskDirectory(tmp_path), "disk") as node:
        partition = node.open()
        append(partition)
        begin(partition)
        node.syncer.drain()
        if how == "stopped":
            partition = node.crash().open(clean=partition.close())
        else:
            node.syncer.settle()
            assert partition.unload()
        assert partition._segments is None
        assert partition.last_stable_offset == 1
        assert partition.has_open_transaction(7, 0)
        end(partition, COMMIT)
        node.syncer.drain()
        assert partition.last_stable_offset == 3


def damaged(directory: Directory) -> str:
    return next(name for name in sorted(directory.names()) if name.endswith(".txnindex"))


@pytest.mark.parametrize("harm", [b"\0" * 34, b"x" * 33])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_index_of_aborted_transactions_is_rebuilt(
    tmp_path: Path, harm: bytes, is_clean: bool
) -> None:
    with node_on(DiskDirectory(tmp_path), "os", segment_bytes=300) as node:
        partition = node.open()
        for sequence in range(10):
            begin(partition, sequence=sequence)
            end(partition)
        node.syncer.drain()
        expected = partition.aborted_before(100)
        assert len(expected) == 10
        left = partition.close()
        (tmp_path / "t-0" / damaged(partition.directory)).write_bytes(harm)
        partition = node.crash().open(clean=left if is_clean else None)
        assert partition.aborted_before(100) == expected
        assert partition.last_stable_offset == 20


@pytest.mark.parametrize("crash_after", ["cleaned", "prepared", "one gone", "all gone", "renamed"])
def test_an_interrupted_compaction_keeps_the_index_of_aborted_transactions(
    tmp_path: Path, crash_after: str
) -> None:
    config: dict[str, Any] = {"segment_bytes": 400, "min_cleanable_dirty_ratio": 0.0}
    with node_on(DiskDirectory(tmp_path), "disk", **config) as node:
        partition, events = node.open(), list[Event]()
        for number in range(12):
            write(partition, events, number % 2, (number, 1))
            mark(partition, events, number % 2, ABORT if number % 3 else COMMIT, 1)
        scene = Scene(node, partition, events)
        node.syncer.drain()
        chosen, _ = plan(partition, None, 10_000)
        assert chosen is not None
        job = replace(job_for(partition, chosen, 10_000, 1_000), segment_size=1 << 20)
        directory = partition.directory
        group = next(step for step in clean(directory, job) if isinstance(step, CleanedSegments))
        assert txn_index_name(group.sources[0]) + ".cleaned" in directory.names()
        if crash_after != "cleaned":
            prepare_swap(directory, group)
        old = [segment for segment in partition.segments if segment.base_offset in group.sources]
        assert len(old) > 1
        for segment in old[: {"one gone": 1, "all gone": 99, "renamed": 99}.get(crash_after, 0)]:
            segment.retire()
        if crash_after == "renamed":
            name = txn_index_name(group.sources[0])
            directory.rename(name + ".swap", name)
        scene.restart(clean=False)
        scene.is_compacted = True
        scene.check()
        bases = [segment.base_offset for segment in scene.partition.segments]
        assert (bases[1] == old[1].base_offset) == (crash_after == "cleaned")
        assert len(scene.partition.aborted_before(100)) == 8, "their batches were met by the first pass"


def test_an_open_transaction_is_in_the_file_of_a_clean_stop(tmp_path: Path) -> None:
    store = open_store(tmp_path, Inbox())
    begin(store.topics["t"].partitions[0])
    store.close()
    store = open_store(tmp_path, Inbox())
    partition = store.topics["t"].partitions[0]
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
    assert partition._segments is None, "nothing was read for it"
    store.close()


def test_retention_takes_the_records_of_an_open_transaction_too(partition: Partition) -> None:
    partition.config = replace(TopicConfig(), segment_bytes=300, retention_ms=100)
    begin(partition)
    for sequence in range(1, 9):
        append(partition, 2, timestamp=1_000)
        begin(partition, sequence=sequence)
    assert partition.last_stable_offset == 0
    expire(partition, 10_000_000)
    assert 0 < partition.log_start_offset == partition.last_stable_offset
    end(partition)
    assert partition.last_stable_offset == partition.log_end_offset


def test_state_files_of_versions_without_transactions_load() -> None:
    states = ProducerStates()
    _, header = make_batch(2, producer_id=7, producer_epoch=3, base_sequence=4)
    states.update(header, 10)
    old = struct.pack(">i", 1) + struct.pack(">qhqb", 7, 3, 1_001, 1) + struct.pack(">iqiq", 5, 11, 1, 1_001)
    assert ProducerStates.decode(old).encode() == states.encode()
    body = struct.pack(">10q", *range(1, 11)) + old
    state = StateFile.decode(struct.pack(">4sI", b"KHS1", zlib.crc32(body)) + body)
    assert state is not None
    assert (state.producers, state.end_offset) == (old, 3)


def test_the_index_has_kafkas_format() -> None:
    index = TransactionIndex()
    index.append(AbortedTxn(1, 2, 3, 4))
    assert index.encode() == b"\0\0" + b"".join(n.to_bytes(8, "big") for n in (1, 2, 3, 4))
    assert TransactionIndex.decode(index.encode()).entries == index.entries
