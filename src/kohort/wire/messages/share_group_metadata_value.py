"""Its value: the epoch of a share group.

Generated from schema/share_group_metadata_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ShareGroupMetadataValue(NamedTuple):
    epoch: int = 0
    metadata_hash: int = 0
