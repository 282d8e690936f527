"""The key of a record in `__consumer_offsets` that holds what a member of a share group reads.

Generated from schema/share_group_current_member_assignment_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ShareGroupCurrentMemberAssignmentKey(NamedTuple):
    group_id: str = ""
    member_id: str = ""
