"""The queue of commits, on its way to the coordinator and back.

Asynchronous commits leave at once, one behind the other, and are never repeated, so that an older offset cannot
overwrite a newer one. A commit with `retry` leaves when all before it are done and is repeated until it is answered
for good or its time is up; those after it wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.effects import Answer, FailureKind, Lane, Outbox, Send
from kohort.client.core.operation import Operation
from kohort.client.errors import RetriableCommitFailed, TimedOut, error_for_failure
from kohort.client.offsets.commit_errors import (
    CommitVerdict,
    commit_failed,
    fenced,
    how_large,
    judge,
    not_a_member,
    not_alone,
    rebalance_in_progress,
)
from kohort.client.offsets.committed import ClusterSource, CoordinatorSource, forget, no_coordinator
from kohort.client.offsets.offset_requests import (
    BY_NAME,
    Offsets,
    as_partition,
    commit_errors,
    ids_of,
    names,
    names_by_id,
    offset_commit,
)
from kohort.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.offset_commit import OffsetCommitRequest

log = logging.getLogger("kohort.client.commits")

WhenSettled = Callable[[Operation[Offsets], int], None]


class CommittingMember(Protocol):
    """What is used of membership.py."""

    @property
    def may_commit(self) -> bool: ...
    @property
    def rebalance_in_progress(self) -> bool: ...
    @property
    def is_stable(self) -> bool: ...
    @property
    def is_fenced(self) -> bool: ...
    @property
    def left_because(self) -> str | None: ...
    def group_metadata(self) -> GroupMetadata: ...
    def request_rejoin(self, reason: str) -> None: ...
    def reset_generation(self, reason: str, lost: bool = True, *, keep_member_id: bool = False) -> None: ...


@dataclass(slots=True, eq=False)
class PendingCommit:
    offsets: Offsets
    operation: Operation[Offsets]
    retry: bool
    as_member: bool
    """Whether the group assigns the partitions; else anybody may commit, with generation -1."""
    settled: WhenSettled
    """Called when this commit and all before it are done."""
    gives_up_on_unknown_topics: bool = False
    in_flight: bool = False
    sent_as: GroupMetadata | None = None
    """In a later generation its partitions may be another member's, who is further: it is not sent again then."""
    failures: int = 0
    retry_at_ms: int = 0
    obstacle: str = ""


class CommitQueue:
    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        coordinator: CoordinatorSource,
        metadata: ClusterSource,
        jitter: Jitter,
    ) -> None:
        self._out, self._config, self._coordinator, self._metadata = out, config, coordinator, metadata
        self.membership: CommittingMember | None = None
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._queue: deque[PendingCommit] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def add(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline_ms: int | None,
        settled: WhenSettled,
        *,
        retry: bool,
        as_member: bool,
        gives_up_on_unknown_topics: bool = False,
    ) -> Operation[Offsets]:
        assert self._config.group_id is not None, "commits need a group.id"
        chosen = {as_partition(partition): at for partition, at in offsets.items()}
        for partition, at in chosen.items():
            if at.offset < 0:
                raise ValueError(f"an offset to commit cannot be negative: {at.offset} of {partition}")
        commit = PendingCommit(
            chosen, Operation(deadline_ms), retry, as_member, settled, gives_up_on_unknown_topics
        )
        self._queue.append(commit)
        return commit.operation

    def tick(self, now_ms: int) -> None:
        self._expire(now_ms)
        self._send_due(now_ms)
        self._settle(now_ms)

    def _expire(self, now_ms: int) -> None:
        for commit in self._queue:
            deadline_ms = commit.operation.deadline_ms
            if commit.operation.done or deadline_ms is None or now_ms < deadline_ms:
                continue
            why = commit.obstacle or (
                "no answer yet" if commit.in_flight else no_coordinator(self._coordinator)
            )
            if commit.retry:
                unsure = "was not confirmed in time and may or may not have happened"
                commit.operation.fail(
                    TimedOut(
                        f"the commit of {names(commit.offsets)} in group {self._config.group_id} "
                        f"{unsure if commit.sent_as is not None else 'could not be sent in time'}: {why}"
                    )
                )
            elif not commit.in_flight:  # else the request's own timeout ends it
                commit.operation.fail(
                    RetriableCommitFailed(
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                        f"{names(commit.offsets)} not committed: {why}; commit again",
                    )
                )

    def _send_due(self, now_ms: int) -> None:
        others_before = False
        for commit in self._queue:
            if commit.operation.done:
                continue
            if not commit.in_flight:
                if (commit.retry and others_before) or now_ms < commit.retry_at_ms:
                    return
                commit.retry_at_ms = 0
                if not self._send(commit, now_ms):
                    return
            if commit.retry and not commit.operation.done:
                return  # later ones wait for it
            others_before = others_before or not commit.operation.done

    def _send(self, commit: PendingCommit, now_ms: int) -> bool:
        """False if the coordinator must be found first."""
        if not commit.offsets:
            commit.operation.finish({})
            return True
        node_id = self._coordinator.ensure(now_ms)
        if node_id is None:
            if (error := self._coordinator.error) is not None:
                commit.operation.fail(error)
            return error is not None
        member = self._identity(commit)
        if isinstance(member, KafkaError):
            log.info("not committed: %s", member)
            commit.operation.fail(member)
            return True
        ids = ids_of(self._metadata.cluster, commit.offsets)
        commit.in_flight, commit.sent_as = True, member
        self._out.append(
            Send(
                node_id,
                OffsetCommitRequest.API_KEY,
                offset_commit(commit.offsets, member, ids),
                "commits.commit",
                self._config.request_timeout_ms,
                lane=Lane.GROUP,
                about=(commit, member, names_by_id(ids)),
                max_version=None if ids is not None else BY_NAME,
            )
        )
        return True

    def _identity(self, commit: PendingCommit) -> GroupMetadata | KafkaError:
        """Who commits; or why nobody can: only a poll can make this consumer a member again."""
        assert self._config.group_id is not None
        if not commit.as_member:
            return GroupMetadata(self._config.group_id)
        assert self.membership is not None
        if self.membership.rebalance_in_progress:
            return rebalance_in_progress(commit.offsets, self._config.group_id)
        if self.membership.is_fenced:
            return fenced(self._config.group_id)
        if not self.membership.may_commit:
            return not_a_member(commit.offsets, self._config.group_id, self.membership.left_because)
        member = self.membership.group_metadata()
        if commit.sent_as not in (None, member):
            return not_a_member(commit.offsets, self._config.group_id, "this consumer has joined again since")
        return member

    def _settle(self, now_ms: int) -> None:
        """Callbacks come in the order of the commits, whatever order they are done in."""
        while self._queue and self._queue[0].operation.done:
            commit = self._queue.popleft()
            commit.settled(commit.operation, now_ms)

    def next_deadline_ms(self) -> int | None:
        times: list[int | None] = []
        for commit in self._queue:
            if commit.retry or not commit.in_flight:
                times.append(commit.operation.deadline_ms)
            if commit.retry_at_ms and not commit.in_flight:
                times.append(commit.retry_at_ms)
        return min((ms for ms in times if ms is not None), default=None)

    # --- answers --------------------------------------------------------------------------------------

    def answer(self, answer: Answer, now_ms: int) -> None:
        commit, member, topics = answer.send.about
        commit.in_flight = False
        if answer.failure is not None:
            size = how_large(commit.offsets) if answer.failure.kind is FailureKind.DISCONNECTED else ""
            error = error_for_failure(answer.failure, f"committing {names(commit.offsets)}{size}")
            if not answer.failure.is_retriable:
                commit.operation.fail(error)
            else:
                assert isinstance(error, KafkaError)
                forget(self._coordinator, answer, str(error), now_ms)
                self._again(commit, error, now_ms)
        else:
            codes = commit_errors(answer.response, answer.version, commit.offsets, topics)
            if codes:
                self._refused(answer, commit, member, judge(codes, self._config.group_id), now_ms)
            else:
                self._coordinator.worked()
                log.debug("committed %s", names(commit.offsets))
                commit.operation.finish(commit.offsets)
        self._settle(now_ms)

    def _refused(
        self,
        answer: Answer,
        commit: PendingCommit,
        member: GroupMetadata,
        verdict: CommitVerdict,
        now_ms: int,
    ) -> None:
        code = verdict.error.code
        if verdict.forget_coordinator:
            forget(self._coordinator, answer, f"the commit was answered with {code.name}", now_ms)
        if verdict.unknown_topics:
            self._metadata.request_update(f"a commit was answered with {code.name}")
        if verdict.retriable and not (commit.gives_up_on_unknown_topics and verdict.unknown_topics):
            self._again(commit, verdict.error, now_ms)
            return
        log.info("the coordinator refused a commit of %s: %s", member, verdict.error)
        commit.operation.fail(self._moved_on(commit, member, verdict))

    def _moved_on(self, commit: PendingCommit, member: GroupMetadata, verdict: CommitVerdict) -> KafkaError:
        """What a refusal means for the membership. An answer to an older generation never touches the current one."""
        code = verdict.error.code
        if not verdict.membership_ended:
            return verdict.error
        if not commit.as_member or self.membership is None:
            return not_alone(code, commit.offsets, self._config.group_id)
        is_current = self.membership.group_metadata() == member
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if is_current:
                self.membership.request_rejoin("a commit was refused: the group is rebalancing")
            return verdict.error
        if not is_current and self.membership.rebalance_in_progress:
            return rebalance_in_progress(commit.offsets, self._config.group_id)
        if code is ErrorCode.FENCED_INSTANCE_ID and is_current:
            return verdict.error
        why = self.membership.left_because
        if is_current:
            # After ILLEGAL_GENERATION the coordinator still knows the member itself.
            self.membership.reset_generation(
                f"the coordinator answered a commit with {code.name}",
                keep_member_id=code is ErrorCode.ILLEGAL_GENERATION,
            )
        return commit_failed(code, commit.offsets, self._config.group_id, why)

    def _again(self, commit: PendingCommit, error: KafkaError, now_ms: int) -> None:
        if commit.retry:
            commit.failures += 1
            commit.obstacle = str(error)
            commit.retry_at_ms = now_ms + self._backoff.after(commit.failures)
        else:
            commit.operation.fail(
                RetriableCommitFailed(
                    error.code,
                    f"{error.message or error.code.name}; it may or may not have happened: commit again",
                )
            )
