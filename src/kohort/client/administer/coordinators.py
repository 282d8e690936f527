"""Asks the coordinators of many groups with few requests: all groups of one coordinator in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kohort.client.administer.asking import Asking
from kohort.client.core.cluster import Node
from kohort.client.core.effects import ANY_NODE
from kohort.client.core.operation import Operation
from kohort.client.core.requests import RETRIABLE, GroupOf
from kohort.client.core.steps import Steps
from kohort.client.errors import TimedOut, error_for
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.struct import Message

BATCH = 200  # groups in one request: an answer with many offsets should not hold up a broker
AT_ONCE = 100  # requests for single groups that are under way at the same time
ROUND_MS = 5_000  # a coordinator that has not answered by then may have moved
KEYS_SINCE = 4  # FindCoordinator looks for several groups from this version on


@dataclass(frozen=True, slots=True)
class GroupQuestion:
    """A request about some groups, and how its answer is read."""

    api_key: int
    request: Callable[[Sequence[str], int], Message]
    """Of groups and a version. One that knows single groups only asks for the first; the others are asked alone."""
    rows: Callable[[Any], Iterable[tuple[str, int, Any]]]
    """(group, error code, row) of an answer. A group may be "" where the answer is about one that it does not name."""
    max_version: int | None = None


class CoordinatorAsking(Asking):
    """The calls that ask the coordinators of groups."""

    def ask_coordinators(
        self, question: GroupQuestion, groups: Sequence[str], deadline_ms: int
    ) -> Steps[dict[str, Any]]:
        """Returns for each group its row, or the exception that says why there is none.

        First all groups of one coordinator are asked for together. Those for which that brings no final answer, because
        they have moved or the broker is too old, are asked for one by one.
        """
        found: dict[str, Any] = {}
        if len(groups) > 1:
            found = yield from self._in_batches(question, groups, deadline_ms)
        alone = [group_id for group_id in groups if group_id not in found]
        for some in _batches(alone, AT_ONCE):
            asked = [(group_id, self._ask_alone(question, group_id, deadline_ms)) for group_id in some]
            for group_id, operation in asked:
                try:
                    response = yield from self.wait(operation, deadline_ms)
                except (KafkaError, TimedOut) as error:
                    found[group_id] = error
                else:
                    _, code, row = next(iter(question.rows(response)))
                    found[group_id] = error_for(code, _why(row, group_id)) if code else row
        return {group_id: found[group_id] for group_id in groups}

    def _ask_alone(self, question: GroupQuestion, group_id: str, deadline_ms: int) -> Operation[Any]:
        def verdict(response: Any) -> int:
            return next((code for _, code, _ in question.rows(response) if code in RETRIABLE), 0)

        return self.begin(
            partial(question.request, [group_id]), GroupOf(group_id), deadline_ms, api_key=question.api_key,
            verdict=verdict, max_version=question.max_version,
        )  # fmt: skip

    def _in_batches(
        self, question: GroupQuestion, groups: Sequence[str], deadline_ms: int
    ) -> Steps[dict[str, Any]]:
        by_node = yield from self._by_coordinator(groups, deadline_ms)
        round_ms = min(deadline_ms, self._clock() + ROUND_MS)
        asked = [
            (some, self.begin(partial(question.request, some), node_id, round_ms, api_key=question.api_key,
                              max_version=question.max_version, retries=0))
            for node_id, own in by_node.items()
            for some in _batches(own, BATCH)
        ]  # fmt: skip
        found: dict[str, Any] = {}
        for some, operation in asked:
            try:
                response = yield from self.wait(operation, round_ms)
            except KafkaError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION:
                    found |= dict.fromkeys(some, error)
                continue
            except TimedOut:
                continue
            for group_id, code, row in question.rows(response):
                if code not in RETRIABLE:
                    known = group_id or some[0]
                    found[known] = error_for(code, _why(row, known)) if code else row
        return found

    def _by_coordinator(self, groups: Sequence[str], deadline_ms: int) -> Steps[dict[int, list[str]]]:
        """Returns the groups of each coordinator, without those whose coordinator is not found at the first attempt."""
        missing = [group_id for group_id in groups if self._requests.coordinator_of(group_id) is None]
        for some in _batches(missing, BATCH):
            round_ms = min(deadline_ms, self._clock() + ROUND_MS)
            operation = self.begin(
                partial(_find, some), ANY_NODE, round_ms, api_key=FindCoordinatorRequest.API_KEY, retries=0
            )
            try:
                response = yield from self.wait(operation, round_ms)
            except (KafkaError, TimedOut):
                break
            for row in response.coordinators:
                if not row.error_code:
                    self._requests.learn_coordinator(row.key, Node(row.node_id, row.host, row.port))
            if not response.coordinators:
                break  # an old broker, which looks for one group at a time
        by_node: dict[int, list[str]] = {}
        for group_id in groups:
            if (node := self._requests.coordinator_of(group_id)) is not None:
                by_node.setdefault(node.node_id, []).append(group_id)
        return by_node


def _find(groups: Sequence[str], version: int) -> Message:
    if version >= KEYS_SINCE:
        return FindCoordinatorRequest(coordinator_keys=list(groups))
    return FindCoordinatorRequest(key=groups[0])


def _why(row: Any, group_id: str) -> str:
    return getattr(row, "error_message", None) or group_id


def _batches(groups: Sequence[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(groups), size):
        yield list(groups[start : start + size])
