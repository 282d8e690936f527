from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort.log.config import TopicConfig
from kohort.log.datadir import (
    CLEAN_STOP,
    DataDirectory,
    DirectoryRefused,
    name_of_deleted,
    new_uuid,
    partition_of,
    topic_id_in,
    uuid_bytes,
    uuid_text,
)
from kohort.log.registry import (
    BrokerConfigSet,
    PartitionsAdded,
    RegistryEntry,
    TopicConfigSet,
    TopicCreated,
    TopicDeleted,
)
from kohort.log.store import Store
from kohort.settings import SettingError
from tests.log.support import PATIENCE_S, Inbox, append, content, headers_of, told

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def open_store(directory: Path | None, durability: str = "os", **options: object) -> Store:
    arguments: dict[str, object] = {"defaults": TopicConfig(), "now_ms": 0, "call_soon": Inbox(), **options}
    return Store.open(directory, durability=durability, **arguments)  # type: ignore[arg-type]


@contextmanager
def running(directory: Path | None, durability: str = "os", **options: object) -> Iterator[Store]:
    store = open_store(directory, durability, **options)
    try:
        yield store
    finally:
        store.close()


def do(store: Store, *entries: RegistryEntry) -> None:
    for entry in entries:
        store.persist(entry)
        store.apply(entry)


def crash(store: Store) -> None:
    """Leave the store as a killed process does: the lock is free, and nothing was closed."""
    store._syncer.close()
    assert store._data is not None
    store._data.close()


def ends(store: Store, topic: str = "t") -> list[int]:
    return [partition.log_end_offset for partition in store.topics[topic].partitions]


def test_everything_is_there_after_a_clean_stop(tmp_path: Path) -> None:
    with running(tmp_path, "disk") as store:
        do(store, TopicCreated("t", A, 2, {"retention.ms": "77"}), TopicCreated("u", B, 1))
        do(store, PartitionsAdded(A, 3), TopicConfigSet(B, {"cleanup.policy": "compact"}))
        do(store, BrokerConfigSet(None, {"message.max.bytes": "9"}))
        append(store.topics["t"].partitions[1], 5)
        cluster_id = store.cluster_id
    assert len(uuid_bytes(cluster_id) or b"") == 16
    with running(tmp_path, "disk") as again:
        assert again.cluster_id == cluster_id
        assert list(again.topics) == ["t", "u"]
        assert again.topics_by_id[A] is again.topics["t"]
        assert ends(again) == [0, 5, 0]
        assert again.topics["t"].config.retention_ms == 77
        assert all(partition.config is again.topics["u"].config for partition in again.topics["u"].partitions)
        assert again.topics["u"].config.compact
        assert again.broker_configs(None) == {"message.max.bytes": "9"}
        assert again.leader_epoch == 0
        assert [h.record_count for h in headers_of(content(again.topics["t"].partitions[1]))] == [5]


def test_after_a_crash_partitions_are_recovered_under_a_new_leader_epoch(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    do(store, TopicCreated("t", A, 2))
    append(store.topics["t"].partitions[0], 3)
    crash(store)
    log = next((tmp_path / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes() + b"torn")
    with running(tmp_path) as again:
        assert again.leader_epoch == 1
        assert ends(again) == [3, 0]
        assert [partition.leader_epoch for partition in again.topics["t"].partitions] == [1, 1]
        append(again.topics["t"].partitions[0], 1)
        partition = again.topics["t"].partitions[0]
        assert [header.partition_leader_epoch for header in headers_of(content(partition))] == [0, 1]
        assert partition.end_of_epoch(0) == (0, 3)
    with running(tmp_path) as third:
        assert third.leader_epoch == 1, "a clean stop keeps it"


def test_the_word_of_a_clean_stop_counts_once(tmp_path: Path) -> None:
    with running(tmp_path) as store:
        do(store, TopicCreated("t", A, 1))
        append(store.topics["t"].partitions[0], 3)
    assert (tmp_path / CLEAN_STOP).exists()
    second = open_store(tmp_path)
    assert not (tmp_path / CLEAN_STOP).exists()
    append(second.topics["t"].partitions[0], 2)
    crash(second)
    with running(tmp_path) as third:
        assert ends(third) == [5]
        assert third.leader_epoch == 1


def test_a_damaged_clean_stop_file_is_as_good_as_none(tmp_path: Path) -> None:
    with running(tmp_path) as store:
        do(store, TopicCreated("t", A, 1))
        append(store.topics["t"].partitions[0], 3)
    data = bytearray((tmp_path / CLEAN_STOP).read_bytes())
    data[-3] ^= 1
    (tmp_path / CLEAN_STOP).write_bytes(data)
    with running(tmp_path) as again:
        assert ends(again) == [3]
        assert again.leader_epoch == 1


def test_a_topic_made_again_under_the_same_name_starts_empty(tmp_path: Path) -> None:
    with running(tmp_path) as store:
        do(store, TopicCreated("t", A, 1))
        append(store.topics["t"].partitions[0], 3)
        old = store.topics["t"].partitions[0]
        do(store, TopicDeleted(A), TopicCreated("t", B, 1))
        assert old.deleted
        assert A not in store.topics_by_id
        assert ends(store) == [0]
        append(store.topics["t"].partitions[0], 1)
        assert topic_id_in(tmp_path / "t-0") == B
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["t-0"]
    with running(tmp_path) as again:
        assert ends(again) == [1]


def test_what_a_crash_left_of_deleted_topics_is_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    do(store, TopicCreated("t", A, 1), TopicCreated("u", B, 1))
    append(store.topics["t"].partitions[0], 3)
    append(store.topics["u"].partitions[0], 4)
    crash(store)
    # deleted in the journal, and one made again, but no directory was touched any more
    registry = open_store(tmp_path)._registry
    for entry in (TopicDeleted(A), TopicCreated("t", C, 1), TopicDeleted(B)):
        registry.append(entry)
    (tmp_path / "x-0.0123-delete").mkdir()
    registry.close()
    other = _unlocked(tmp_path)
    with running(other) as again:
        assert ends(again) == [0]
        assert again.unowned == []
    assert [path.name for path in other.iterdir() if path.is_dir()] == []


def _unlocked(directory: Path) -> Path:
    """The same files in a directory that no process holds."""
    other = directory.with_name(directory.name + "-copy")
    subprocess.run(["cp", "-r", directory, other], check=True)
    return other


def test_a_directory_of_no_topic_is_reported_and_left_alone(tmp_path: Path) -> None:
    with running(tmp_path) as store:
        do(store, TopicCreated("t", A, 1))
    stray = tmp_path / "stray-0"
    stray.mkdir()
    (stray / "00000000000000000000.log").write_bytes(b"precious")
    (tmp_path / "notes").mkdir()
    with running(tmp_path) as again:
        assert again.unowned == ["stray-0"]
        do(again, TopicCreated("stray", B, 1))
        assert ends(again, "stray") == [0], "a new topic of that name does not inherit it"
        append(again.topics["stray"].partitions[0], 1)
        assert again.unowned == []
    assert (tmp_path / "notes").exists()


def test_another_process_is_refused_with_the_id_of_the_first(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom kohort.log.datadir import DataDirectory\n"
        "DataDirectory.open(Path(sys.argv[1]), 1)\nprint('open', flush=True)\nsys.stdin.read()\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdin is not None
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == b"open\n"
        with pytest.raises(DirectoryRefused, match=f"in use by process {first.pid}"):
            open_store(tmp_path)
    finally:
        first.stdin.close()
        first.wait(timeout=PATIENCE_S)
        first.stdout.close()
    open_store(tmp_path).close()


def test_one_process_cannot_open_it_twice(tmp_path: Path) -> None:
    with running(tmp_path), pytest.raises(DirectoryRefused, match=f"in use by process {os.getpid()}"):
        open_store(tmp_path)


def test_a_directory_of_another_node_or_format_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, node_id=1):
        pass
    with pytest.raises(DirectoryRefused, match=r"belongs to node 1, this is node 2; set node.id=1"):
        open_store(tmp_path, node_id=2)
    meta = tmp_path / "meta.json"
    meta.write_text(meta.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(DirectoryRefused, match="has format 2, this version knows 1"):
        open_store(tmp_path)
    meta.write_text("{")
    with pytest.raises(DirectoryRefused, match="is damaged"):
        open_store(tmp_path)


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(DirectoryRefused, match="is not empty"):
        open_store(tmp_path)
    with pytest.raises(DirectoryRefused, match="is a file"):
        open_store(tmp_path / "thesis.tex")


def test_a_topic_setting_that_is_wrong_now_names_the_topic(tmp_path: Path) -> None:
    with running(tmp_path) as store:
        do(store, TopicCreated("t", A, 1))
        store.persist(TopicConfigSet(A, {"retention.ms": "soon"}))
    with pytest.raises(SettingError, match=r"topic t: Invalid value soon for configuration retention.ms"):
        open_store(tmp_path)


def test_partition_directories_say_whose_they_are_as_kafkas_do(tmp_path: Path) -> None:
    with running(tmp_path, "disk") as store:
        do(store, TopicCreated("t", A, 2))
        append(store.topics["t"].partitions[1])
    assert not (tmp_path / "t-0").exists(), "a partition that was never used has no directory"
    assert (
        tmp_path / "t-1" / "partition.metadata"
    ).read_text() == "version: 0\ntopic_id: YWFhYWFhYWFhYWFhYWFhYQ"


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = [store.allocate_producer_id() for _ in range(1500)]
    crash(store)
    with running(tmp_path) as again:
        second = [again.allocate_producer_id() for _ in range(10)]
    with running(tmp_path) as third:
        third_ids = [third.allocate_producer_id()]
    assert first == list(range(1500))
    assert len({*first, *second, *third_ids}) == 1511


def test_new_defaults_reach_topics_that_say_nothing() -> None:
    with running(None, "memory") as store:
        do(store, TopicCreated("t", A, 1, {"retention.ms": "5"}), TopicCreated("u", B, 1))
        store.set_defaults(TopicConfig(retention_ms=9, segment_ms=8))
        assert store.topics["t"].config.retention_ms == 5
        assert store.topics["u"].partitions[0].config.retention_ms == 9
        assert store.topics["t"].partitions[0].config.segment_ms == 8


def test_in_memory_the_disk_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with running(None, "memory") as store:
        do(store, TopicCreated("t", A, 2))
        append(store.topics["t"].partitions[0], 3)
        assert store.allocate_producer_id() == 0
        assert store.directory is None
        do(store, TopicDeleted(A), TopicCreated("t", B, 1))
        assert ends(store) == [0]
        append(store.topics["t"].partitions[0], 1)
        store.housekeeping(0)
    assert list(tmp_path.iterdir()) == []


def test_more_partitions_in_use_than_files_may_be_open(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store._data is not None
    store._data.pool.limit = 4
    do(store, TopicCreated("t", A, 20))
    for partition in store.topics["t"].partitions:
        append(partition, 2)
        assert len(store._data.pool) <= 5
    store.close()
    with running(tmp_path) as again:
        assert ends(again) == [2] * 20
        assert again.leader_epoch == 0


def test_a_stop_that_fails_lets_go_of_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    do(store, TopicCreated("t", A, 1))
    append(store.topics["t"].partitions[0], 3)

    def full(self: DataDirectory, stop: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(DataDirectory, "write_clean_stop", full)
        with pytest.raises(OSError, match="No space"):
            store.close()
    with running(tmp_path) as again:
        assert (ends(again), again.leader_epoch) == ([3], 1)


def test_names() -> None:
    assert partition_of("a-b-12") == ("a-b", 12)
    assert partition_of("notes") is None
    long = name_of_deleted("x" * 249 + "-1234", A)
    assert len(long) == 255
    assert long.endswith(f".{A.hex()}-delete")
    assert all(not uuid_text(new_uuid()).startswith("-") for _ in range(200))
    assert uuid_bytes(uuid_text(A)) == A
    assert uuid_bytes("short") is None


def test_a_start_with_many_partitions_after_a_clean_stop_opens_none_of_them(tmp_path: Path) -> None:
    count = 2000
    with running(tmp_path) as store:
        do(store, *(TopicCreated(f"topic-{n}", n.to_bytes(16, "big"), 10) for n in range(1, count // 10 + 1)))
        for topic in store.topics.values():
            append(topic.partitions[3], 2)
    began = time.thread_time()  # of the processor: others may keep us waiting
    again = open_store(tmp_path)
    took = time.thread_time() - began
    try:
        assert took < 2, f"{took:.2f} s for {count} partitions"
        assert again._data is not None
        assert len(again._data.pool) == 0
        assert ends(again, "topic-7") == [0, 0, 0, 2, 0, 0, 0, 0, 0, 0]
    finally:
        again.close()


def test_compaction_comes_more_often_than_retention(tmp_path: Path) -> None:
    """Records that are old when they are produced can be read until the next round of retention, as in Kafka."""
    inbox = Inbox()
    with running(tmp_path, call_soon=inbox) as store:
        do(store, TopicCreated("t", A, 1, {"retention.ms": "5"}))
        do(store, TopicCreated("c", B, 1, {"retention.ms": "5", "cleanup.policy": "compact,delete"}))
        store.set_upkeep(
            compacts=True, max_keys=100, producer_id_expiration_ms=1000, retention_interval_ms=300_000
        )
        plain, compacted = store.topics["t"].partitions[0], store.topics["c"].partitions[0]
        store.housekeeping(100_000)
        append(plain, 3)
        append(compacted, 3)
        starts = []
        for now_ms in (110_000, 115_000, 120_000, 400_000, 415_000):
            store.housekeeping(now_ms)
            inbox.run_until(lambda: not store.upkeep.is_busy)
            starts.append((plain.log_start_offset, compacted.log_start_offset))
            if now_ms == 115_000:
                append(plain, 1)
        assert starts == [(0, 3), (3, 3), (3, 3), (3, 3), (4, 3)]


def test_a_last_batch_larger_than_the_index_interval_is_no_damage_after_a_clean_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The offset index is empty until the batch after it."""
    with running(tmp_path) as store:
        do(store, TopicCreated("t", A, 1))
        append(store.topics["t"].partitions[0], size=10)
        append(store.topics["t"].partitions[0], size=6000)
    with running(tmp_path) as again:
        assert len(headers_of(content(again.topics["t"].partitions[0]))) == 2
    assert told(caplog) == []
