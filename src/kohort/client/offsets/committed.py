"""Looks up what the group has committed for any partitions; the consumer need not be a member.

A part of commits.py. Each look-up is asked again, with backoff, until it is answered, fails for good or its time is up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import Cluster
from kohort.client.core.effects import Answer, Lane, Outbox, Send
from kohort.client.core.operation import Operation
from kohort.client.errors import TimedOut, error_for, error_for_failure
from kohort.client.offsets.offset_requests import (
    BY_NAME,
    as_partition,
    fetched_offsets,
    ids_of,
    names,
    names_by_id,
    offset_fetch,
)
from kohort.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.offset_fetch import OffsetFetchRequest

log = logging.getLogger("kohort.client.commits")

Committed = dict[TopicPartition, OffsetAndMetadata | None]

COORDINATOR_GONE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
TOPIC_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
MOVED_ON = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
RETRIED = (
    *COORDINATOR_GONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


class CoordinatorSource(Protocol):
    """What is used of `GroupCoordinator`."""

    @property
    def node_id(self) -> int | None: ...
    @property
    def error(self) -> Exception | None: ...
    @property
    def last_failure(self) -> str: ...
    def ensure(self, now_ms: int) -> int | None: ...
    def forget(self, reason: str, now_ms: int) -> None: ...
    def worked(self) -> None: ...


class ClusterSource(Protocol):
    """What is used of `Metadata`."""

    @property
    def cluster(self) -> Cluster: ...
    def request_update(self, reason: str) -> None: ...


def no_coordinator(coordinator: CoordinatorSource) -> str:
    """Says why nothing could be sent, for the text of a timeout."""
    return coordinator.last_failure or "the group's coordinator is not known yet"


def forget(coordinator: CoordinatorSource, answer: Answer, reason: str, now_ms: int) -> None:
    """Forgets the coordinator, if it is still the one that gave this answer."""
    if coordinator.node_id == answer.send.node_id:
        coordinator.forget(reason, now_ms)


@dataclass(slots=True, eq=False)
class _LookUp:
    partitions: tuple[TopicPartition, ...]
    operation: Operation[Committed]
    in_flight: bool = False
    failures: int = 0
    retry_at_ms: int = 0
    obstacle: str = ""


class CommittedOffsets:
    """The look-ups that are under way; a part of commits.py."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        coordinator: CoordinatorSource,
        metadata: ClusterSource,
        jitter: Jitter,
        lane: Callable[[], Lane],
        asks_as: Callable[[], GroupMetadata | None] = lambda: None,
    ) -> None:
        """`asks_as` gives the identity that a look-up carries, if the group wants one."""
        self._asks_as = asks_as
        self._out, self._config, self._coordinator, self._metadata = out, config, coordinator, metadata
        self._lane = lane
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._look_ups: list[_LookUp] = []

    def look_up(self, partitions: Iterable[TopicPartition], deadline_ms: int | None) -> Operation[Committed]:
        """Begins a look-up; None for a partition without a commit. If the caller fails the operation, it ends."""
        wanted = tuple(sorted(set(map(as_partition, partitions))))
        operation: Operation[Committed] = Operation(deadline_ms)
        if wanted:
            self._look_ups.append(_LookUp(wanted, operation))
        else:
            operation.finish({})
        return operation

    def tick(self, now_ms: int) -> None:
        for look_up in self._look_ups:
            deadline_ms = look_up.operation.deadline_ms
            if deadline_ms is not None and now_ms >= deadline_ms:
                look_up.operation.fail(
                    TimedOut(
                        f"the committed offsets of {names(look_up.partitions)} in group {self._config.group_id} "
                        f"did not come in time: {look_up.obstacle or no_coordinator(self._coordinator)}"
                    )
                )
        self._look_ups = [one for one in self._look_ups if not one.operation.done]
        for look_up in self._look_ups:
            if not look_up.in_flight and now_ms >= look_up.retry_at_ms:
                self._ask(look_up, now_ms)

    def _ask(self, look_up: _LookUp, now_ms: int) -> None:
        look_up.retry_at_ms = 0  # from here on the coordinator's own deadline counts
        node_id = self._coordinator.ensure(now_ms)
        if (error := self._coordinator.error) is not None:
            look_up.operation.fail(error)
        if node_id is None:
            return
        assert self._config.group_id is not None
        ids = ids_of(self._metadata.cluster, look_up.partitions)
        member = self._asks_as()
        look_up.in_flight = True
        self._out.append(
            Send(
                node_id,
                OffsetFetchRequest.API_KEY,
                offset_fetch(self._config.group_id, look_up.partitions, ids, member),
                "commits.committed",
                self._config.request_timeout_ms,
                lane=self._lane(),
                max_version=None if ids is not None else BY_NAME,
                on_answer=partial(self._answered, look_up, names_by_id(ids), member),
            )
        )

    def _answered(
        self,
        look_up: _LookUp,
        topics: dict[bytes, str],
        member: GroupMetadata | None,
        answer: Answer,
        now_ms: int,
    ) -> None:
        look_up.in_flight = False
        if answer.failure is not None:
            error = error_for_failure(
                answer.failure, f"looking up the offsets of {names(look_up.partitions)}"
            )
            if answer.failure.is_retriable:
                forget(self._coordinator, answer, str(error), now_ms)
                self._again(look_up, str(error), now_ms)
            else:
                look_up.operation.fail(error)
            return
        assert self._config.group_id is not None
        code, found = fetched_offsets(answer.response, answer.version, self._config.group_id, topics)
        # Version 1 has no place for the group's own error and repeats it for every partition.
        codes = {p: found[p][0] for p in look_up.partitions if p in found and found[p][0]}
        if code is ErrorCode.NONE and len(found.keys() & set(look_up.partitions)) < len(look_up.partitions):
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.NONE and not codes:
            self._coordinator.worked()
            look_up.operation.finish({p: found[p][1] for p in look_up.partitions})
        elif member is not None and code in MOVED_ON:
            # The epoch moves on with a heartbeat's answer; whoever is no member any more may still ask as nobody.
            self._again(
                look_up, f"the coordinator answered {code.name} to epoch {member.generation_id}", now_ms
            )
        else:
            self._refused(answer, look_up, code, codes, now_ms)

    def _refused(
        self,
        answer: Answer,
        look_up: _LookUp,
        code: ErrorCode,
        codes: dict[TopicPartition, ErrorCode],
        now_ms: int,
    ) -> None:
        code = code or next((c for c in codes.values() if c not in RETRIED), next(iter(codes.values()), code))
        if code not in RETRIED:
            look_up.operation.fail(self._error(look_up, code, codes))
            return
        reason = f"the coordinator answered {code.name}"
        if code in COORDINATOR_GONE:
            forget(self._coordinator, answer, reason, now_ms)
        elif code is ErrorCode.UNKNOWN_TOPIC_ID:
            self._metadata.request_update("the coordinator does not know the id of a topic")
        elif code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            unstable = names(p for p, c in codes.items() if c is code)
            log.info("offsets of %s are part of a transaction that is still open; asking again", unstable)
        self._again(look_up, reason, now_ms)

    def _error(self, look_up: _LookUp, code: ErrorCode, codes: dict[TopicPartition, ErrorCode]) -> KafkaError:
        group = self._config.group_id
        concerned = [p for p, c in codes.items() if c is code] or look_up.partitions
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return error_for(
                code, f"not allowed to read the offsets of group {group}: it needs DESCRIBE on the group"
            )
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topics = ", ".join(sorted({p.topic for p in concerned}))
            return error_for(code, f"not allowed to read the offsets of the topics {topics}")
        if code in TOPIC_UNKNOWN:
            return error_for(
                code, f"{names(concerned)} does not exist: nothing is committed for it in group {group}"
            )
        return error_for(code, f"looking up the offsets of {names(concerned)} in group {group}")

    def _again(self, look_up: _LookUp, obstacle: str, now_ms: int) -> None:
        look_up.failures += 1
        look_up.obstacle = obstacle
        look_up.retry_at_ms = now_ms + self._backoff.after(look_up.failures)

    def next_deadline_ms(self) -> int | None:
        times = [one.operation.deadline_ms for one in self._look_ups] + [
            one.retry_at_ms for one in self._look_ups if not one.in_flight and one.retry_at_ms
        ]
        return min((ms for ms in times if ms is not None), default=None)
