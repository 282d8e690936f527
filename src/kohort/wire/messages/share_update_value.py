"""Its value: a change of the state of a share partition.

Generated from schema/share_update_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class StateBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0


class ShareUpdateValue(NamedTuple):
    snapshot_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: tuple[StateBatch, ...] = ()
