"""The key of a record in `__consumer_offsets` that holds which partitions of a share group have state.

Generated from schema/share_group_state_partition_metadata_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ShareGroupStatePartitionMetadataKey(NamedTuple):
    group_id: str = ""
