"""The routes that change something: reset offsets, delete offsets, delete a group. The guard has checked the token."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from fastapi.security import HTTPBearer

from kohort.client.admin_types import GroupDescription
from kohort.client.types import TopicPartition
from kohort.console.context import ConsoleContext, Context
from kohort.console.errors import CHANGE_ERRORS, RequestRefused
from kohort.console.models import (
    DeletedAnswer,
    DeleteGroupQuestion,
    DeleteOffsetsQuestion,
    PartitionName,
    ResetAnswer,
    ResetQuestion,
    ResetRow,
    TopicChoice,
)
from kohort.console.routes.groups import DEAD, no_group
from kohort.insight.resets import (
    PartitionReset,
    ResetKind,
    ResetPlan,
    ResetTarget,
    execute_reset,
    look_up_reset,
    parse_target,
)

# The guard compares the token before a request comes here; this is its place in the description of the API.
_described = HTTPBearer(auto_error=False, description="The token that the console printed when it started.")
router = APIRouter(responses=CHANGE_ERRORS, tags=["changes"], dependencies=[Depends(_described)])


@router.post("/api/group/reset")
def reset(context: Context, question: ResetQuestion) -> ResetAnswer:
    """Plans a reset of offsets, and carries it out if `dry_run` is false."""
    target = _target(question)
    described = _described_group(context, question.group, may_be_dead=True)
    topics = None if question.topics is None else _choices(question.topics)
    plan = look_up_reset(context.admin, question.group, target, topics, context.sampler.now_ms())
    obstacle = None
    if described.members:
        obstacle = f"the group is {described.state} with {len(described.members)} members: stop them first"
    if not question.dry_run:
        execute_reset(context.admin, plan)
        context.sampler.sample_soon()
    return _reset_answer(plan, not question.dry_run, obstacle)


@router.post("/api/group/delete")
def delete(context: Context, question: DeleteGroupQuestion) -> DeletedAnswer:
    """Deletes a group that has no members, with all its offsets."""
    _described_group(context, question.group)
    context.admin.delete_groups(question.group)
    context.sampler.sample_soon()
    return DeletedAnswer(group=question.group, partitions=[])


@router.post("/api/group/delete-offsets")
def delete_offsets(context: Context, question: DeleteOffsetsQuestion) -> DeletedAnswer:
    """Deletes offsets of topics that the group is not subscribed to."""
    _described_group(context, question.group)
    committed = context.admin.group_offsets(question.group, require_stable=False)
    choices = _choices(question.topics)
    chosen = [
        at
        for at in committed
        if at.topic in choices and at.partition in (choices[at.topic] or (at.partition,))
    ]
    if not chosen:
        raise RequestRefused(404, f"{question.group} has committed nothing for these partitions")
    context.admin.delete_group_offsets(question.group, chosen)
    context.sampler.sample_soon()
    return DeletedAnswer(
        group=question.group,
        partitions=[PartitionName(topic=at.topic, partition=at.partition) for at in sorted(chosen)],
    )


def _target(question: ResetQuestion) -> ResetTarget:
    if question.offsets is not None:
        if question.to is not None or question.topics is not None:
            raise RequestRefused(400, "name either offsets, or to and topics")
        explicit = {TopicPartition(each.topic, each.partition): each.offset for each in question.offsets}
        if not explicit:
            raise RequestRefused(400, "offsets names no partition")
        return ResetTarget(ResetKind.EXPLICIT, explicit=explicit)
    if question.to is None:
        raise RequestRefused(400, "say where to reset to: to, or offsets")
    return parse_target(question.to)


def _choices(topics: list[TopicChoice]) -> dict[str, list[int] | None]:
    """Returns partitions by topic; None stands for all of a topic."""
    choices: dict[str, list[int] | None] = {}
    for each in topics:
        before = choices.get(each.topic, [])
        both = None if each.partitions is None or before is None else [*before, *each.partitions]
        choices[each.topic] = both
    return choices


def _described_group(
    context: ConsoleContext, group_id: str, *, may_be_dead: bool = False
) -> GroupDescription:
    described = context.admin.describe_groups(group_id)[group_id]
    if described.state == DEAD and not may_be_dead:
        raise no_group(group_id)
    return described


def _reset_answer(plan: ResetPlan, executed: bool, obstacle: str | None) -> ResetAnswer:
    return ResetAnswer(
        group=plan.group_id,
        executed=executed,
        obstacle=obstacle,
        skipped=plan.skipped,
        again=plan.again,
        partitions=[_reset_row(each) for each in plan.partitions],
    )


def _reset_row(each: PartitionReset) -> ResetRow:
    return ResetRow(
        topic=each.topic,
        partition=each.partition,
        old=each.old,
        new=each.new,
        begin=each.begin,
        end=each.end,
        skipped=each.skipped,
        again=each.again,
        changes=each.changes,
        note=each.note,
    )
