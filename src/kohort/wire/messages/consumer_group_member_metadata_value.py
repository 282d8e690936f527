"""Its value: a member of a consumer group and its subscription.

Generated from schema/consumer_group_member_metadata_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class ClassicProtocol(NamedTuple):
    name: str = ""
    metadata: bytes = b""


class ClassicMemberMetadata(NamedTuple):
    session_timeout_ms: int = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


class ConsumerGroupMemberMetadataValue(NamedTuple):
    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = ClassicMemberMetadata()
