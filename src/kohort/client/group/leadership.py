"""What the leader of a group works out: what all members want, who gets which partitions, what has changed.

Only the leader compares partition counts (and racks) with those it assigned from; all other members rely on it. These
are functions: membership.py calls them and keeps what they return.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kohort.client.core import arguments
from kohort.client.core.cluster import Cluster
from kohort.client.errors import IllegalState, WrongArgument
from kohort.client.group.assignors import Assignor, RebalanceProtocol
from kohort.client.group.assignors.assignor import TopicPartitions
from kohort.client.group.callbacks import names
from kohort.client.group.consumer_protocol import (
    Assignment,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from kohort.client.types import TopicPartition
from kohort.wire.consumer_protocol import BadConsumerProtocol
from kohort.wire.errors import KohortError
from kohort.wire.messages.join_group import JoinGroupResponseMember

_log = logging.getLogger("kohort.client.membership")

OURS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Assignors that give away subscribed topics only, and that keep the rules of the cooperative protocol."""

Snapshot = Mapping[str, tuple[frozenset[str], ...]]
"""For each topic and partition the racks of its replicas (empty where racks do not matter)."""


@dataclass(frozen=True, slots=True)
class Election:
    """What a member that was made the leader of a generation needs for the assignment that it owes."""

    assignor: Assignor
    members: dict[str, Subscription]
    skip_assignment: bool
    topics: frozenset[str]
    assignments: dict[str, Assignment] | None = None
    known_version: int = 0
    """The version of the cluster when its topics were asked for."""


def elected(
    assignor: Assignor, members: Iterable[JoinGroupResponseMember], skip_assignment: bool
) -> Election:
    """Reads what the members want. Raises a KohortError that names a member whose subscription cannot be read."""
    subscriptions: dict[str, Subscription] = {}
    for member in members:
        try:
            read = decode_subscription(bytes(member.metadata))
        except BadConsumerProtocol as error:
            raise KohortError(
                f"the subscription of member {member.member_id} cannot be read: {error}; is it a consumer of Kafka's "
                "protocol, or does something else use this group.id?"
            ) from error
        subscriptions[member.member_id] = Subscription(
            read.topics,
            read.user_data,
            read.owned_partitions,
            read.generation_id,
            read.rack_id,
            member.group_instance_id,
        )
    topics = frozenset(topic for s in subscriptions.values() for topic in s.topics)
    return Election(assignor, subscriptions, skip_assignment, topics)


def divide(election: Election, cluster: Cluster, protocol: RebalanceProtocol) -> dict[str, Assignment]:
    """Runs the assignor. What it raises goes to the caller; a result that breaks the rules raises IllegalState."""
    assignor = election.assignor
    given = _checked(assignor, assignor.assign(topic_partitions(cluster), election.members))
    strangers = given.keys() - election.members.keys()
    if strangers:
        raise IllegalState(
            f"assignor {assignor.name} gave partitions to {', '.join(sorted(strangers))}, which is no member of the "
            "group: return only the member ids that it was given"
        )
    if protocol is RebalanceProtocol.COOPERATIVE and assignor.name not in OURS:
        check_cooperative(assignor, election.members, given)
    return given


def _checked(assignor: Assignor, answer: object) -> dict[str, Assignment]:
    """What a user's assignor returned, if it can be sent to the members; else IllegalState says what is wrong."""
    if assignor.name in OURS and isinstance(answer, dict):
        return answer
    words = f"assignor {assignor.name} must return an Assignment for each member id"
    if not isinstance(answer, Mapping):
        raise IllegalState(f"{words}, not {arguments.shown(answer)}")
    given: dict[str, Assignment] = {}
    for member_id, assignment in answer.items():
        if not isinstance(member_id, str) or not isinstance(assignment, Assignment):
            raise IllegalState(f"{words}, not {arguments.shown(assignment)} for {arguments.shown(member_id)}")
        try:
            partitions = tuple(
                map(arguments.partition, arguments.iterable(assignment.partitions, "partitions"))
            )
            data = arguments.raw_bytes(assignment.user_data, "user_data")
        except WrongArgument as error:
            raise IllegalState(
                f"assignor {assignor.name} gave {member_id} what cannot be sent: {error}"
            ) from error
        given[member_id] = Assignment(partitions, data)
    return given


def check_cooperative(
    assignor: Assignor, members: Mapping[str, Subscription], given: Mapping[str, Assignment]
) -> None:
    """Checks that the owner of a partition gives it up in one rebalance before another member gets it in the next."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, member in members.items():
        owned = set(member.owned_partitions)
        assigned = set(given[member_id].partitions) if member_id in given else set()
        added |= assigned - owned
        revoked |= owned - assigned
    if moved := added & revoked:
        raise IllegalState(
            f"assignor {assignor.name} moved {names(moved)} from an owner to another member in one step, which the "
            "cooperative protocol does not allow: leave a partition that is to move out of the assignment first"
        )


def unsubscribed_topics(election: Election, given: Mapping[str, Assignment]) -> frozenset[str]:
    """Topics that a user's assignor gave away although nobody subscribes to them."""
    if election.assignor.name in OURS:
        return frozenset()
    assigned = frozenset(p.topic for assignment in given.values() for p in assignment.partitions)
    if left_out := election.topics - assigned:
        _log.warning(
            "assignor %s gave nobody a partition of %s", election.assignor.name, ", ".join(sorted(left_out))
        )
    return assigned - election.topics


def encoded(given: Mapping[str, Assignment]) -> list[tuple[str, bytes]]:
    """The assignments as SyncGroup carries them, by member id."""
    return [(member_id, encode_assignment(assignment)) for member_id, assignment in given.items()]


def topic_partitions(cluster: Cluster) -> TopicPartitions:
    """What an assignor is told of the cluster."""
    counts = {name: len(topic.partitions) for name, topic in cluster.topics.items() if topic.partitions}
    rack_of = {node.node_id: node.rack for node in cluster.nodes.values() if node.rack}
    if not rack_of:
        return TopicPartitions(counts)
    racks = {
        TopicPartition(name, number): frozenset(rack_of[r] for r in info.replicas if r in rack_of)
        for name, topic in cluster.topics.items()
        for number, info in topic.partitions.items()
    }
    return TopicPartitions(counts, racks)


def snapshot(cluster: Cluster, topics: Iterable[str], with_racks: bool) -> Snapshot:
    """What an assignment depends on; the leader rejoins when it changes."""
    rack_of = {node.node_id: node.rack for node in cluster.nodes.values() if node.rack and with_racks}
    return {
        topic: tuple(
            frozenset(rack_of[r] for r in info.replicas if r in rack_of)
            for _, info in sorted(found.partitions.items())
        )
        for topic in sorted(topics)
        if (found := cluster.topics.get(topic)) is not None
    }


def difference(before: Snapshot, now: Snapshot) -> str:
    """What has changed, for people, as in "orders has 6 partitions instead of 4"."""
    said = []
    for topic in sorted(before.keys() | now.keys()):
        old, new = before.get(topic, ()), now.get(topic, ())
        if len(old) != len(new):
            said.append(f"{topic} has {len(new)} partitions instead of {len(old)}")
        elif old != new:
            said.append(f"replicas of {topic} moved to other racks")
    return "; ".join(said)
