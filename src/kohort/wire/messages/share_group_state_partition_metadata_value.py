"""Its value: which partitions of a share group have state.

Generated from schema/share_group_state_partition_metadata_value.txt by `make messages`; do not edit.
"""

from __future__ import annotations

from typing import NamedTuple

from kohort.wire.struct import ZERO_UUID


class TopicPartitionsInfo(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""
    partitions: tuple[int, ...] = ()


class TopicInfo(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""


class ShareGroupStatePartitionMetadataValue(NamedTuple):
    initializing_topics: tuple[TopicPartitionsInfo, ...] = ()
    initialized_topics: tuple[TopicPartitionsInfo, ...] = ()
    deleting_topics: tuple[TopicInfo, ...] = ()
