"""The key of a record in `__consumer_offsets` that holds the epoch of the target assignment of a consumer group.

Generated from schema/consumer_group_target_assignment_metadata_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupTargetAssignmentMetadataKey(NamedTuple):
    group_id: str = ""
