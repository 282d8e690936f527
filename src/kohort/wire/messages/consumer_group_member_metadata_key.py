"""The key of a record in `__consumer_offsets` that holds a member of a consumer group and its subscription.

Generated from schema/consumer_group_member_metadata_key.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupMemberMetadataKey(NamedTuple):
    group_id: str = ""
    member_id: str = ""
