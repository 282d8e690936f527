"""When a partition is compacted; and that nothing is lost, whenever the process is killed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort.log.config import TopicConfig
from kohort.log.maintenance.cleaner import CleanedSegments, Covered, Spoiled, clean, index_cleaned
from kohort.log.maintenance.compaction import (
    ChildPass,
    discard_unfinished,
    job_for,
    plan,
    prepare_swap,
    swap,
    swap_is_possible,
)
from kohort.log.maintenance.retention import NEVER
from kohort.log.maintenance.upkeep import CHECKPOINT, encode_checkpoints, read_checkpoints
from kohort.log.partition import Partition
from kohort.log.registry import TopicCreated, TopicDeleted
from kohort.log.storage.files import DiskDirectory
from kohort.log.store import Store
from kohort.wire.records.batch import BatchRecord, check_batch, encode_batch, iter_batches, iter_records
from tests.clients.process import eventually
from tests.log.support import Inbox, Node, content, node_on

A, B = b"a" * 16, b"b" * 16
NOW = 10**6


def put(partition: Partition, key: bytes, value: bytes | None, *, time: int = 1000, **fields: int) -> int:
    batch = encode_batch([BatchRecord(0, time, key, value, [])], **fields)  # type: ignore[arg-type]
    return partition.append(memoryview(batch), check_batch(batch), time)


def rows(partition: Partition) -> dict[int, tuple[bytes | None, bytes | None]]:
    data = memoryview(content(partition))
    return {
        record.offset: (record.key, record.value)
        for at, header in iter_batches(data)
        for record in iter_records(data[at : at + header.size])
    }


def fill(partition: Partition, count: int = 12, keys: int = 3) -> None:
    for n in range(count):
        put(partition, b"k%d" % (n % keys), b"%d" % n)


def compacted(**config: object) -> dict[str, object]:
    return {"cleanup_policy": ("compact",), "internal_segment_bytes": 160, **config}


@contextmanager
def store_on(directory: Path | None, **overrides: str) -> Iterator[Store]:
    store = Store.open(
        directory,
        durability="os" if directory is not None else "memory",
        defaults=TopicConfig(),
        now_ms=0,
        call_soon=Inbox(),
    )
    if "t" not in store.topics:
        entry = TopicCreated(
            "t", A, 1, {"cleanup.policy": "compact", "internal.segment.bytes": "160", **overrides}
        )
        store.persist(entry)
        store.apply(entry)
    try:
        yield store
    finally:
        store.close()


def work(store: Store, now_ms: int = NOW) -> None:
    """A round of housekeeping, to its end."""
    store.housekeeping(now_ms)
    inbox = store.upkeep._call_soon
    assert isinstance(inbox, Inbox)
    inbox.run_until(lambda: not store.upkeep.is_busy)


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "data" if request.param == "disk" else None


def test_the_last_value_of_each_key_stays(place: Path | None) -> None:
    with store_on(place) as store:
        partition = store.topics["t"].partitions[0]
        fill(partition)
        before, active = rows(partition), partition.segments[-1].base_offset
        work(store)
        after = rows(partition)
        sealed = {offset: row for offset, row in before.items() if offset < active}
        last = {row[0]: offset for offset, row in sealed.items()}
        expected = {
            offset: before[offset] for offset in before if offset >= active or offset in last.values()
        }
        assert after == expected
        assert len(after) < len(before)
        assert store.upkeep.checkpoints == {("t", 0): active}
        assert partition.log_end_offset == 12
        assert put(partition, b"new", b"x") == 12


def test_a_compacted_log_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with store_on(tmp_path) as store:
        fill(store.topics["t"].partitions[0])
        work(store)
        before = rows(store.topics["t"].partitions[0])
    with store_on(tmp_path) as again:
        assert rows(again.topics["t"].partitions[0]) == before
        assert again.upkeep.checkpoints
        assert plan(again.topics["t"].partitions[0], again.upkeep.checkpoints["t", 0], NOW)[0] is None


def test_small_maps_take_several_passes(place: Path | None) -> None:
    with store_on(place, **{"min.cleanable.dirty.ratio": "0"}) as store:
        store.upkeep.max_keys = 1
        partition = store.topics["t"].partitions[0]
        fill(partition, count=8, keys=2)
        active = partition.segments[-1].base_offset
        work(store)
        keys = [row[0] for offset, row in rows(partition).items() if offset < active]
        assert len(keys) == len(set(keys))
        assert store.upkeep.checkpoints["t", 0] == active


def test_appends_and_reads_go_on_meanwhile(place: Path | None) -> None:
    with store_on(place) as store:
        partition = store.topics["t"].partitions[0]
        fill(partition)
        store.housekeeping(NOW)
        inbox = store.upkeep._call_soon
        assert isinstance(inbox, Inbox)
        added = {}
        while store.upkeep.is_busy:
            if len(added) < 5:
                offset = put(partition, b"n%d" % len(added), b"later", time=2000)
                added[offset] = (b"n%d" % len(added), b"later")
            assert added.items() <= rows(partition).items()
            inbox.run_one()
        assert added
        assert added.items() <= rows(partition).items()


def test_a_topic_deleted_meanwhile_ends_the_pass(place: Path | None) -> None:
    with store_on(place) as store:
        fill(store.topics["t"].partitions[0])
        store.housekeeping(NOW)
        assert store.upkeep.is_busy
        for entry in (TopicDeleted(A), TopicCreated("t", B, 1)):
            store.persist(entry)
            store.apply(entry)
        inbox = store.upkeep._call_soon
        assert isinstance(inbox, Inbox)
        inbox.run_one()
        assert store.upkeep.checkpoints == {}
        put(store.topics["t"].partitions[0], b"a", b"1")
        assert rows(store.topics["t"].partitions[0]) == {0: (b"a", b"1")}
    if place is not None:
        names = [path.name for path in (place / "t-0").iterdir()]
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def test_a_stop_in_the_middle_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    with store_on(tmp_path) as store:
        fill(store.topics["t"].partitions[0])
        before = rows(store.topics["t"].partitions[0])
        store.housekeeping(NOW)
        assert store.upkeep.is_busy
    assert not [path for path in (tmp_path / "t-0").iterdir() if path.suffix in (".cleaned", ".swap")]
    with store_on(tmp_path) as again:
        assert rows(again.topics["t"].partitions[0]) == before


def test_a_bad_batch_is_reported_and_the_partition_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with store_on(tmp_path) as store:
        partition = store.topics["t"].partitions[0]
        fill(partition)
        path = Path(partition.segments[1].file.path)
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        logs = {path: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")}
        work(store)
        reason = store.upkeep.uncleanable["t", 0]
        assert reason.startswith("bad batch at offset 3: the CRC")
        assert "t-0 is not compacted any more: bad batch at offset 3" in caplog.text
        assert {path: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")} == logs
        put(partition, b"k", b"v")
        work(store, NOW + 1)
        assert not store.upkeep.checkpoints


STEPS = ["cleaned", "indexed", "swap", "one retired", "all retired", "renamed", "done"]


@pytest.mark.parametrize("stop_after", STEPS)
def test_a_kill_after_any_step_loses_nothing(tmp_path: Path, stop_after: str) -> None:
    with node_on(DiskDirectory(tmp_path / "one"), **compacted()) as node:  # type: ignore[arg-type]
        partition = node.open()
        fill(partition)
        before = rows(partition)
        chosen, _ = plan(partition, None, NOW)
        assert chosen is not None
        directory = partition.directory
        assert isinstance(directory, DiskDirectory)
        job = job_for(partition, chosen, NOW, 1000)
        group = next(step for step in clean(directory, job) if isinstance(step, CleanedSegments))
        _carry_out(partition, directory, group, stop_after)
        node.syncer.drain()  # or the copy would catch a file that is being replaced
        shutil.copytree(tmp_path / "one", tmp_path / "two")
    with node_on(DiskDirectory(tmp_path / "two"), **compacted()) as other:  # type: ignore[arg-type]
        again = other.open()
        after = rows(again)
        assert after.items() <= before.items(), "nothing is invented or moved"
        assert {row[0]: row for row in after.values()} == {row[0]: row for row in before.values()}
        assert again.log_end_offset == 12
        assert not [
            name for name in again.directory.names() if name.endswith((".cleaned", ".swap", ".deleted"))
        ]
        assert put(again, b"k0", b"x") == 12
        is_swapped = stop_after not in ("cleaned", "indexed")
        assert (len(after) < len(before)) == is_swapped


def _carry_out(
    partition: Partition, directory: DiskDirectory, group: CleanedSegments, stop_after: str
) -> None:
    """Carry out the steps of a replacement one by one, up to that one."""
    base = group.sources[0]
    if stop_after == "cleaned":
        return
    index_cleaned(directory, base, 4096)
    if stop_after == "indexed":
        return
    prepare_swap(directory, group)
    old = [segment for segment in partition.segments if segment.base_offset in group.sources]
    if stop_after == "one retired":
        old[0].retire()
    elif stop_after in ("all retired", "renamed"):
        for segment in old:
            segment.retire()
        if stop_after == "renamed":
            directory.rename(f"{base:020d}.log.swap", f"{base:020d}.log")
    elif stop_after == "done":
        for remove in swap(partition, group):
            remove()


def test_a_group_whose_segments_went_meanwhile_is_not_swapped_in(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path), **compacted()) as node:  # type: ignore[arg-type]
        partition = node.open()
        fill(partition)
        bases = [segment.base_offset for segment in partition.segments]
        assert swap_is_possible(partition, CleanedSegments(bases[:2], 0, 0))
        assert not swap_is_possible(partition, CleanedSegments(bases, 0, 0)), (
            "the active segment is never replaced"
        )
        partition.delete_records(bases[1])
        assert not swap_is_possible(partition, CleanedSegments(bases[:2], 0, 0))


def test_a_partition_is_not_unloaded_in_the_middle_of_a_pass(tmp_path: Path) -> None:
    """Loading recovers, and finishes the replacement by itself; the pass would then replace segments by nothing."""
    with node_on(DiskDirectory(tmp_path), **compacted()) as node:  # type: ignore[arg-type]
        partition = node.open()
        fill(partition)
        chosen, _ = plan(partition, None, NOW)
        assert chosen is not None
        results: list[object] = []
        passing = ChildPass(partition, job_for(partition, chosen, NOW, 1000), results.append, node.inbox)
        passing.start()
        home = tmp_path / "t-0"
        eventually(
            lambda: list(home.glob("*.log.swap")), "a swap is prepared, and the loop is to carry it out"
        )
        node.syncer.drain()
        (home / "leader-epoch-checkpoint").write_bytes(b"")  # as a power cut leaves it: a load would recover
        assert not partition.unload()
        before = {row[0]: row for row in rows(partition).values()}
        node.inbox.run_until(lambda: bool(results))
        assert isinstance(results[0], Covered)
        assert partition.stopped is None
        assert {row[0]: row for row in rows(partition).values()} == before
        assert partition.unload(), "now it may"
        assert {row[0]: row for row in rows(partition).values()} == before


class ShortLived(ChildPass):
    """The child process dies before it gets its job; else it could be done before a test has killed it."""

    def _talk(self, child: subprocess.Popen[str]) -> Covered | Spoiled | None:
        child.kill()
        return super()._talk(child)


def test_a_child_that_dies_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path), **compacted()) as node:  # type: ignore[arg-type]
        partition = node.open()
        fill(partition)
        before = rows(partition)
        chosen, _ = plan(partition, None, NOW)
        assert chosen is not None
        results: list[object] = []
        passing = ShortLived(partition, job_for(partition, chosen, NOW, 1000), results.append, node.inbox)
        passing.start()
        node.inbox.run_until(lambda: bool(results))
        assert results == [None]
        assert rows(partition) == before
        discard_unfinished(partition.directory)


def test_without_a_process_to_be_had_the_next_round_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with store_on(tmp_path) as store:
        partition = store.topics["t"].partitions[0]
        fill(partition)
        with monkeypatch.context() as crowded:
            crowded.setattr("kohort.log.maintenance.compaction.subprocess.Popen", refuse)
            store.housekeeping(NOW)
            assert not store.upkeep.is_busy
        assert "t-0: compaction failed: [Errno 11]" in caplog.text
        work(store, NOW + 1)
        assert len(rows(partition)) < 12
        assert store.upkeep.checkpoints


def planned(node: Node, checkpoint: int | None = None, now_ms: int = NOW) -> tuple[object, int]:
    partition = node.open()
    for n in range(6):
        put(partition, b"k", b"%d" % n, time=1000 * (n + 1))
    return plan(partition, checkpoint, now_ms)


def test_a_clean_log_waits_until_enough_is_dirty(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path), **compacted(min_cleanable_dirty_ratio=0.5)) as node:  # type: ignore[arg-type]
        partition = node.open()
        for n in range(9):
            put(partition, b"k", b"%d" % n)
        bases = [segment.base_offset for segment in partition.segments]
        sealed = len(bases) - 1
        needs = [plan(partition, base, NOW)[0] is not None for base in bases]
        ratios = [(sealed - at) / sealed for at in range(len(bases))]
        assert needs == [ratio > 0.5 for ratio in ratios]
        assert plan(partition, bases[-1], NOW) == (None, NEVER)
        beyond, _ = plan(partition, 99, NOW)
        assert beyond is not None, "a checkpoint behind the end is not believed"
        assert beyond.first_dirty_offset == 0


def test_young_records_are_not_compacted(tmp_path: Path) -> None:
    with node_on(DiskDirectory(tmp_path), **compacted(min_compaction_lag_ms=500)) as node:  # type: ignore[arg-type]
        chosen, again_ms = planned(node, now_ms=1400)
        first_time = node.open().segments[0].largest_timestamp()
        assert (chosen, again_ms) == (None, first_time + 500)


def test_after_the_longest_lag_a_little_dirt_is_enough(tmp_path: Path) -> None:
    config = compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000)
    with node_on(DiskDirectory(tmp_path), **config) as node:  # type: ignore[arg-type]
        chosen, again_ms = planned(node, now_ms=6000)
        assert (chosen, again_ms) == (None, 6001)
        assert plan(node.open(), None, again_ms)[0] is not None


def test_checkpoints_are_kept_in_kafkas_format(tmp_path: Path) -> None:
    directory = DiskDirectory(tmp_path)
    checkpoints = {("b", 1): 5, ("a", 0): 7}
    directory.replace(CHECKPOINT, encode_checkpoints(checkpoints))
    assert (tmp_path / CHECKPOINT).read_text() == "0\n2\na 0 7\nb 1 5\n"
    assert read_checkpoints(directory) == checkpoints
    for damage in ("", "1\n0\n", "0\n3\na 0 7\n", "0\n1\na 0\n", "0\nx\n"):
        directory.replace(CHECKPOINT, damage.encode())
        assert read_checkpoints(directory) == {}
