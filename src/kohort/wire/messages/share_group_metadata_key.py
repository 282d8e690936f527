"""The key of a record in `__consumer_offsets` that holds the epoch of a share group.

Generated from schema/share_group_metadata_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ShareGroupMetadataKey(NamedTuple):
    group_id: str = ""
