"""The `cooperative-sticky` assignor: a partition that moves is revoked first and given away a rebalance later."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import ClassVar

from kohort.client.group.assignors.assignor import Assignor, RebalanceProtocol, TopicPartitions, assignments
from kohort.client.group.assignors.claims import NO_GENERATION, Claim
from kohort.client.group.assignors.sticky import divide
from kohort.client.group.consumer_protocol import Assignment, Subscription
from kohort.client.types import TopicPartition


class CooperativeStickyAssignor(Assignor):
    """`cooperative-sticky`: members go on with what they keep while the group rebalances.

    A partition that changes hands is withheld from its new owner. The old one sees that it is gone, revokes it
    and joins again; then nobody owns it and it can be given.
    """

    name = "cooperative-sticky"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self) -> None:
        self._generation_id = NO_GENERATION

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """The generation, for leaders that know only versions 0 and 1 of a subscription."""
        return struct.pack(">i", self._generation_id)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._generation_id = generation_id

    def assign(self, cluster: TopicPartitions, members: Mapping[str, Subscription]) -> dict[str, Assignment]:
        given, moving = divide(cluster, members, owned_partitions)
        if moving is None:
            moving = changing_hands(members, given)
        now = {
            member_id: [partition for partition in partitions if moving.get(partition) != member_id]
            for member_id, partitions in given.items()
        }
        return assignments(now)


def owned_partitions(subscription: Subscription) -> Claim:
    """What a member claims. The generation is in the user data if the subscription is too old to have it."""
    generation_id = subscription.generation_id
    if generation_id < 0 and subscription.user_data is not None and len(subscription.user_data) >= 4:
        (generation_id,) = struct.unpack_from(">i", subscription.user_data)
    return Claim(subscription.owned_partitions, generation_id)


def changing_hands(
    members: Mapping[str, Subscription], given: Mapping[str, list[TopicPartition]]
) -> dict[TopicPartition, str]:
    """Partitions that one member gets and another has to give up first."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member_id, partitions in given.items():
        owned = frozenset(members[member_id].owned_partitions)
        added.update((partition, member_id) for partition in partitions if partition not in owned)
        revoked.update(owned.difference(partitions))
    return {partition: member_id for partition, member_id in added.items() if partition in revoked}
