"""The durable state of a shard and its only writer.

The same code runs when a partition is loaded and when a write of our own has become durable, so what a
restart finds is what was visible before. Everything here comes from records; nothing else changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.coordinator.events import LogRecord
from kohort.coordinator.records import (
    CommittedOffset,
    GroupMetadata,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
)

TopicPartition = tuple[str, int]


class Positioned(NamedTuple):
    """A committed offset and where in the log it stands: of two commits the later position wins."""

    committed: CommittedOffset
    log_offset: int


@dataclass(slots=True)
class Durable:
    """What the log says, and nothing more."""

    groups: dict[str, GroupMetadata] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, Positioned]] = field(default_factory=dict)
    open_transactions: dict[int, dict[OffsetKey, Positioned]] = field(default_factory=dict)
    """Producer id -> what it committed; visible only with its COMMIT marker."""
    skipped: dict[int, int] = field(default_factory=dict)
    """Key version -> how many records of kinds not served here were passed over."""

    def knows(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.offsets

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        found = self.offsets.get(group_id, {}).get((topic, partition))
        return found.committed if found else None

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Partitions of the group with a transactional commit that is neither committed nor aborted."""
        return {
            (key.topic, key.partition)
            for pending in self.open_transactions.values()
            for key in pending
            if key.group_id == group_id
        }

    def apply(self, record: LogRecord) -> None:
        if record.key is None:
            self.end_transaction(record.producer_id, record.commit_marker)
            return
        key = decode_key(record.key)
        if isinstance(key, OffsetKey):
            self._apply_offset(key, record)
        elif isinstance(key, int):
            self.skipped[key] = self.skipped.get(key, 0) + 1
        elif record.value is None:
            self.groups.pop(key.group_id, None)
        else:
            self.groups[key.group_id] = decode_group(record.value)

    def apply_commit(
        self,
        group_id: str,
        keys: Sequence[TopicPartition],
        committed: Sequence[CommittedOffset],
        base_offset: int,
        producer_id: int,
    ) -> None:
        """What `apply` does with the records of one commit, for who knows what they say."""
        make = tuple.__new__
        positioned = [make(Positioned, (each, base_offset + number)) for number, each in enumerate(committed)]
        if producer_id == -1:
            of_group = self.offsets.get(group_id)
            if of_group is None:
                of_group = self.offsets[group_id] = {}
            of_group.update(zip(keys, positioned, strict=True))
        else:
            pending = self.open_transactions.setdefault(producer_id, {})
            pending.update(zip((OffsetKey(group_id, *key) for key in keys), positioned, strict=True))

    def _apply_offset(self, key: OffsetKey, record: LogRecord) -> None:
        if record.value is None:
            self._forget(key)
            return
        positioned = Positioned(decode_offset(record.value), record.offset)
        if record.producer_id == -1:
            self._remember(key, positioned)
        else:
            self.open_transactions.setdefault(record.producer_id, {})[key] = positioned

    def _remember(self, key: OffsetKey, positioned: Positioned) -> None:
        group_id, topic, partition = key
        of_group = self.offsets.get(group_id)
        if of_group is None:
            of_group = self.offsets[group_id] = {}
        of_group[topic, partition] = positioned

    def _forget(self, key: OffsetKey) -> None:
        of_group = self.offsets.get(key.group_id, {})
        if of_group.pop((key.topic, key.partition), None) is not None and not of_group:
            del self.offsets[key.group_id]
        for producer_id, pending in list(self.open_transactions.items()):
            if pending.pop(key, None) is not None and not pending:
                del self.open_transactions[producer_id]

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        for key, positioned in self.open_transactions.pop(producer_id, {}).items():
            if not commit:
                continue
            current = self.offsets.get(key.group_id, {}).get((key.topic, key.partition))
            if current is None or positioned.log_offset > current.log_offset:
                self._remember(key, positioned)
