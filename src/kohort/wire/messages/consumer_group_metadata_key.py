"""The key of a record in `__consumer_offsets` that holds the epoch of a consumer group.

Generated from schema/consumer_group_metadata_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupMetadataKey(NamedTuple):
    group_id: str = ""
