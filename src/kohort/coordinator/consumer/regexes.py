"""The regular expressions of a group's members: which topics they match, and when they are matched again.

They are matched in the step that needs it: RE2 takes linear time, and a member gets its partitions with its first
heartbeat. Kafka does it in another thread, and its member gets them with the second.
"""

from __future__ import annotations

from kohort.coordinator.consumer.draft import Cause, Draft
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.consumer.state import RegexChange
from kohort.coordinator.events import ConsumerGroupHeartbeat
from kohort.coordinator.regex import BadPattern, compile_pattern
from kohort.coordinator.step_context import StepContext
from kohort.wire.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue

SHORTEST_INTERVAL_MS = 10_000
"""How long all expressions of a group stay as they are, however many topics are created meanwhile."""


def why_invalid(group: ConsumerGroup | None, regex: str | None) -> str | None:
    """Returns why an expression cannot be read; it is looked at only if it is new to the group."""
    if not regex or (group is not None and regex in group.regexes):
        return None
    try:
        compile_pattern(regex)
    except BadPattern as error:
        return f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
    return None


def refresh_is_due(group: ConsumerGroup, interval_ms: int, now_ms: int) -> bool:
    """Whether all expressions of the group have to be matched again."""
    if not group.regexes:
        return False
    last_ms = min(value.timestamp for value in group.regexes.values())
    if now_ms <= last_ms + SHORTEST_INTERVAL_MS:
        return False
    return group.regex_refresh_due or now_ms > last_ms + interval_ms


def is_due(group: ConsumerGroup, interval_ms: int, now_ms: int) -> bool:
    """Whether `resolve` has something to do."""
    return len(group.regexes) < len(group.regex_subscribers) or refresh_is_due(group, interval_ms, now_ms)


def resolve(draft: Draft, request: ConsumerGroupHeartbeat | None) -> Cause | None:
    """Matches the expressions that are new, or all if it is time; returns the cause of a new epoch if topics differ."""
    group, step = draft.group, draft.step
    if not group.regex_subscribers:
        return None
    interval_ms = step.settings.group_consumer_regex_refresh_interval_ms
    all_of_them = refresh_is_due(group, interval_ms, step.now_ms)
    wanted = [regex for regex in group.regex_subscribers if all_of_them or regex not in group.regexes]
    if not wanted:
        return None
    may_describe = request.may_describe if request is not None else None
    differing = []
    for regex in wanted:
        names = _matching(step, regex)
        if may_describe is not None:
            names = [name for name in names if may_describe(name)]
        before = group.regexes.get(regex)
        draft.add(
            RegexChange(regex, ConsumerGroupRegularExpressionValue(tuple(sorted(names)), 0, step.now_ms))
        )
        if set(before.topics if before is not None else ()) != set(names):
            differing.append(regex)
    if all_of_them:
        group.regex_refresh_due = False
    if not differing:
        return None
    return Cause("", f"the topics that {', '.join(differing)} matches have changed")


def _matching(step: StepContext, regex: str) -> list[str]:
    try:
        return compile_pattern(regex).matching(step.shard.topics.names())
    except BadPattern:  # a log of Kafka's may hold what our library does not read
        return []
