"""The key of a record in `__share_group_state` that holds the whole state of a share partition.

Generated from schema/share_snapshot_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.wire.struct import ZERO_UUID


class ShareSnapshotKey(NamedTuple):
    group_id: str = ""
    topic_id: bytes = ZERO_UUID
    partition: int = 0
