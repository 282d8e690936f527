"""The `uniform` assignor of KIP-848 groups: members get as many partitions as each other, and keep what they had."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from kohort.coordinator.assignors.spec import GroupSpec, PartitionsByTopic
from kohort.coordinator.assignors.uniform_mixed import assign_mixed


def assign_uniform(spec: GroupSpec) -> dict[str, PartitionsByTopic]:
    """Returns a balanced division that moves as few partitions as balance allows."""
    if not spec.members:
        return {}
    return _assign_equal(spec) if spec.homogeneous else assign_mixed(spec)


def _assign_equal(spec: GroupSpec) -> dict[str, PartitionsByTopic]:
    """Divides among members that subscribe to the same topics.

    Each member may have `share` partitions, and `larger_shares` members one more. Whoever has more than its quota
    gives up the rest. A member that does not fill the larger share with what it had leaves it to one that may,
    unless all that come after it get a larger share too.
    """
    topics = spec.subscribed_topics()
    free = {topic_id: set(range(spec.partitions[topic_id])) for topic_id in topics}
    share, larger_shares = divmod(sum(map(len, free.values())), len(spec.members))
    target: dict[str, dict[bytes, set[int]]] = {}
    room: dict[str, int] = {}
    in_order = sorted(spec.members)
    for place, member_id in enumerate(in_order):
        larger = larger_shares > 0
        kept, left = _keep(spec.members[member_id].assigned, free, share + larger)
        if left and larger and len(in_order) - place > larger_shares:
            left, larger = left - 1, False
        larger_shares -= larger
        target[member_id], room[member_id] = kept, left
    rest = ((topic_id, index) for topic_id in topics for index in sorted(free[topic_id]))
    for member_id in in_order:
        for topic_id, index in islice(rest, room[member_id]):
            target[member_id].setdefault(topic_id, set()).add(index)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in given.items()}
        for member_id, given in target.items()
    }


def _keep(
    assigned: Mapping[bytes, frozenset[int]], free: dict[bytes, set[int]], quota: int
) -> tuple[dict[bytes, set[int]], int]:
    """Takes what a member had out of `free`, up to its quota; returns that, and how many more it may have."""
    kept: dict[bytes, set[int]] = {}
    for topic_id in sorted(assigned):
        mine = free.get(topic_id, set()) & assigned[topic_id]
        if len(mine) > quota:
            mine = set(sorted(mine)[:quota])
        if mine:
            kept[topic_id] = mine
            free[topic_id] -= mine
            quota -= len(mine)
    return kept, quota
