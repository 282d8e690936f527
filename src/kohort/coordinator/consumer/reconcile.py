"""How a member comes from what it owns to its target: one pure function.

Per topic, with T the target (nothing if the member does not subscribe to the topic) and A what it is assigned:
keep = A ∩ T, revoke = A − keep, want = T − keep. A partition is free if no other member is assigned it or has yet to
give it up.

| state                                         | then                                                            |
|-----------------------------------------------|-----------------------------------------------------------------|
| UNREVOKED, may still own what is pending      | it stays; a changed subscription may add to what is pending     |
| any, may still own what is to be revoked      | UNREVOKED at the old epoch: assigned is keep, pending is revoke |
| any other                                     | the target's epoch: assigned is keep and what is free of want;  |
|                                               | UNRELEASED if something was not free, else STABLE               |
| UNKNOWN                                       | as the last two if it says that it owns nothing, else fenced    |

A member "may still own" partitions if it does not say what it owns, or if one of them is among that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kohort.coordinator.assignors.spec import PartitionsByTopic
from kohort.coordinator.consumer.state import (
    NOTHING_OWNED,
    STABLE,
    UNKNOWN,
    UNRELEASED,
    UNREVOKED,
    ConsumerMember,
    Owned,
)
from kohort.coordinator.frozen import frozen

SaidOwned = Mapping[bytes, Sequence[int]] | None
"""What a member says it owns: topic id -> partitions; None if it does not say."""


@frozen
class Towards:
    """Where a member is to go, and what it depends on."""

    epoch: int
    target: PartitionsByTopic
    topic_ids: frozenset[bytes]
    """The topics that the member subscribes to and that exist."""
    owned: SaidOwned
    is_free: Callable[[bytes, int], bool]
    """is_free(topic id, partition): whether no other member has it."""
    subscription_changed: bool = False


def reconcile(member: ConsumerMember, to: Towards) -> ConsumerMember | None:
    """Returns the member's next state, which may be the same; None if it must be fenced."""
    if member.state is UNKNOWN and (to.owned is None or any(to.owned.values())):
        return None
    if member.state is UNREVOKED and _may_own(to.owned, member.pending):
        return _without_unsubscribed(member, to) if to.subscription_changed else member
    if member.state is STABLE and member.epoch == to.epoch:
        return _without_unsubscribed(member, to) if to.subscription_changed else member
    return _next(member, to)


def _may_own(owned: SaidOwned, partitions: Owned) -> bool:
    if owned is None:
        return True
    return any(
        partition in partitions.get(topic_id, ()) for topic_id, said in owned.items() for partition in said
    )


def _without_unsubscribed(member: ConsumerMember, to: Towards) -> ConsumerMember:
    """Takes away the topics that the member no longer subscribes to; the rest of the target has to wait."""
    gone = {topic_id: ps for topic_id, ps in member.assigned.items() if topic_id not in to.topic_ids}
    if not gone:
        return member
    assigned = {topic_id: ps for topic_id, ps in member.assigned.items() if topic_id not in gone}
    pending = {topic_id: dict(partitions) for topic_id, partitions in member.pending.items()}
    for topic_id, partitions in gone.items():
        pending.setdefault(topic_id, {}).update(partitions)
    if _may_own(to.owned, pending):
        return member.moved_to(member.epoch, UNREVOKED, assigned, pending)
    return member.moved_to(member.epoch, member.state, assigned, member.pending)


def _next(member: ConsumerMember, to: Towards) -> ConsumerMember:
    assigned: dict[bytes, dict[int, int]] = {}
    revoke: dict[bytes, dict[int, int]] = {}
    free: list[tuple[bytes, int]] = []
    something_is_not_free = False
    none: frozenset[int] = frozenset()
    for topic_id in to.target.keys() | member.assigned.keys():
        target = to.target.get(topic_id, none) if topic_id in to.topic_ids else none
        now = member.assigned.get(topic_id, {})
        keep = {partition: epoch for partition, epoch in now.items() if partition in target}
        if keep:
            assigned[topic_id] = keep
        if len(keep) < len(now):
            revoke[topic_id] = {p: epoch for p, epoch in now.items() if p not in keep}
        for partition in target:
            if partition in keep:
                continue
            if to.is_free(topic_id, partition):
                free.append((topic_id, partition))
            else:
                something_is_not_free = True
    if revoke and _may_own(to.owned, revoke):
        epoch = to.epoch if member.state is UNKNOWN else member.epoch
        return member.moved_to(epoch, UNREVOKED, assigned, revoke)
    for topic_id, partition in free:
        assigned.setdefault(topic_id, {})[partition] = to.epoch
    state = UNRELEASED if something_is_not_free else STABLE
    return member.moved_to(to.epoch, state, assigned, NOTHING_OWNED)
