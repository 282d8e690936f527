"""Its value: a member of a share group and its subscription.

Generated from schema/share_group_member_metadata_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ShareGroupMemberMetadataValue(NamedTuple):
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
