"""The key of a record in `__consumer_offsets` that holds a member of a share group and its subscription.

Generated from schema/share_group_member_metadata_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ShareGroupMemberMetadataKey(NamedTuple):
    group_id: str = ""
    member_id: str = ""
