"""What a consumer tells the leader of its group: the topics that it subscribes to and the partitions that it owns.

Generated from schema/consumer_protocol_subscription.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class ConsumerProtocolSubscription(NamedTuple):
    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None
