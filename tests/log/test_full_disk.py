"""A disk that is full: the append is refused, nothing half-written stays, what was acknowledged is still there."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.log.partition import Durability, Partition
from kohort.log.storage.files import Directory, DiskDirectory
from kohort.log.storage.recovery import CleanState
from kohort.wire.errors import ErrorCode, KafkaError
from tests.log.faulty import Faults, FaultyDirectory
from tests.log.support import PATIENCE_S, append, content, headers_of, make_batch, node_on

FRESH = CleanState()
BATCH = len(make_batch()[0])
DURABILITIES: list[Durability] = ["disk", "os"]


def fill(partition: Partition, most: int = 100_000, **batch: int) -> int:
    """Append until the disk is full, and return how many batches were written."""
    for n in range(most):
        try:
            append(partition, **batch)
        except KafkaError as refused:
            if refused.code == ErrorCode.KAFKA_STORAGE_ERROR:
                return n
            raise
    raise AssertionError("the disk did not fill up")


def stands_still_and_serves(partition: Partition, appended: int, why: str) -> None:
    assert partition.log_end_offset == partition.high_watermark == appended
    assert why in (partition.stopped or "")
    with pytest.raises(KafkaError) as refused:
        append(partition)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [header.base_offset for header in headers_of(content(partition))] == list(range(appended))


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("left", [0, 1, 60, 61, BATCH - 1])
def test_a_torn_write_is_cut_and_the_partition_stops(
    directory: Directory, durability: Durability, left: int
) -> None:
    faults = Faults(bytes_left=3 * BATCH + left)
    with node_on(FaultyDirectory(directory, faults), durability) as node:  # type: ignore[arg-type]
        partition = node.open(clean=FRESH)
        woken: list[str | None] = []
        assert fill(partition) == 3
        node.syncer.drain()
        partition.add_waiter(lambda: woken.append(partition.stopped))
        stands_still_and_serves(partition, 3, "No space left")
        assert directory.child("t-0").open("00000000000000000000.log").size == 3 * BATCH
        assert node.fatal == []
        faults.bytes_left = None
        again = node.crash().open()
        assert append(again) == 3


def test_producers_that_were_appended_before_are_answered_well(directory: Directory) -> None:
    faults = Faults(bytes_left=2 * BATCH)
    with node_on(FaultyDirectory(directory, faults), "disk") as node:  # type: ignore[arg-type]
        partition = node.open(clean=FRESH)
        answers: list[ErrorCode] = []
        for n in range(2):
            append(partition)
            partition.when_durable(n + 1, answers.append)
        woken: list[str | None] = []
        partition.add_waiter(lambda: woken.append(partition.stopped))
        assert fill(partition) == 0
        assert woken[-1] == partition.stopped
        node.inbox.run_until(lambda: len(answers) == 2)
        assert answers == [ErrorCode.NONE] * 2


def test_if_the_torn_write_cannot_be_cut_it_is_said_and_the_next_start_cuts_it(directory: Directory) -> None:
    faults = Faults(bytes_left=BATCH + 10, fail_truncate=True)
    with node_on(FaultyDirectory(directory, faults)) as node:  # type: ignore[arg-type]
        partition = node.open(clean=FRESH)
        assert fill(partition) == 1
        stands_still_and_serves(partition, 1, "could not be cut")
        faults.bytes_left, faults.fail_truncate = None, False
        again = node.crash().open()
        assert (again.log_end_offset, again.size) == (1, BATCH)
        assert append(again) == 1


def test_a_full_disk_at_a_roll_costs_an_index_but_no_record(directory: Directory) -> None:
    faults = Faults(bytes_left=3 * BATCH + 5)
    with node_on(
        FaultyDirectory(directory, faults), internal_segment_bytes=3 * BATCH, index_interval_bytes=1
    ) as node:  # type: ignore[arg-type]
        partition = node.open(clean=FRESH)
        assert fill(partition) == 3
        stands_still_and_serves(partition, 3, "No space left")
        faults.bytes_left = None
        again = node.crash().open()
        assert [header.base_offset for header in headers_of(content(again))] == [0, 1, 2]
        assert append(again) == 3


def test_a_state_file_that_does_not_fit_stops_nothing(
    directory: Directory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.log.durability.tracker.STATE_EVERY_BATCHES", 3)
    faults = Faults(bytes_left=4 * BATCH + 50)
    with node_on(FaultyDirectory(directory, faults), "disk") as node:  # type: ignore[arg-type]
        partition = node.open(clean=FRESH)
        for _ in range(4):
            append(partition)
            node.inbox.run_until(lambda: partition.high_watermark == partition.log_end_offset)
        assert "a state file was not written after a sync: [Errno 28]" in caplog.text
        assert partition.stopped is None
        assert node.fatal == []


# With a real full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 2 MB; None where mounting is not permitted, and a limit of the file size is used instead."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "kohort-test", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode == 0:
        try:
            yield tmp_path
        finally:
            subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    else:
        yield tmp_path / "unmounted"


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_real_disk_of_two_megabytes(small_disk: Path, durability: Durability) -> None:
    if small_disk.name == "unmounted":
        small_disk.mkdir()
        run_with_file_size_limit(small_disk, durability)
        return
    with node_on(DiskDirectory(small_disk), durability, internal_segment_bytes=500_000) as node:
        partition = node.open(clean=FRESH)
        appended = fill(partition, size=3000)
        node.syncer.drain()
        assert appended > 400
        stands_still_and_serves(partition, appended, "No space left")
        assert node.fatal == []
        start = partition.segments[2].base_offset + 1
        assert partition.delete_records(start) == start, "an admin can make room even now"
        again = node.crash().open()
        assert (again.log_start_offset, again.log_end_offset) == (start, appended)
        assert append(again) == appended
        node.directory.pool.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_real_short_write(tmp_path: Path, durability: Durability) -> None:
    """The kernel writes a part of the batch and refuses the rest (EFBIG): a limit on the size of files."""
    run_with_file_size_limit(tmp_path, durability)


def run_with_file_size_limit(directory: Path, durability: Durability) -> None:
    script = f"""
        import resource, signal
        from pathlib import Path
        from tests.log.test_full_disk import fill_up_to_a_limit
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        fill_up_to_a_limit(Path({str(directory)!r}), {durability!r})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr


def fill_up_to_a_limit(directory: Path, durability: Durability) -> None:
    """In a process of its own, whose files may have 100,000 bytes."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    size = len(make_batch(size=3000)[0])
    assert limit % size, "the last write must be a short one"
    with node_on(DiskDirectory(directory), durability) as node:
        partition = node.open(clean=FRESH)
        appended = fill(partition, size=3000)
        node.syncer.drain()
        assert appended == limit // size
        stands_still_and_serves(partition, appended, f"[Errno {errno.EFBIG}]")
        assert (directory / "t-0" / "00000000000000000000.log").stat().st_size == appended * size
        assert node.fatal == []
        assert node.crash().open().log_end_offset == appended
