"""The key of a record in `__consumer_offsets` that holds a committed offset. Records of type 0, which Kafka no longer writes, have the same key.

Generated from schema/offset_commit_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class OffsetCommitKey(NamedTuple):
    group: str = ""
    topic: str = ""
    partition: int = 0
