"""The key of a record in `__consumer_offsets` that holds the topics that a consumer group was assigned by; deprecated.

Generated from schema/consumer_group_partition_metadata_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupPartitionMetadataKey(NamedTuple):
    group_id: str = ""
