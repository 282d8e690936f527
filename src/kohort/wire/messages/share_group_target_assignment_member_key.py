"""The key of a record in `__consumer_offsets` that holds what a member of a share group is to read.

Generated from schema/share_group_target_assignment_member_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ShareGroupTargetAssignmentMemberKey(NamedTuple):
    group_id: str = ""
    member_id: str = ""
