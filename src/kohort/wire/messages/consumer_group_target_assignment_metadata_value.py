"""Its value: the epoch of the target assignment of a consumer group.

Generated from schema/consumer_group_target_assignment_metadata_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupTargetAssignmentMetadataValue(NamedTuple):
    assignment_epoch: int = 0
    assignment_timestamp: int = 0
