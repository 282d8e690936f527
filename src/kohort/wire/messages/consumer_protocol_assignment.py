"""What the leader of a group assigns to a consumer.

Generated from schema/consumer_protocol_assignment.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class ConsumerProtocolAssignment(NamedTuple):
    assigned_partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None
