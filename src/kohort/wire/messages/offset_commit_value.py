"""The value of a record in `__consumer_offsets` that holds a committed offset.

Generated from schema/offset_commit_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.wire.struct import ZERO_UUID


class OffsetCommitValue(NamedTuple):
    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = 0
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID
