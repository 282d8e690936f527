"""Which members are in the rack of a replica of which partitions, for the sticky assignors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kohort.client.group.assignors.assignor import TopicPartitions, racks_matter
from kohort.client.group.consumer_protocol import Subscription
from kohort.client.types import TopicPartition

NOWHERE: frozenset[str] = frozenset()


class Racks:
    """The racks of members and partitions. False, and nobody is apart, where racks make no difference."""

    __slots__ = ("_members_in", "_of_member", "_of_partition")

    def __init__(
        self, cluster: TopicPartitions, counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> None:
        self._of_member = {member_id: s.rack_id for member_id, s in members.items() if s.rack_id}
        self._members_in = Counter(self._of_member.values())
        self._of_partition: dict[TopicPartition, frozenset[str]] = {}
        if self._of_member:
            partitions = [TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)]
            self._of_partition = {tp: cluster.racks.get(tp, NOWHERE) for tp in partitions}
        if not racks_matter(set(self._members_in), self._of_partition.values()):
            self._of_member = {}

    def __bool__(self) -> bool:
        return bool(self._of_member)

    def apart(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether no replica is in the member's rack. A member without a rack is near to everything."""
        rack = self._of_member.get(member_id)
        return rack is not None and rack not in self._of_partition.get(partition, NOWHERE)

    def members_near(self, partition: TopicPartition) -> int:
        return sum(self._members_in[rack] for rack in self._of_partition.get(partition, NOWHERE))

    def next_near(self, partition: TopicPartition, members: Sequence[str], start: int) -> int | None:
        """The index of the first member in the rack of a replica, from `start` on and around."""
        near = self._of_partition[partition]
        if not near:
            return None
        for step in range(len(members)):
            place = (start + step) % len(members)
            if self._of_member.get(members[place]) in near:
                return place
        return None
