from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from kohort.log.registry import (
    REGISTRY_FILE,
    BrokerConfigSet,
    ClientMetricsSet,
    DamagedRegistry,
    EpochBumped,
    GroupConfigSet,
    PartitionsAdded,
    ProducerIdsReserved,
    Registry,
    RegistryEntry,
    TopicConfigSet,
    TopicCreated,
    TopicDeleted,
    encode_entry,
)
from kohort.log.storage.files import DiskDirectory, DiskFile
from kohort.wire.errors import KafkaError

A, B = b"a" * 16, b"b" * 16
HISTORY: list[RegistryEntry] = [
    TopicCreated("orders", A, 3, {"retention.ms": "5"}),
    TopicCreated("lines", B, 1),
    PartitionsAdded(A, 6),
    TopicConfigSet(A, {"cleanup.policy": "compact", "segment.ms": "7"}),
    BrokerConfigSet(None, {"message.max.bytes": "9"}),
    ProducerIdsReserved(1000),
    EpochBumped(1),
    TopicDeleted(B),
    BrokerConfigSet(1, {"log.retention.ms": "10"}),
    GroupConfigSet("g", {"share.isolation.level": "read_committed"}),
    GroupConfigSet("h", {"share.isolation.level": "read_committed"}),
    GroupConfigSet("h", {}),
    ClientMetricsSet("m", {"interval.ms": "1000"}),
    ClientMetricsSet("n", {"interval.ms": "1000"}),
    ClientMetricsSet("n", {}),
]


def state(registry: Registry) -> object:
    return list(registry.live_entries())


def after(entries: list[RegistryEntry]) -> object:
    registry = Registry()
    for entry in entries:
        registry.apply(entry)
    return state(registry)


def write(directory: Path, entries: list[RegistryEntry]) -> Registry:
    registry = Registry.open(DiskDirectory(directory))
    for entry in entries:
        registry.append(entry)
        registry.apply(entry)
    return registry


def test_what_was_journaled_is_there_after_a_restart(tmp_path: Path) -> None:
    before = write(tmp_path, HISTORY)
    again = Registry.open(DiskDirectory(tmp_path))
    assert state(again) == state(before)
    assert again.topics[A].partitions == 6
    assert again.topics[A].overrides == {"cleanup.policy": "compact", "segment.ms": "7"}
    assert B not in again.topics
    assert (again.next_producer_id, again.leader_epoch) == (1000, 1)
    assert again.broker_configs == {None: {"message.max.bytes": "9"}, 1: {"log.retention.ms": "10"}}


def test_nobody_but_the_owner_reads_the_journal(tmp_path: Path) -> None:
    """It has the keys of users, and it may come from a version that let everybody read it."""
    (tmp_path / REGISTRY_FILE).touch(mode=0o644)
    Registry.open(DiskDirectory(tmp_path)).close()
    assert (tmp_path / REGISTRY_FILE).stat().st_mode & 0o777 == 0o600


def test_a_line_torn_at_any_byte_is_cut_and_the_journal_goes_on(tmp_path: Path) -> None:
    lines = [encode_entry(entry) for entry in HISTORY]
    whole = b"".join(lines)
    for size in range(len(whole)):
        (tmp_path / REGISTRY_FILE).write_bytes(whole[:size])
        complete = whole[:size].count(b"\n")
        registry = Registry.open(DiskDirectory(tmp_path), sync=False)
        assert state(registry) == after(HISTORY[:complete]), size
        registry.append(EpochBumped(77))
        registry.close()
        again = Registry.open(DiskDirectory(tmp_path), sync=False)
        assert again.leader_epoch == 77, size
        again.close()


def test_a_last_line_of_garbage_with_a_newline_is_cut(tmp_path: Path) -> None:
    good = encode_entry(HISTORY[0])
    (tmp_path / REGISTRY_FILE).write_bytes(good + b"\0" * 20 + b"\n")
    Registry.open(DiskDirectory(tmp_path)).close()
    assert (tmp_path / REGISTRY_FILE).read_bytes() == good


def test_damage_before_the_last_line_stops_the_start(tmp_path: Path) -> None:
    lines = [encode_entry(entry) for entry in HISTORY]
    whole = bytearray(b"".join(lines))
    whole[len(lines[0]) + 12] ^= 1
    (tmp_path / REGISTRY_FILE).write_bytes(whole)
    with pytest.raises(DamagedRegistry, match=rf"damaged at line 2 \(byte {len(lines[0])}\)"):
        Registry.open(DiskDirectory(tmp_path))
    assert (tmp_path / REGISTRY_FILE).read_bytes() == whole, "a damaged journal is left as it is"


def test_an_entry_of_a_newer_version_is_not_cut(tmp_path: Path) -> None:
    text = b'{"type":"topic_renamed","name":"x"}'
    line = b"%08x %s\n" % (zlib.crc32(text), text)
    (tmp_path / REGISTRY_FILE).write_bytes(line)
    with pytest.raises(DamagedRegistry, match="topic_renamed"):
        Registry.open(DiskDirectory(tmp_path))
    assert (tmp_path / REGISTRY_FILE).read_bytes() == line


def test_a_journal_grown_to_twice_its_live_size_is_rewritten_on_start(tmp_path: Path) -> None:
    noise: list[RegistryEntry] = [TopicConfigSet(A, {"retention.ms": str(n)}) for n in range(2000)]
    (tmp_path / REGISTRY_FILE).write_bytes(b"".join(encode_entry(entry) for entry in [*HISTORY, *noise]))
    registry = Registry.open(DiskDirectory(tmp_path))
    registry.append(PartitionsAdded(A, 9))
    registry.close()
    assert (tmp_path / REGISTRY_FILE).stat().st_size < 1000
    again = Registry.open(DiskDirectory(tmp_path))
    assert again.topics[A].overrides == {"retention.ms": "1999"}
    assert again.topics[A].partitions == 9


def test_after_a_failed_write_nothing_more_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = write(tmp_path, HISTORY[:1])

    def fail(self: DiskFile) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(DiskFile, "sync", fail)
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            registry.append(HISTORY[1])
    with pytest.raises(KafkaError, match="restart the broker"):
        registry.append(HISTORY[1])


def test_in_memory_nothing_is_written() -> None:
    registry = Registry.open(None)
    registry.append(HISTORY[0])
    registry.apply(HISTORY[0])
    assert registry.topics[A].name == "orders"


def test_entries_of_one_request_are_there_all_or_none(tmp_path: Path) -> None:
    registry = Registry.open(DiskDirectory(tmp_path))
    registry.append(*HISTORY)
    registry.close()
    journal = (tmp_path / REGISTRY_FILE).read_bytes()
    assert journal.count(b"\n") == 1
    assert state(Registry.open(DiskDirectory(tmp_path))) == after(HISTORY)
    (tmp_path / REGISTRY_FILE).write_bytes(journal[:40] + bytes(8) + journal[48:])
    assert state(Registry.open(DiskDirectory(tmp_path))) == after([])
