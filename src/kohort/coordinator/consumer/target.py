"""Computes the target of a consumer group: which member is to own which partition."""

from __future__ import annotations

from kohort.coordinator.assignors import CONSUMER_ASSIGNORS
from kohort.coordinator.assignors.spec import AssignorMember, GroupSpec
from kohort.coordinator.consumer.draft import Draft
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.state import ConsumerState
from kohort.coordinator.modern.target import NOTHING, target_changes, target_is_due
from kohort.coordinator.modern.topics import topic_ids
from kohort.coordinator.step_context import StepContext


def compute_target_if_due(draft: Draft) -> None:
    """Computes the target if the group has changed since the last one, and the last one is old enough."""
    group, step = draft.group, draft.step
    interval_ms = step.shard.config_of(group.group_id).consumer_assignment_interval_ms
    if not target_is_due(group, interval_ms, step.now_ms):
        return
    assign = CONSUMER_ASSIGNORS[assignor_of(step, group)]
    computed = assign(spec_of(step, group))
    for change in target_changes(group, group.members, computed, step.now_ms):
        draft.add(change)


def assignor_of(step: StepContext, group: ConsumerState) -> str:
    """Returns the assignor that most members name, else the first that is configured."""
    configured = step.settings.group_consumer_assignors
    preferred = group.preferred_assignor()
    return preferred if preferred in configured else configured[0]


def spec_of(step: StepContext, group: ConsumerGroup) -> GroupSpec:
    topics = step.shard.topics
    ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
    members: dict[str, AssignorMember] = {}
    for member_id, member in group.members.items():
        alike = (member.topic_names, member.topic_regex)
        if alike not in ids:
            ids[alike] = topic_ids(group.topics_of(member), topics)
        members[member_id] = AssignorMember(
            member.instance_id, member.rack_id, ids[alike], group.targets.get(member_id, NOTHING)
        )
    wanted = frozenset[bytes]().union(*ids.values())
    found = ((topic_id, topics.topic_by_id(topic_id)) for topic_id in wanted)
    partitions = {topic_id: topic.partitions for topic_id, topic in found if topic is not None}
    return GroupSpec(members, partitions, group.is_homogeneous())
