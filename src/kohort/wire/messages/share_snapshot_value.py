"""Its value: the whole state of a share partition.

Generated from schema/share_snapshot_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class StateBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0


class ShareSnapshotValue(NamedTuple):
    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    create_timestamp: int = 0
    write_timestamp: int = 0
    state_batches: tuple[StateBatch, ...] = ()
