"""The key of a record in `__consumer_offsets` that holds what a member of a consumer group is to own.

Generated from schema/consumer_group_target_assignment_member_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupTargetAssignmentMemberKey(NamedTuple):
    group_id: str = ""
    member_id: str = ""
