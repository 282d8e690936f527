"""Settles which member owned which partition before, from what each member claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.client.group.assignors.hash_order import in_hash_order
from kohort.client.group.consumer_protocol import Subscription
from kohort.client.types import TopicPartition

NO_GENERATION = -1


class Claim(NamedTuple):
    """What one member says that it owned, and in which generation."""

    partitions: Sequence[TopicPartition]
    generation_id: int = NO_GENERATION


@dataclass(slots=True)
class Settled:
    """What remains of the claims of all members when they are compared."""

    owned: dict[str, set[TopicPartition]] = field(default_factory=dict)  # a partition is in one set at most
    # Claimed by two members in the same generation: neither claim can be trusted, and both may be reading it.
    disputed: set[TopicPartition] = field(default_factory=set)
    # The member that had a partition in a generation before the newest one.
    earlier: dict[TopicPartition, str] = field(default_factory=dict)


def settle(
    claims: Mapping[str, Claim], members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> Settled:
    """Gives each claimed partition that still exists to the member with the newest claim."""
    settled = Settled()
    owner: dict[TopicPartition, str] = {}
    order = in_hash_order(claims)
    for member_id in order:
        claim = claims[member_id]
        mine = settled.owned[member_id] = set()
        for partition in claim.partitions:
            if not 0 <= partition.partition < counts.get(partition.topic, 0):
                continue
            other = owner.get(partition)
            # The other's generation is that of its subscription, even if its claim came as user data: as Kafka does.
            rival = members[other].generation_id if other is not None else NO_GENERATION
            if other is None:
                mine.add(partition)
            elif claim.generation_id == rival:
                settled.disputed.add(partition)
                settled.owned[other].discard(partition)
            elif claim.generation_id > rival:
                settled.owned[other].discard(partition)
                mine.add(partition)
            else:
                continue
            owner[partition] = member_id
    settled.earlier = _earlier(claims, order)
    return settled


def _earlier(claims: Mapping[str, Claim], order: Sequence[str]) -> dict[TopicPartition, str]:
    newest = max((claim.generation_id for claim in claims.values()), default=NO_GENERATION)
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member_id in order:
        partitions, generation_id = claims[member_id]
        if generation_id >= newest:
            continue
        for partition in partitions:
            if partition not in found or generation_id > found[partition][0]:
                found[partition] = generation_id, member_id
    return {partition: member_id for partition, (_, member_id) in found.items()}
