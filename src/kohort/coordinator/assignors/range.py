"""The `range` assignor of KIP-848 groups: cuts the partitions of each topic into as many ranges as it has members.

Members come in the same order for every topic, so that topics with as many partitions and the same members are divided
the same way: a program that joins two such topics by key finds both sides in one member.
"""

from __future__ import annotations

from kohort.coordinator.assignors.spec import GroupSpec, PartitionsByTopic


def assign_range(spec: GroupSpec) -> dict[str, PartitionsByTopic]:
    """Returns the division by ranges; the first members of a topic get one more if it does not divide evenly."""
    in_order = _members_in_order(spec)
    target: dict[str, PartitionsByTopic] = {member_id: {} for member_id in spec.members}
    for topic_id in spec.subscribed_topics():
        subscribers = [each for each in in_order if topic_id in spec.members[each].topic_ids]
        share, larger_shares = divmod(spec.partitions[topic_id], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + share + (place < larger_shares)
            if start == end:
                break
            target[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return target


def _members_in_order(spec: GroupSpec) -> list[str]:
    """Returns static members by instance id, which outlives a restart, then the others by member id."""

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = spec.members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    return sorted(spec.members, key=order)
