"""The `sticky` assignor: an even division that moves as little as possible from one generation to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kohort.client.group.assignors.assignor import Assignor, TopicPartitions, assignments, partition_counts
from kohort.client.group.assignors.claims import Claim, settle
from kohort.client.group.assignors.constrained import ConstrainedDivision
from kohort.client.group.assignors.general import GeneralDivision
from kohort.client.group.assignors.racks import Racks
from kohort.client.group.consumer_protocol import Assignment, Subscription, by_topic, partitions_of
from kohort.client.types import TopicPartition
from kohort.wire.compiler.compile import data_codec
from kohort.wire.errors import BadFrame
from kohort.wire.messages.sticky_assignor_user_data import StickyAssignorUserData, TopicAssignment


class Division(NamedTuple):
    """Which member gets what. `moving` tells which partitions a member gets from another one, if that is known."""

    given: dict[str, list[TopicPartition]]
    moving: dict[TopicPartition, str] | None


class StickyAssignor(Assignor):
    """`sticky`: for eager groups.

    A member gives up all it owns before it joins, so it tells the leader in user data what it had.
    """

    name = "sticky"

    def __init__(self) -> None:
        self._last: Claim | None = None

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        return None if self._last is None else encode_claim(self._last)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._last = Claim(assignment.partitions, generation_id)

    def assign(self, cluster: TopicPartitions, members: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return assignments(divide(cluster, members, claim_in_user_data).given)


def divide(
    cluster: TopicPartitions, members: Mapping[str, Subscription], claim_of: Callable[[Subscription], Claim]
) -> Division:
    """The division that both sticky assignors make."""
    if not members:
        return Division({}, {})
    counts = partition_counts(cluster, members.values())
    claims = {member_id: claim_of(subscription) for member_id, subscription in members.items()}
    settled = settle(claims, members, counts)
    racks = Racks(cluster, counts, members)
    if len({frozenset(subscription.topics) for subscription in members.values()}) == 1:
        constrained = ConstrainedDivision(counts, settled, racks)
        constrained.divide()
        return Division(constrained.given, constrained.moving)
    general = GeneralDivision(counts, members, settled, racks)
    general.divide()
    return Division(general.given, None)


def encode_claim(claim: Claim) -> bytes:
    """The user data of Kafka's StickyAssignor, version 1: partitions and generation."""
    user_data = StickyAssignorUserData(by_topic(claim.partitions, TopicAssignment), claim.generation_id)
    return data_codec("sticky_assignor_user_data", 1).encode(user_data)


def claim_in_user_data(subscription: Subscription) -> Claim:
    """Reads version 1 or 0 (no generation). A member without readable user data claims nothing and counts as new."""
    if not subscription.user_data:
        return Claim(())
    for version in (1, 0):  # the bytes do not say which it is
        try:
            found: StickyAssignorUserData = data_codec("sticky_assignor_user_data", version).decode(
                subscription.user_data
            )
        except BadFrame:
            continue
        return Claim(partitions_of(found.previous_assignment), found.generation)
    return Claim(())
