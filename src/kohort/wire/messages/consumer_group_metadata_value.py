"""Its value: the epoch of a consumer group.

Generated from schema/consumer_group_metadata_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupMetadataValue(NamedTuple):
    epoch: int = 0
    metadata_hash: int = 0
