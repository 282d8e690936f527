"""GroupSpec: what an assignor of the coordinator is told about a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

PartitionsByTopic = dict[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions is not in it."""


class AssignorMember(NamedTuple):
    """One member: what it subscribes to, and what its target was until now."""

    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[bytes]
    assigned: Mapping[bytes, frozenset[int]]


class GroupSpec(NamedTuple):
    """A group to divide: its members by id, and how many partitions each topic has.

    Topics that are not in `partitions` do not exist: nobody gets them. `homogeneous` says that all members subscribe
    to the same topics. `assignable` restricts what may be given away, for share groups, whose partitions have to be
    initialized first; None is everything.
    """

    members: Mapping[str, AssignorMember]
    partitions: Mapping[bytes, int]
    homogeneous: bool
    assignable: Mapping[bytes, frozenset[int]] | None = None

    def subscribed_topics(self) -> list[bytes]:
        """Returns the topics that exist and that somebody subscribes to, sorted."""
        members = self.members.values()
        if self.homogeneous:
            wanted = next(iter(members)).topic_ids if members else frozenset()
        else:
            wanted = frozenset[bytes]().union(*(member.topic_ids for member in members))
        return sorted(topic_id for topic_id in wanted if topic_id in self.partitions)

    def partitions_to_assign(self, topic_id: bytes) -> Iterable[int]:
        """Returns the partitions of a topic that may be given away, in ascending order."""
        count = self.partitions[topic_id]
        if self.assignable is None:
            return range(count)
        return sorted(index for index in self.assignable.get(topic_id, ()) if index < count)
