"""The state of a share partition as `__share_group_state` holds it: its key, its value, and how a change is merged in.

A snapshot is the whole state, an update is a change of it; a snapshot without a value says that the state is gone.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kohort.share.partition import StateBatch
from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame, BadRecord
from kohort.wire.messages.share_snapshot_key import ShareSnapshotKey
from kohort.wire.messages.share_snapshot_value import ShareSnapshotValue
from kohort.wire.messages.share_snapshot_value import StateBatch as SnapshotBatch
from kohort.wire.messages.share_update_key import ShareUpdateKey
from kohort.wire.messages.share_update_value import ShareUpdateValue
from kohort.wire.messages.share_update_value import StateBatch as UpdateBatch

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_COUNT: Final = -1
_SNAPSHOT, _UPDATE = 0, 1
_SHORT = struct.Struct(">h")
_snapshot_key = data_codec("share_snapshot_key", 0)
_update_key = data_codec("share_update_key", 0)
_snapshot_value = data_codec("share_snapshot_value", 0)
_update_value = data_codec("share_update_value", 0)


class SharePartitionKey(NamedTuple):
    """A partition of a topic, as one share group sees it."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The text by which FindCoordinator asks, and whose hash decides about the partition that holds the state."""
        return f"{self.group_id}:{text_of_id(self.topic_id)}:{self.partition}"


def text_of_id(topic_id: bytes) -> str:
    """Returns a topic id as Kafka prints it: base64 for URLs, without padding."""
    return urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")


@dataclass(frozen=True, slots=True)
class PersistedState:
    """All that is persisted of a share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0

    def merged(self, change: StateChange) -> PersistedState:
        """Returns the state after a change."""
        start = self.start_offset if change.start_offset == NO_OFFSET else change.start_offset
        return replace(
            self,
            leader_epoch=max(self.leader_epoch, change.leader_epoch),
            start_offset=start,
            delivery_complete_count=change.delivery_complete_count,
            batches=merge((*self.batches, *change.batches), start),
        )


class StateChange(NamedTuple):
    """An update: a start offset of -1 leaves the start where it was."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


def merge(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Merges runs of states in any order into runs that do not overlap, from `start_offset` on (-1: all).

    Where runs overlap, the one with the higher delivery count wins, then the one with the higher state.
    """
    cut = [
        batch if batch.first >= start_offset else batch._replace(first=start_offset)
        for batch in batches
        if batch.last >= start_offset
    ]
    borders = sorted({offset for batch in cut for offset in (batch.first, batch.last + 1)})
    index = {offset: number for number, offset in enumerate(borders)}
    best: list[tuple[int, int] | None] = [None] * len(borders)
    for first, last, state, count in cut:
        for number in range(index[first], index[last + 1]):
            now = best[number]
            if now is None or (count, state) > now:
                best[number] = (count, state)
    found: list[StateBatch] = []
    for number, what in enumerate(best):
        if what is None:
            continue
        count, state = what
        first, last = borders[number], borders[number + 1] - 1
        if found and found[-1][1:] == (first - 1, state, count):
            found[-1] = found[-1]._replace(last=last)
        else:
            found.append(StateBatch(first, last, state, count))
    return tuple(found)


# --- records ---------------------------------------------------------------------------------------


class StateRecordBytes(NamedTuple):
    """Bytes for `__share_group_state`; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


def snapshot_record(key: SharePartitionKey, state: PersistedState | None) -> StateRecordBytes:
    """Returns the record of a whole state; None says that it is gone."""
    encoded = _snapshot_key.encode(ShareSnapshotKey(*key))
    if state is None:
        return StateRecordBytes(encoded, None)
    value = ShareSnapshotValue(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.delivery_complete_count,
        state.created_ms,
        state.written_ms,
        tuple(SnapshotBatch(*batch) for batch in state.batches),
    )
    return StateRecordBytes(encoded, _snapshot_value.encode(value))


def update_record(key: SharePartitionKey, change: StateChange) -> StateRecordBytes:
    value = ShareUpdateValue(
        change.snapshot_epoch,
        change.leader_epoch,
        change.start_offset,
        change.delivery_complete_count,
        tuple(UpdateBatch(*batch) for batch in change.batches),
    )
    return StateRecordBytes(_update_key.encode(ShareUpdateKey(*key)), _update_value.encode(value))


Decoded = tuple[SharePartitionKey, PersistedState | StateChange | None]


def decode(key: bytes, value: bytes | None) -> Decoded | None:
    """Returns what a record says; None if a newer version wrote it. Raises BadRecord."""
    try:
        kind = _SHORT.unpack_from(key)[0]
        if kind not in (_SNAPSHOT, _UPDATE) or (value is not None and _SHORT.unpack_from(value)[0] != 0):
            return None
        if kind == _UPDATE:
            return SharePartitionKey(*_update_key.decode(key)), _change(value)
        return SharePartitionKey(*_snapshot_key.decode(key)), _state(value)
    except (BadFrame, struct.error) as error:
        raise BadRecord(f"the state of a share partition that cannot be read ({error})") from error


def _state(value: bytes | None) -> PersistedState | None:
    if value is None:
        return None
    found: ShareSnapshotValue = _snapshot_value.decode(value)
    return PersistedState(
        found.snapshot_epoch,
        found.state_epoch,
        found.leader_epoch,
        found.start_offset,
        found.delivery_complete_count,
        tuple(StateBatch(*batch) for batch in found.state_batches),
        found.create_timestamp,
        found.write_timestamp,
    )


def _change(value: bytes | None) -> StateChange | None:
    if value is None:
        return None
    found: ShareUpdateValue = _update_value.decode(value)
    batches = tuple(StateBatch(*batch) for batch in found.state_batches)
    return StateChange(
        found.snapshot_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count, batches
    )
