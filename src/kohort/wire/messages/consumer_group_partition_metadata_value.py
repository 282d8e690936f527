"""Its value: the topics that a consumer group was assigned by; deprecated.

Generated from schema/consumer_group_partition_metadata_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.wire.struct import ZERO_UUID


class PartitionMetadata(NamedTuple):
    partition: int = 0
    racks: tuple[str, ...] = ()


class TopicMetadata(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""
    num_partitions: int = 0
    partition_metadata: tuple[PartitionMetadata, ...] = ()


class ConsumerGroupPartitionMetadataValue(NamedTuple):
    topics: tuple[TopicMetadata, ...] = ()
