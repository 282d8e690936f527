"""What a start reads and what it does not; state files; work that a crash interrupted."""

from __future__ import annotations

import logging

import pytest

from kohort.log.durability import tracker
from kohort.log.partition import Partition
from kohort.log.storage.files import Directory
from kohort.log.storage.index import OffsetIndex
from kohort.log.storage.recovery import CleanState, StateFile, offsets_of, verify
from kohort.log.storage.segment import LOG
from tests.log.support import Node, append, content, headers_of, node_on, told


def states_in(directory: Directory) -> list[int]:
    return offsets_of(directory.child("t-0").names(), ".state")


def spoil(directory: Directory, name: str, at: int) -> None:
    """One wrong bit."""
    home = directory.child("t-0")
    data = bytearray(home.read(name) or b"")
    data[at] ^= 1
    home.replace(name, bytes(data))


def log_name(base: int) -> str:
    return f"{base:020d}{LOG}"


def rolled(node: Node, count: int = 20) -> list[int]:
    """A partition of several segments; their base offsets."""
    partition = node.open()
    for n in range(count):
        append(partition, 2, timestamp=1000 + n)
    bases = [segment.base_offset for segment in partition.segments]
    node.crash()
    assert len(bases) > 3
    return bases


def test_a_state_survives_its_encoding_and_damage_is_noticed() -> None:
    state = StateFile(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, b"producers")
    data = state.encode()
    assert StateFile.decode(data) == state
    for at in range(len(data)):
        assert StateFile.decode(data[:at]) is None
        assert StateFile.decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


def test_a_roll_leaves_a_state_file_and_removes_old_ones(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        bases = rolled(node)
        assert 1 <= len(states_in(directory)) <= 2
        assert states_in(directory)[-1] >= bases[-1]


def test_sealed_segments_are_not_read_by_a_start_after_a_crash(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        bases = rolled(node)
        for base in bases[:-2]:
            spoil(directory, log_name(base), 30)
        assert node.open().log_end_offset == 40


def test_without_a_state_file_everything_is_walked(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        bases = rolled(node)
        for offset in states_in(directory):
            directory.child("t-0").delete(f"{offset:020d}.state")
        before = content(node.open())
        assert [header.base_offset for header in headers_of(before)] == list(range(0, 40, 2))
        spoil(directory, log_name(bases[1]), 30)
        assert node.open().log_end_offset == bases[1]


@pytest.mark.parametrize("which", ["newest", "all"])
def test_a_damaged_state_file_is_as_good_as_none(directory: Directory, which: str) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        rolled(node)
        states = states_in(directory)
        for offset in states[-1:] if which == "newest" else states:
            spoil(directory, f"{offset:020d}.state", 20)
        again = node.open()
        assert again.log_end_offset == 40
        assert append(again) == 40


def test_a_state_beyond_the_data_is_not_believed(directory: Directory) -> None:
    """Durability os, and the machine lost power: the small file was written, the large one was not."""
    with node_on(directory, internal_segment_bytes=300) as node:
        bases = rolled(node)
        home = directory.child("t-0")
        last = home.open(log_name(bases[-1]), private=True)
        last.truncate(0)
        last.close()
        again = node.open()
        assert again.log_end_offset == bases[-1]
        assert max(states_in(directory), default=0) <= bases[-1]


@pytest.mark.parametrize("state", ["kept", "lost"])
def test_no_index_file_stays_that_tells_of_batches_that_are_gone(directory: Directory, state: str) -> None:
    """The old index would be overwritten, but could come back after a power cut, beside a log with other batches."""
    with node_on(directory, index_interval_bytes=100) as node:
        home, partition = directory.child("t-0"), node.open()
        for _ in range(10):
            append(partition)
        partition.close()  # leaves a state
        kept = partition.segments[-1].size
        again = node.crash().open()
        for _ in range(10):
            append(again)
        again.segments[-1].flush_indexes()
        told = home.read(f"{0:020d}.index") or b""
        assert OffsetIndex.decode(told, again.segments[-1].size).positions[-1] > kept
        log = home.open(log_name(0), private=True)
        log.truncate(kept)
        log.close()
        if state == "lost":
            for offset in states_in(directory):
                home.delete(f"{offset:020d}.state")
        assert node.crash().open().log_end_offset == 10
        told = home.read(f"{0:020d}.index") or b""
        assert all(position < kept for position in OffsetIndex.decode(told, 1 << 30).positions)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_whose_end_did_not_reach_the_disk_is_rebuilt(directory: Directory, suffix: str) -> None:
    """Indexes of sealed segments are not synced; a power cut may leave zeros in the last entry."""
    with node_on(directory, internal_segment_bytes=1000, index_interval_bytes=100) as node:
        bases = rolled(node, 60)
        home, name = directory.child("t-0"), f"{bases[1]:020d}{suffix}"
        whole = home.read(name) or b""
        places, times = look_ups(node.open(), bases[1])
        assert len(whole) >= 2 * 12
        for lost in range(1, 13):
            home.replace(name, whole[:-lost] + bytes(lost))
            assert look_ups(node.crash().open(), bases[1]) == (places, times)


def look_ups(partition: Partition, base: int) -> tuple[list[object], list[object]]:
    """Where every offset of a segment lies, and what is found for every time in it."""
    segment = next(each for each in partition.segments if each.base_offset == base)
    offsets = range(base, base + 20)
    return [segment.locate(offset) for offset in offsets], [
        segment.find_time(1000 + offset // 2, base) for offset in offsets
    ]


def test_a_state_file_is_due_every_so_many_batches(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker, "STATE_EVERY_BATCHES", 10)
    with node_on(directory, "disk") as node:
        partition = node.open()
        for _ in range(25):
            append(partition)
            node.inbox.run_until(lambda: partition.high_watermark == partition.log_end_offset)
        node.syncer.drain()
        assert states_in(directory) == [11, 22]
        # What lies before the state is not looked at again, not even its first batch.
        spoil(directory, log_name(0), 30)
        again = node.crash().open()
        assert again.log_end_offset == 25
        assert append(again) == 25


def test_a_crash_between_the_steps_of_a_roll(directory: Directory) -> None:
    """Index written or not, new segment created or not: the same log."""
    with node_on(directory, internal_segment_bytes=300) as node:
        bases = rolled(node)
        whole = content(node.open())
        home = directory.child("t-0")
        for gone in (".index", ".timeindex"):
            for base in bases:
                home.delete(f"{base:020d}{gone}")
            assert content(node.open()) == whole
        home.open(log_name(40), private=True).append(b"")
        again = node.open()
        assert content(again) == whole
        assert [segment.base_offset for segment in again.segments] == [*bases, 40]
        assert append(again) == 40
        assert again.size > len(whole)


@pytest.mark.parametrize("has_index", [True, False])
def test_a_segment_that_has_grown_but_whose_data_never_came_is_cut_to_nothing(
    directory: Directory, has_index: bool
) -> None:
    with node_on(directory, internal_segment_bytes=300, index_interval_bytes=50) as node:
        partition = node.open()
        while len(partition.segments) < 3:
            append(partition, 2)
        partition.roll(0)  # with a state that says: good up to the beginning of a new segment
        begins = partition.log_end_offset
        node.crash()
        home = directory.child("t-0")
        assert begins in states_in(directory)
        home.replace(log_name(begins), bytes(2000))
        for suffix in (".index", ".timeindex"):
            if has_index:
                home.replace(f"{begins:020d}{suffix}", b"")
            else:
                home.delete(f"{begins:020d}{suffix}")
        again = node.open()
        assert again.log_end_offset == begins
        assert append(again) == begins


def test_leftovers_of_an_interrupted_compaction(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        bases = rolled(node)
        home = directory.child("t-0")
        first, second = home.read(log_name(bases[0])), home.read(log_name(bases[1]))
        assert first is not None
        assert second is not None
        kept = first[: headers_of(first)[0].size] + second
        home.replace(log_name(bases[0]) + ".swap", kept)
        home.replace(f"{bases[0]:020d}.index.swap", b"")
        home.replace(log_name(bases[2]) + ".cleaned", b"half")
        home.replace(log_name(bases[2]) + ".deleted", b"old")
        home.replace("log-start-offset.tmp", b"9")
        home.delete(log_name(bases[1]))  # the crash came between two steps of the swap
        again = node.open()
        assert [segment.base_offset for segment in again.segments] == [bases[0], *bases[2:]]
        assert home.read(log_name(bases[0])) == kept
        assert not [name for name in home.names() if name.endswith((".swap", ".cleaned", ".deleted", ".tmp"))]
        offsets = [header.base_offset for header in headers_of(content(again))]
        assert offsets == [0, *range(bases[1], 40, 2)]
        assert again.log_end_offset == 40


def test_a_swap_takes_the_place_of_all_segments_it_covers(directory: Directory) -> None:
    """The crash came before the first of the old ones was deleted."""
    with node_on(directory, internal_segment_bytes=300) as node:
        bases = rolled(node)
        home = directory.child("t-0")
        merged = b"".join(home.read(log_name(base)) or b"" for base in bases[1:3])
        home.replace(log_name(bases[1]) + ".swap", merged)
        whole = content(node.open())
        assert [header.base_offset for header in headers_of(whole)] == list(range(0, 40, 2))
        assert offsets_of(home.names(), LOG) == [*bases[:2], *bases[3:]]
        assert home.read(log_name(bases[1])) == merged


def test_a_clean_stop_is_believed(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        partition = node.open()
        for _ in range(10):
            append(partition, 2)
        before, clean = content(partition), partition.close()
        spoil(directory, log_name(partition.segments[-1].base_offset), 30)
        again = node.crash().open(clean=clean)
        assert (again.log_start_offset, again.log_end_offset, again.size) == (0, 20, len(before))
        assert len(content(again)) == len(before)
        assert append(again) == 20


def test_clean_stops_follow_each_other_without_a_recovery(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    with node_on(directory) as node:
        clean = CleanState()
        for turn in range(4):
            partition = node.crash().open(clean=clean)
            assert append(partition, 2) == 2 * turn
            clean = partition.close()
        partition = node.crash().open(clean=clean)
        assert len(headers_of(content(partition))) == 4, "only read"
        assert partition.close() == clean
        assert len(headers_of(content(node.crash().open(clean=clean)))) == 4
        assert len(states_in(directory)) <= 2
    assert told(caplog) == []


def test_a_directory_that_changed_after_a_clean_stop_is_recovered(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    with node_on(directory) as node:
        partition = node.open()
        for _ in range(3):
            append(partition, 2)
        clean = partition.close()
        file = directory.child("t-0").open(log_name(0), private=True)
        file.truncate(file.size - 1)
        file.close()
        again = node.crash().open(clean=clean)
        with caplog.at_level(logging.WARNING):
            assert append(again) == 4
        assert "recovering" in caplog.text


def test_verify_names_the_damage(directory: Directory) -> None:
    with node_on(directory, internal_segment_bytes=300) as node:
        bases = rolled(node)
        home = directory.child("t-0")
        assert list(verify(home, "t", 0)) == []
        spoil(directory, log_name(bases[1]), 30)
        (damage,) = verify(home, "t", 0)
        assert (damage.topic, damage.partition, damage.offset) == ("t", 0, bases[1])
        assert log_name(bases[1]) in str(damage)
        assert "CRC" in str(damage)
