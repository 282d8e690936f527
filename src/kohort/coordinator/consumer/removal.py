"""Removes members: they left, were fenced, or were not heard of. The group's epoch rises once for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.coordinator.consumer import conversion
from kohort.coordinator.consumer.draft import Cause, Draft, end_member, end_unused_regex
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.step_context import StepContext


def remove_members(step: StepContext, group: ConsumerGroup, gone: Mapping[str, str]) -> None:
    """Removes members, each for a reason; the group becomes a classic one if only such members are left."""
    members = [group.members[member_id] for member_id in gone]
    history = step.history(group)
    for member_id, why in gone.items():
        history.gone(member_id, why)
    reason = "; ".join(map(_sentence, gone.items()))
    cause = Cause(members[0].member_id, reason)
    if conversion.is_to_be_downgraded(step, group, gone):
        conversion.downgrade(step, group, gone, cause)
        return
    draft = Draft(step, group)
    for member in members:
        end_member(draft, member)
    for regex in dict.fromkeys(member.topic_regex for member in members):
        end_unused_regex(draft, regex)
    draft.bump(cause)
    draft.write()


def _sentence(gone: tuple[str, str]) -> str:
    member_id, why = gone
    return f"{member_id} {why}" if why.startswith("left") else f"{member_id}: {why}"
