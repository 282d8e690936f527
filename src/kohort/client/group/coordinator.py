"""Finds the node that coordinates the group by FindCoordinator, and forgets it when it is no longer the one.

Membership and commits share it. They call `ensure` whenever they need the node; it asks at most once at a time and
waits longer after each failure.
"""

from __future__ import annotations

import logging
from functools import partial

from kohort.client.config import ConsumerConfig, ShareConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import Node
from kohort.client.core.effects import ANY_NODE, Answer, Failure, FailureKind, Lane, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.errors import AuthenticationFailed, error_for
from kohort.wire.errors import ErrorCode, KohortError
from kohort.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_log = logging.getLogger("kohort.client.coordinator")

GROUP_KEY = 0
"""FindCoordinator's key type for groups; 1 is for transactions."""

COORDINATOR_GONE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""Answers after which the coordinator is looked up again."""

ASK_AGAIN = (
    *COORDINATOR_GONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)


class GroupCoordinator:
    """The part that finds the coordinator of the group."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig | ShareConsumerConfig,
        metadata: Metadata,
        jitter: Jitter,
    ) -> None:
        self.node_id: int | None = None
        self.last_node_id: int | None = None
        """The coordinator that was forgotten last."""
        self.error: KohortError | None = None
        """Why the look-up cannot succeed (not authorized, …), until the next one is sent."""
        self.last_failure = ""
        """The most recent obstacle, for the text of a timeout."""
        self.changes = 0
        """Counts how often a coordinator was found."""
        self._out, self._config, self._metadata = out, config, metadata
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._failures = 0
        self._attempt = 0
        self._asked: Lane | None = None  # the lane of the look-up that is under way
        self._lane = Lane.DATA
        self._not_before_ms = 0
        self._wanted = False

    def ensure(self, now_ms: int, lane: Lane = Lane.DATA) -> int | None:
        """The coordinator's node id if it is known; else it is looked up, as soon as the backoff allows.

        A caller that serves only the group lane (the thread that sends heartbeats) must say so: an answer on the
        other lane would not reach it.
        """
        if self.node_id is not None:
            return self.node_id
        if self._config.group_id is None or (self._asked is not None and self._asked >= lane):
            return None
        self._wanted, self._lane = True, lane
        if now_ms >= self._not_before_ms:
            self._ask(lane)
        return None

    def forget(self, reason: str, now_ms: int) -> None:
        """The node did not answer, or answered that it is not the coordinator."""
        self.last_failure = reason
        if self.node_id is None:
            return
        self.last_node_id = self.node_id
        _log.info(
            "the coordinator of group %s, %s, is unknown from now on: %s; it is looked up again",
            self._config.group_id,
            self._metadata.node(self.node_id) or f"node {self.node_id}",
            reason,
        )
        self.node_id = None
        self._failures += 1
        self._not_before_ms = now_ms + self._backoff.after(self._failures)

    def worked(self) -> None:
        """The coordinator answered as one: the next backoff begins from the smallest again."""
        self._failures = 0

    def tick(self, now_ms: int) -> None:
        if self._wanted:
            self.ensure(now_ms, self._lane)

    def next_deadline_ms(self) -> int | None:
        return self._not_before_ms if self._wanted and self._asked is None else None

    def _answered(self, attempt: int, answer: Answer, now_ms: int) -> None:
        if attempt != self._attempt:
            return
        self._asked = None
        if answer.failure is not None:
            self._not_answered(answer.failure, now_ms)
            return
        found = _coordinator(answer.response, answer.version)
        if found is None:
            self._failed("the answer names no coordinator", now_ms)
            return
        code = ErrorCode(found.error_code) if found.error_code in ErrorCode._value2member_map_ else None
        if code is ErrorCode.NONE:
            self._found(Node(found.node_id, found.host, found.port))
        elif code in ASK_AGAIN:
            self._failed(f"{code.name} {found.error_message or ''}".strip(), now_ms)
        else:
            self._refused(self._words(code, found), now_ms)

    def __repr__(self) -> str:
        where = f"node {self.node_id}" if self.node_id is not None else "unknown"
        asking = ", being looked up" if self._asked is not None else ""
        failure = f", last failure: {self.last_failure}" if self.last_failure else ""
        return f"<coordinator of {self._config.group_id}: {where}{asking}{failure}>"

    # --- inside ----------------------------------------------------------------------------------

    def _ask(self, lane: Lane) -> None:
        self._attempt += 1
        self._asked, self._wanted, self.error = lane, False, None
        group_id = self._config.group_id or ""

        def make(version: int) -> FindCoordinatorRequest:
            if version >= 4:
                return FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group_id])
            return FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY)

        self._out.append(
            Send(
                ANY_NODE,
                FindCoordinatorRequest.API_KEY,
                make,
                "coordinator.find",
                self._config.request_timeout_ms,
                lane,
                on_answer=partial(self._answered, self._attempt),
            )
        )

    def _found(self, node: Node) -> None:
        self.node_id = node.node_id
        self.changes += 1
        self.last_failure = ""
        self._wanted = False
        self._metadata.learn(node)
        _log.info("the coordinator of group %s is %s", self._config.group_id, node)

    def _not_answered(self, failure: Failure, now_ms: int) -> None:
        if failure.is_retriable:
            self._failed(f"FindCoordinator {failure.kind.value}: {failure.message}", now_ms)
        elif failure.kind is FailureKind.AUTHENTICATION:
            self._refused(AuthenticationFailed(failure.message), now_ms)
        else:
            self._refused(
                KohortError(
                    f"the coordinator of group {self._config.group_id} cannot be found: {failure.kind.value}: "
                    f"{failure.message}"
                ),
                now_ms,
            )

    def _failed(self, why: str, now_ms: int) -> None:
        self._failures += 1
        self.last_failure = why
        self._not_before_ms = now_ms + self._backoff.after(self._failures)
        self._wanted = True
        self._metadata.request_update(f"no coordinator of group {self._config.group_id} was found")
        level = logging.INFO if self._failures == 1 else logging.DEBUG
        _log.log(level, "no coordinator of group %s was found (%s); asks again", self._config.group_id, why)

    def _refused(self, error: KohortError, now_ms: int) -> None:
        """The look-up failed for good. Whoever needs the coordinator asks again, after telling its caller."""
        self._failures += 1
        self.error = error
        self.last_failure = str(error)
        self._not_before_ms = now_ms + self._backoff.after(self._failures)
        self._wanted = False
        _log.error("%s", error)

    def _words(self, code: ErrorCode | None, found: Coordinator) -> KohortError:
        group_id = self._config.group_id
        said = f" (the broker says: {found.error_message})" if found.error_message else ""
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return error_for(code, f"not allowed to read group {group_id}: give this user READ on it{said}")
        if code is ErrorCode.INVALID_GROUP_ID:
            return error_for(code, f"the broker does not take group.id {group_id!r}: use another name{said}")
        return error_for(
            found.error_code,
            f"the coordinator of group {group_id} was asked for: error {found.error_code}{said}",
        )


def _coordinator(response: FindCoordinatorResponse, version: int) -> Coordinator | None:
    if version >= 4:
        return response.coordinators[0] if len(response.coordinators) == 1 else None
    return Coordinator(
        "", response.node_id, response.host, response.port, response.error_code, response.error_message
    )
