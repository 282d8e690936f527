"""The classes that Admin takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.client.core.cluster import Node
from kohort.client.types import TopicPartition

__all__ = [
    "ClusterDescription",
    "ConfigEntry",
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "NewTopic",
    "Node",
    "PartitionDescription",
    "TopicDescription",
]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made; -1 leaves a count to the broker's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, object] = field(default_factory=dict)
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Partition -> brokers, instead of the two counts."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition of a topic: its leader and its replicas."""

    partition: int
    leader: int
    """-1 while there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions."""

    name: str
    topic_id: str
    """Hex; zeroes where the broker is too old to say."""
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting of a topic or a broker."""

    name: str
    value: str | None
    """None if it is secret."""
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str = ""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as lists show it."""

    group_id: str
    protocol_type: str
    """"consumer", "connect" and so on; "" for a group that only has offsets."""
    state: str
    """"" where the broker is too old to say."""
    group_type: str = "classic"
    """"classic", "consumer" (KIP-848), "share" or "streams"."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group and what it is assigned."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    """Empty as well if the group's protocol is not that of consumers."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    """The assignor that was chosen."""
    coordinator: Node | None
    members: tuple[MemberDescription, ...]
    group_type: str = "classic"
    """"classic", "consumer" (KIP-848), "share"; of any other type only the state is known, not the members."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id and nodes."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]
