"""Cluster: a snapshot of what a client knows of the nodes, topics, partitions and leaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.struct import ZERO_UUID

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and where to reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.node_id})"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who leads a partition, and who has replicas of it."""

    leader_id: int = NO_NODE
    """NO_NODE while there is no leader."""
    leader_epoch: int = -1
    """-1 where the broker is too old to say."""
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its partitions."""

    name: str
    topic_id: bytes = ZERO_UUID
    """Zeroes where the broker is too old to say."""
    partitions: Mapping[int, PartitionInfo] = field(default_factory=dict)
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """A snapshot, which is replaced as a whole."""

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)
    """Why topics that were asked for are not in `topics`: unknown, not authorized, invalid."""
    version: int = 0
    """Counts the snapshots; 0 before the first answer."""

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def leader_of(self, partition: TopicPartition) -> int:
        info = self.partition(partition)
        return info.leader_id if info is not None else NO_NODE

    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        info = self.topics.get(topic)
        return tuple(TopicPartition(topic, p) for p in sorted(info.partitions)) if info is not None else ()
