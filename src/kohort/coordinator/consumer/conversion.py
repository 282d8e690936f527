"""Makes a classic group a consumer group, and back, while its members stay: a rolling move to another protocol.

Upward: a member of KIP-848 joins a classic group. Its members stay as members that use the classic protocol, with what
they own. Downward: the last member of KIP-848 is gone, and the others stay as a classic group. Either way one batch
ends the records of the old group and writes those of the new one. An empty group is just ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kohort.coordinator.classic import rebalance
from kohort.coordinator.classic.group import Group, Member
from kohort.coordinator.classic.state import GroupState
from kohort.coordinator.consumer.draft import Cause, ConsumerWrite, end_of_group, resume_timers
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.records import ClassicGroupChange, records_of
from kohort.coordinator.consumer.state import STABLE, ConsumerMember
from kohort.coordinator.modern.state import (
    AssignmentChange,
    Change,
    GroupEpochChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
)
from kohort.coordinator.modern.target import NOTHING
from kohort.coordinator.modern.topics import metadata_hash
from kohort.coordinator.step_context import StepContext
from kohort.coordinator.topic_catalog import TopicCatalog
from kohort.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    BadConsumerProtocol,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata, ClassicProtocol
from kohort.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition

# ---- upward


def why_not_upgraded(step: StepContext, classic: Group) -> str | None:
    """Returns why a classic group cannot become a consumer group; None if it can."""
    if not classic.members:
        return None
    begin = f"Cannot upgrade classic group {classic.group_id} to consumer group because"
    if not step.settings.may_upgrade:
        return f"{begin} online upgrade is disabled."
    if not classic.is_consumer_group:
        return f"{begin} the group does not use the consumer embedded protocol."
    if len(classic.members) > step.settings.group_consumer_max_size:
        return f"{begin} the group size exceeds the consumer group maximum size."
    protocol = _protocol_of(classic)
    try:
        for member in classic.members.values():
            decode_subscription(member.metadata(protocol))
            if member.assignment and decode_assignment(member.assignment).user_data:
                return (
                    f"{begin} an unsupported custom assignor is in use. Please refer to the documentation or switch "
                    "to a default assignor before re-attempting the upgrade."
                )
    except BadConsumerProtocol:
        return f"{begin} the embedded consumer protocol is malformed."
    return None


def _protocol_of(classic: Group) -> str:
    return classic.protocol_name if classic.protocol_name is not None else classic.select_protocol()


def upgraded(step: StepContext, classic: Group) -> tuple[ConsumerGroup, list[Change]]:
    """Returns a consumer group with the members of a classic one, and the changes that make it."""
    group = ConsumerGroup(classic.group_id)
    group.pending_commits = classic.pending_commits
    changes: list[Change] = [ClassicGroupChange(None)]
    if classic.members:
        changes += _as_consumer_group(step, classic)
    group.apply_all(changes)
    return group, changes


def _as_consumer_group(step: StepContext, classic: Group) -> list[Change]:
    topics, epoch, protocol = step.shard.topics, classic.generation_id, _protocol_of(classic)
    members = [_as_consumer_member(member, protocol, epoch, topics) for member in classic.members.values()]
    names = frozenset[str]().union(*(member.topic_names for member in members))
    changes: list[Change] = [SubscriptionChange(m.member_id, m.subscription_value()) for m in members]
    changes.append(GroupEpochChange(epoch, metadata_hash(names, topics)))
    changes += [
        TargetChange(m.member_id, {t: frozenset(partitions) for t, partitions in m.assigned.items()})
        for m in members
    ]
    changes.append(TargetEpochChange(epoch))
    changes += [AssignmentChange(m.member_id, m.assignment_value()) for m in members]
    return changes


def _as_consumer_member(member: Member, protocol: str, epoch: int, topics: TopicCatalog) -> ConsumerMember:
    subscription = decode_subscription(member.metadata(protocol))
    return ConsumerMember(
        member.member_id,
        epoch,
        epoch,
        STABLE,
        _owned(member.assignment, epoch, topics),
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def classic_metadata(
    session_timeout_ms: int, protocols: tuple[tuple[str, bytes], ...]
) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(session_timeout_ms, tuple(ClassicProtocol(*each) for each in protocols))


def _owned(assignment: bytes, epoch: int, topics: TopicCatalog) -> dict[bytes, dict[int, int]]:
    """Reads what a classic member was assigned; topics that no longer exist are left out."""
    owned: dict[bytes, dict[int, int]] = {}
    if assignment:
        for name, partitions in decode_assignment(assignment).assigned_partitions:
            topic = topics.topic(name)
            if topic is not None and partitions:
                owned[topic.topic_id] = dict.fromkeys(partitions, epoch)
    return owned


def install(step: StepContext, group: ConsumerGroup) -> None:
    """Makes a new consumer group the live one, in place of a classic group of its name."""
    shard = step.shard
    classic = shard.groups.pop(group.group_id, None)
    if classic is not None:
        shard.answer_parked(step, classic, ErrorCode.REBALANCE_IN_PROGRESS)
    shard.consumer_groups[group.group_id] = group
    resume_timers(step, group)


# ---- downward


def is_to_be_downgraded(step: StepContext, group: ConsumerGroup, gone: Collection[str]) -> bool:
    """Whether only members that use the classic protocol are left without these, and that makes the group classic."""
    left = [member for member_id, member in group.members.items() if member_id not in gone]
    return (
        bool(left)
        and all(member.is_classic for member in left)
        and step.settings.may_downgrade
        and len(left) <= step.settings.group_max_size
    )


def downgrade(
    step: StepContext,
    group: ConsumerGroup,
    gone: Collection[str],
    cause: Cause | None,
    first: Iterable[Change] = (),
) -> None:
    """Makes a consumer group a Stable classic one, without the members that are gone; with a cause it rebalances.

    `first` are changes that are already in the group, to be written in the same batch.
    """
    shard = step.shard
    classic = _as_classic_group(step, group, gone)
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    changes = (*first, *end_of_group(group), ClassicGroupChange(classic.as_record(assignments)))
    write = ConsumerWrite(records_of(group.group_id, changes), [], group, changes)
    del shard.consumer_groups[group.group_id]
    shard.groups[group.group_id] = classic
    write.begin(step)
    for member in classic.members.values():
        step.renew(classic, member)
    if cause is not None:
        rebalance.begin(step, classic, cause)


def _as_classic_group(step: StepContext, group: ConsumerGroup, gone: Collection[str]) -> Group:
    classic = Group(
        group.group_id,
        state=GroupState.STABLE,
        state_timestamp_ms=step.now_ms,
        generation_id=group.group_epoch,
        protocol_type=PROTOCOL_TYPE,
        pending_commits=group.pending_commits,
    )
    for member_id, member in group.members.items():
        if member_id in gone:
            continue
        assert member.classic is not None
        metadata = member.classic
        target = group.targets.get(member_id, NOTHING)
        version = assignment_version(metadata)
        protocols = tuple((p.name, p.metadata) for p in metadata.supported_protocols)
        classic.add(
            Member(
                member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                metadata.session_timeout_ms,
                protocols,
                encoded_assignment(target, step.shard.topics, version),
            ),
            PROTOCOL_TYPE,
        )
    classic.protocol_name = classic.select_protocol()
    classic.topics = classic.known_topics()
    return classic


def assignment_version(metadata: ClassicMemberMetadata) -> int:
    """Returns the version of the consumer protocol that a classic member reads: that of its subscription."""
    subscription = metadata.supported_protocols[0].metadata
    return max(int.from_bytes(subscription[:2], "big", signed=True), 0)


def encoded_assignment(
    partitions: Mapping[bytes, Collection[int]], topics: TopicCatalog, version: int
) -> bytes:
    """Encodes partitions as a classic member reads them; topics that no longer exist are left out."""
    found = ((topics.topic_by_id(topic_id), of_topic) for topic_id, of_topic in partitions.items())
    named = sorted((topic.name, tuple(sorted(of_topic))) for topic, of_topic in found if topic is not None)
    return encode_assignment(
        ConsumerProtocolAssignment(tuple(TopicPartition(*each) for each in named), None), version
    )


# ---- empty groups


def empty_to_classic(step: StepContext, group: ConsumerGroup) -> Group:
    """Ends an empty consumer group, because a classic member joins: its offsets stay."""
    shard = step.shard
    changes = tuple(end_of_group(group))
    write = ConsumerWrite(records_of(group.group_id, changes), [], group, changes)
    del shard.consumer_groups[group.group_id]
    classic = shard.groups[group.group_id] = Group(
        group.group_id, state_timestamp_ms=step.now_ms, pending_commits=group.pending_commits
    )
    write.begin(step)
    return classic
