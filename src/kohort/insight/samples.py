"""One look at a cluster: its nodes, its topics, its groups with their members, committed offsets and lag."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from kohort.client.admin import Admin
from kohort.client.admin_types import ClusterDescription, MemberDescription, Node, PartitionDescription


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """A partition that a group reads: what the group has committed, and where the log begins and ends."""

    topic: str
    partition: int
    committed: int | None
    """None if a member owns the partition and nothing is committed yet."""
    metadata: str
    begin: int | None
    """None, like `end`, if the topic is gone or no leader answered; `ClusterSample.problems` says so."""
    end: int | None
    owners: tuple[str, ...]
    """The ids of the members that it is assigned to: one, and several only in a share group."""

    @property
    def lag(self) -> int | None:
        """The number of records that are still to be read; None if it cannot be known."""
        if self.end is None:
            return None
        start = self.committed if self.committed is not None else self.begin
        return None if start is None else max(0, self.end - start)


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group: its state, its members, and the partitions that it reads."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    protocol: str
    coordinator: Node | None
    members: tuple[MemberDescription, ...]
    partitions: tuple[PartitionSample, ...]

    @property
    def lag(self) -> int:
        """The lag of all partitions whose lag is known."""
        return sum(each.lag or 0 for each in self.partitions)


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A topic: its partitions, and where their logs begin and end."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    begins: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """All that one look has found, and in `problems` what it could not find, one sentence each."""

    at_ms: int
    cluster: ClusterDescription
    groups: dict[str, GroupSample]
    topics: dict[str, TopicSample]
    problems: tuple[str, ...] = ()


def sample_cluster(admin: Admin, now_ms: int, *, groups: Collection[str] | None = None) -> ClusterSample:
    """Looks at all topics and groups, or at these groups and the topics that they read.

    The number of requests grows with the number of nodes and very slowly with that of groups. What is gone between two
    requests or does not answer is named in `problems`; the rest is sampled all the same. KohortError only if the
    cluster does not answer at all.
    """
    raise NotImplementedError
