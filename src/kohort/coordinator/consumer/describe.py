"""ConsumerGroupDescribe: it shows what is durable, as the log says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.coordinator.consumer.state import ConsumerMember, ConsumerState
from kohort.coordinator.consumer.target import assignor_of
from kohort.coordinator.effects import DescribeConsumerResponse, DescribedConsumer
from kohort.coordinator.events import DescribeConsumerGroup
from kohort.coordinator.modern.target import NOTHING
from kohort.coordinator.step_context import StepContext
from kohort.coordinator.topic_catalog import TopicCatalog
from kohort.wire.errors import ErrorCode

NamedPartitions = tuple[tuple[bytes, str, tuple[int, ...]], ...]


def describe_consumer_group(step: StepContext, request: DescribeConsumerGroup) -> None:
    assert request.group_id is not None
    group_id = request.group_id
    state = step.shard.durable.consumer_groups.get(group_id)
    if state is None or (group_id not in step.shard.consumer_groups and not state.members):
        known = step.shard.durable.knows(group_id)
        message = f"Group {group_id} is not a consumer group." if known else f"Group {group_id} not found."
        response = DescribeConsumerResponse(ErrorCode.GROUP_ID_NOT_FOUND, group_id, message)
    else:
        response = _described(step, group_id, state)
    step.reply(request.request, response)


def _described(step: StepContext, group_id: str, state: ConsumerState) -> DescribeConsumerResponse:
    topics = step.shard.topics
    return DescribeConsumerResponse(
        ErrorCode.NONE,
        group_id,
        None,
        state.state_name(),
        state.group_epoch,
        state.assignment_epoch,
        assignor_of(step, state),
        tuple(_member(member, state, topics) for member in state.members.values()),
    )


def _member(member: ConsumerMember, state: ConsumerState, topics: TopicCatalog) -> DescribedConsumer:
    owned: dict[bytes, set[int]] = {}
    for part in (member.assigned, member.pending):
        for topic_id, partitions in part.items():
            owned.setdefault(topic_id, set()).update(partitions)
    return DescribedConsumer(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        tuple(sorted(member.topic_names)),
        member.topic_regex,
        _named(owned, topics),
        _named(state.targets.get(member.member_id, NOTHING), topics),
        member.is_classic,
    )


def _named(partitions: Mapping[bytes, Iterable[int]], topics: TopicCatalog) -> NamedPartitions:
    """Adds the names of the topics; those that no longer exist are left out."""
    found = ((topic_id, topics.topic_by_id(topic_id), of_topic) for topic_id, of_topic in partitions.items())
    return tuple(
        (topic_id, topic.name, tuple(sorted(of_topic)))
        for topic_id, topic, of_topic in sorted(found, key=lambda each: each[0])
        if topic is not None
    )
