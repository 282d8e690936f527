"""The key of a record in `__consumer_offsets` that holds what a member of a consumer group owns.

Generated from schema/consumer_group_current_member_assignment_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupCurrentMemberAssignmentKey(NamedTuple):
    group_id: str = ""
    member_id: str = ""
