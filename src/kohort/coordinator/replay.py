"""The durable state of a shard: what the records of its partition say.

`Durable` alone writes it, by its `apply` methods and `end_transaction`. They run when a partition is loaded and when a
write of our own has become durable, on the way of the events and on the short ways of `Shard` alike. So a restart
finds what was visible before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.coordinator.commit_layout import CommitLayout, LaidOutRecords
from kohort.coordinator.consumer.records import RECORD_TYPES as CONSUMER_RECORDS
from kohort.coordinator.consumer.records import change_of as consumer_change_of
from kohort.coordinator.consumer.state import ConsumerState
from kohort.coordinator.events import LogRecord
from kohort.coordinator.modern.state import Change
from kohort.coordinator.records import CommittedOffset, decode_offset
from kohort.coordinator.share.records import RECORD_TYPES as SHARE_RECORDS
from kohort.coordinator.share.records import change_of as share_change_of
from kohort.coordinator.share.state import ShareState
from kohort.wire.group_records import decode_group_metadata, decode_key
from kohort.wire.messages.group_metadata_value import GroupMetadataValue
from kohort.wire.messages.offset_commit_key import OffsetCommitKey

TopicPartition = tuple[str, int]
_tuple = tuple.__new__  # a NamedTuple without its Python-level constructor


class Positioned(NamedTuple):
    """A committed offset and the offset of its record: of two commits the later record wins."""

    committed: CommittedOffset
    log_offset: int


class MergedCommit:
    """The newest commit of a layout, stored once for all its partitions: the next one takes one store, not ten.

    It is taken apart before one of its partitions is looked at or is written in another way. Only `Durable` changes it.
    """

    __slots__ = ("log_offset", "records")

    def __init__(self, records: LaidOutRecords, log_offset: int) -> None:
        self.records, self.log_offset = records, log_offset

    def each(self) -> Iterator[Positioned]:
        for number, committed in enumerate(self.records.committed()):
            yield Positioned(committed, self.log_offset + number)


@dataclass(slots=True)
class Durable:
    """The groups and the committed offsets that the log says, and nothing more."""

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    consumer_groups: dict[str, ConsumerState] = field(default_factory=dict)
    share_groups: dict[str, ShareState] = field(default_factory=dict)
    _offsets: dict[str, dict[TopicPartition, Positioned | MergedCommit]] = field(default_factory=dict)
    _merged: dict[str, list[MergedCommit]] = field(default_factory=dict)
    """Group -> its commits that are not taken apart."""
    open_transactions: dict[int, dict[OffsetCommitKey, Positioned]] = field(default_factory=dict)
    """Producer id -> what it has committed; its COMMIT marker makes that visible."""
    skipped: dict[int, int] = field(default_factory=dict)
    """Key version -> how many records of this kind, which is not served here, were passed over."""

    def knows(self, group_id: str) -> bool:
        return (
            group_id in self.groups
            or group_id in self.consumer_groups
            or group_id in self.share_groups
            or group_id in self._offsets
            or bool(self.unstable(group_id))
        )

    @property
    def offsets(self) -> Mapping[str, Mapping[TopicPartition, Positioned]]:
        """Group -> its committed offsets, for all groups; `offsets_of` does less work for one group."""
        for group_id in list(self._merged):
            self._take_apart(group_id)
        return self._offsets  # type: ignore[return-value]

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, Positioned]:
        self._take_apart(group_id)
        return self._offsets.get(group_id, {})  # type: ignore[return-value]

    def groups_with_offsets(self) -> Iterable[str]:
        """Returns the groups with offsets, also with offsets in open transactions alone: users may delete these."""
        pending = {key.group for offsets in self.open_transactions.values() for key in offsets}
        return self._offsets.keys() | pending if pending else self._offsets

    def unstable(self, group_id: str) -> set[TopicPartition]:
        """Returns the partitions of a group with a commit in a transaction that has not ended."""
        return {
            (key.topic, key.partition)
            for pending in self.open_transactions.values()
            for key in pending
            if key.group == group_id
        }

    def apply(self, record: LogRecord) -> None:
        if record.key is None:
            self.end_transaction(record.producer_id, record.commit_marker)
            return
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey):
            self._apply_offset(key, record)
        elif isinstance(key, int) and key in CONSUMER_RECORDS:
            group_id, change = consumer_change_of(record.key, record.value)
            self.apply_to_consumer_group(group_id, (change,))
        elif isinstance(key, int) and key in SHARE_RECORDS:
            group_id, change = share_change_of(record.key, record.value)
            self.apply_to_share_group(group_id, (change,))
        elif isinstance(key, int):
            self.skipped[key] = self.skipped.get(key, 0) + 1
        elif record.value is None:
            self.groups.pop(key.group, None)
        else:
            self.groups[key.group] = decode_group_metadata(record.value)

    def apply_group(self, group_id: str, group: GroupMetadataValue | None) -> None:
        """Does what `apply` does with the record of a group, for a caller that knows what the record says."""
        if group is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = group

    def apply_to_share_group(self, group_id: str, changes: Iterable[Change]) -> None:
        """Does what `apply` does with the records of a share group, for a caller that knows what they say."""
        state = self.share_groups.get(group_id) or ShareState()
        state.apply_all(changes)
        if state.exists:
            self.share_groups[group_id] = state
        else:
            self.share_groups.pop(group_id, None)

    def apply_to_consumer_group(self, group_id: str, changes: Iterable[Change]) -> None:
        """Does what `apply` does with the records of a consumer group, for a caller that knows what they say."""
        state = self.consumer_groups.get(group_id) or ConsumerState()
        state.apply_all(changes)
        if state.exists:
            self.consumer_groups[group_id] = state
        else:
            self.consumer_groups.pop(group_id, None)

    def apply_commit(
        self,
        group_id: str,
        keys: Sequence[TopicPartition],
        committed: Sequence[CommittedOffset],
        base_offset: int,
        producer_id: int,
    ) -> None:
        """Does what `apply` does with the records of one commit, for a caller that knows what they say."""
        positioned = [
            _tuple(Positioned, (each, base_offset + number)) for number, each in enumerate(committed)
        ]
        if producer_id == -1:
            self._of_group(group_id).update(zip(keys, positioned, strict=True))
        else:
            pending = self.open_transactions.setdefault(producer_id, {})
            pending.update(zip((OffsetCommitKey(group_id, *key) for key in keys), positioned, strict=True))

    def apply_laid_out(
        self, records: LaidOutRecords, base_offset: int, merged: MergedCommit | None = None
    ) -> None:
        """Does what `apply` does with the records of a commit in a layout.

        `merged` is what `merged_commit` has just returned for this layout, if the caller has asked already.
        """
        if merged is None:
            merged = self.merged_commit(records.layout)
        if merged is not None:
            merged.records, merged.log_offset = records, base_offset
            return
        layout = records.layout
        of_group = self._offsets.get(layout.group_id)
        if of_group is None:
            of_group = self._offsets[layout.group_id] = {}
        elif any(isinstance(of_group.get(key), MergedCommit) for key in layout.keys):
            self._take_apart(layout.group_id)
        merged = MergedCommit(records, base_offset)
        of_group.update(dict.fromkeys(layout.keys, merged))
        self._merged.setdefault(layout.group_id, []).append(merged)

    def merged_commit(self, layout: CommitLayout) -> MergedCommit | None:
        """The commit that stands for all partitions of a layout, if it was the last one to any of them."""
        of_group = self._offsets.get(layout.group_id)
        if of_group is not None:
            found = of_group.get(layout.keys[0])
            if isinstance(found, MergedCommit) and found.records.layout is layout:
                return found
        return None

    def _take_apart(self, group_id: str) -> None:
        for merged in self._merged.pop(group_id, ()):
            of_group = self._offsets[group_id]
            of_group.update(zip(merged.records.layout.keys, merged.each(), strict=True))

    def _of_group(self, group_id: str) -> dict[TopicPartition, Positioned | MergedCommit]:
        """Returns the offsets of a group, so that single partitions can be changed."""
        if group_id in self._merged:
            self._take_apart(group_id)
        of_group = self._offsets.get(group_id)
        if of_group is None:
            of_group = self._offsets[group_id] = {}
        return of_group

    def _apply_offset(self, key: OffsetCommitKey, record: LogRecord) -> None:
        if record.value is None:
            self._forget(key)
            return
        positioned = Positioned(decode_offset(record.value), record.offset)
        if record.producer_id == -1:
            self._remember(key, positioned)
        else:
            self.open_transactions.setdefault(record.producer_id, {})[key] = positioned

    def _remember(self, key: OffsetCommitKey, positioned: Positioned) -> None:
        group_id, topic, partition = key
        of_group = self._offsets.get(group_id)
        if of_group is None or group_id in self._merged:
            of_group = self._of_group(group_id)
        of_group[topic, partition] = positioned

    def _forget(self, key: OffsetCommitKey) -> None:
        of_group = self._of_group(key.group)
        of_group.pop((key.topic, key.partition), None)
        if not of_group:
            del self._offsets[key.group]
        for producer_id, pending in list(self.open_transactions.items()):
            if pending.pop(key, None) is not None and not pending:
                del self.open_transactions[producer_id]

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        for key, positioned in self.open_transactions.pop(producer_id, {}).items():
            if not commit:
                continue
            current = self.offsets_of(key.group).get((key.topic, key.partition))
            if current is None or positioned.log_offset > current.log_offset:
                self._remember(key, positioned)
