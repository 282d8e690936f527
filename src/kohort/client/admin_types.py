"""The classes that Admin takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kohort.client.core.cluster import Node
from kohort.client.types import TopicPartition
from kohort.security.acls import Acl, AclFilter, AclOperation, AclResource, PatternType, Permission
from kohort.security.scram import MIN_ITERATIONS, ScramMechanism

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclResource",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClusterDescription",
    "ConfigEntry",
    "EntityName",
    "GroupDescription",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "Node",
    "PartitionDescription",
    "PatternType",
    "Permission",
    "ReplicaInfo",
    "ScramCredentialInfo",
    "ScramMechanism",
    "SharePartitionOffset",
    "TopicDescription",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
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
    """A setting of a topic, a broker or a group."""

    name: str
    value: str | None
    """None if it is secret."""
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str = ""
    source: str = ""
    """Where the value comes from, by Kafka's name: DYNAMIC_TOPIC_CONFIG, DYNAMIC_GROUP_CONFIG, DEFAULT_CONFIG …"""


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
    epoch: int | None = None
    """The member's epoch in a group that is not classic; None in a classic group."""
    target: tuple[TopicPartition, ...] | None = None
    """What the coordinator wants it to have; None unless the group is one of the consumer protocol."""
    protocol: str = "classic"
    """How it speaks to the coordinator: "classic", "consumer" or "share". A consumer group may have classic members."""


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
    epoch: int | None = None
    """It goes up with every change of members, subscriptions or topics; None for a classic group."""
    assignment_epoch: int | None = None
    """The epoch that the assignment was made for; None for a classic group."""


@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """Where a share group stands in one partition."""

    start_offset: int
    """The first record that is not done: everything before it was accepted, rejected or given up."""
    leader_epoch: int | None = None
    lag: int | None = None
    """How many records are not done yet; None where the broker does not say."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id and nodes."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A partition in a directory of a broker."""

    size: int
    """In bytes."""
    offset_lag: int
    is_future: bool
    """It is being moved here from another directory."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A directory of a broker, and what is in it."""

    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    """Of the disk; None where the broker is too old to say."""
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """What a cluster tells of a password: by which mechanism it is kept, never the password."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A password for a user by one mechanism, new or instead of the one that there was.

    The client salts it, and sends what SCRAM needs to check it; the password stays here.
    """

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = MIN_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)
    """Random if None."""


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """The end of a user's password by one mechanism."""

    user: str
    mechanism: ScramMechanism


class EntityName(Enum):
    """What stands for a name in an entity or a filter of quotas."""

    DEFAULT = "<default>"
    """For those who have no quota by name."""
    ANY = "<any>"
    """Any name and the default; for filters alone."""


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """Whom a quota is for: a user, a client id, both, or an address."""

    user: str | EntityName | None = None
    client_id: str | EntityName | None = None
    ip: str | EntityName | None = None


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Finds quotas by their entities; what is None is not asked for."""

    user: str | EntityName | None = None
    client_id: str | EntityName | None = None
    ip: str | EntityName | None = None
    strict: bool = False
    """Only entities of exactly the kinds that are asked for: `user` alone leaves out users with a client id."""
