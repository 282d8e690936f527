"""Partitions find their directories by name: what a deleted topic left must never be taken for a new one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.log.datadir import PARTITION_METADATA, topic_id_in
from kohort.log.registry import TopicCreated, TopicDeleted
from kohort.log.store import Store
from kohort.wire.errors import ErrorCode
from tests.log.power import Disk
from tests.log.support import Inbox, append
from tests.log.test_store import A, B, crash, do, ends, open_store, running


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "data").mkdir()
    return Disk(tmp_path / "data").watch(monkeypatch)


def left_without_its_id(directory: Path, *then: TopicCreated | TopicDeleted) -> None:
    """Topic A with three records, a power cut that took only the id, and perhaps what `then` has made durable."""
    store = open_store(directory)
    do(store, TopicCreated("t", A, 1))
    append(store.topics["t"].partitions[0], 3)
    store.persist(*then)
    crash(store)
    (directory / "t-0" / PARTITION_METADATA).write_bytes(b"")


def append_durably(store: Store, inbox: Inbox) -> None:
    partition = store.topics["t"].partitions[0]
    answers: list[ErrorCode] = []
    append(partition, 1)
    partition.when_durable(partition.log_end_offset, answers.append)
    inbox.run_until(lambda: bool(answers))
    assert answers == [ErrorCode.NONE]


def test_an_id_that_a_power_cut_took_is_written_again(disk: Disk, tmp_path: Path) -> None:
    left_without_its_id(disk.root)
    with running(disk.root, "disk") as again:
        assert ends(again) == [3]
        assert topic_id_in(disk.root / "t-0") == A
        assert topic_id_in(disk.cut(tmp_path / "cut") / "t-0") == A, "it is safe as well"


def test_what_does_not_say_whose_it_is_is_not_taken_for_a_topic_made_again(tmp_path: Path) -> None:
    left_without_its_id(tmp_path / "data", TopicDeleted(A), TopicCreated("t", B, 1))
    with running(tmp_path / "data", "disk") as again:
        assert ends(again) == [0]
        append(again.topics["t"].partitions[0])
    assert topic_id_in(tmp_path / "data" / "t-0") == B


def test_the_id_is_safe_before_anything_is_promised_although_the_one_that_wrote_it_died(
    disk: Disk, tmp_path: Path
) -> None:
    killed = open_store(disk.root)  # it syncs nothing
    do(killed, TopicCreated("t", A, 1))
    append(killed.topics["t"].partitions[0], 3)
    crash(killed)
    (disk.root / "unsynced").unlink()  # as if it had meant to
    with running(disk.root, "disk") as again:
        assert ends(again) == [3]
        assert topic_id_in(disk.cut(tmp_path / "cut") / "t-0") == A


def test_an_id_that_a_full_disk_refused_is_written_with_the_next_append(tmp_path: Path) -> None:
    with running(tmp_path) as store:
        do(store, TopicCreated("t", A, 1))
        (tmp_path / "t-0").mkdir()
        append(store.topics["t"].partitions[0])
        assert topic_id_in(tmp_path / "t-0") == A


@pytest.mark.parametrize("stopped", [True, False])
def test_what_was_written_without_syncs_is_synced_before_durability_disk_promises_anything(
    disk: Disk, tmp_path: Path, stopped: bool
) -> None:
    store = open_store(disk.root)
    do(store, TopicCreated("t", A, 1))
    append(store.topics["t"].partitions[0], 3)
    (store.close if stopped else lambda: crash(store))()
    inbox = Inbox()
    with running(disk.root, "disk", call_soon=inbox) as again:
        append_durably(again, inbox)
        after = disk.cut(tmp_path / "cut")
    with running(after, "disk") as last:
        assert ends(last) == [4]
    assert not (after / "unsynced").exists()
