"""Acquires records from the leaders of the assigned partitions, and brings them the acknowledgements. Sans-IO.

A node has at most one request of this part under way, since ShareFetch and ShareAcknowledge share the epoch of its
share session. Records are only fetched when poll wants some and none are buffered: the locks of records that wait here
run out as well. Acknowledgements go with the next ShareFetch to the leader that gave the records; if none follows, or
somebody waits for the outcome, by a ShareAcknowledge. If the session is lost they fail: the leader has released the
records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kohort.client.config import ShareConsumerConfig
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import NO_NODE, Node
from kohort.client.core.effects import Answer, Failure, FailureKind, Outbox, Send
from kohort.client.core.metadata import Metadata
from kohort.client.core.operation import Operation
from kohort.client.errors import TimedOut, error_for_failure
from kohort.client.group.refusals import code_name
from kohort.client.records import Deserializer
from kohort.client.share.acknowledgements import Acknowledgements, TopicIdPartition
from kohort.client.share.acquired import AcquiredFetch
from kohort.client.share.in_flight import Origin, ToSend
from kohort.client.share.share_metrics import ShareFetchMetrics
from kohort.client.share.share_session import (
    FINAL_EPOCH,
    LOST_SHARE_SESSION,
    SessionChange,
    ShareFetchPlan,
    ShareSessionHandler,
    acknowledge_request,
)
from kohort.client.share.share_words import acknowledgement_refused, fetch_refused, request_refused
from kohort.wire.errors import ErrorCode, KohortError
from kohort.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kohort.wire.messages.share_fetch import PartitionData, ShareFetchRequest, ShareFetchResponse

log = logging.getLogger("kohort.client.share")

# The partition has moved, or its topic was deleted or made again: metadata will tell.
STALE = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
# It will be better in a moment.
LATER = frozenset({
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
})  # fmt: skip
# Acknowledgements are sent again after these.
ACKNOWLEDGE_AGAIN = frozenset({
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE,
})  # fmt: skip
_MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
_NO_ANSWER = "the acknowledgements got no answer, so that records may be delivered again"


class Acknowledgement(NamedTuple):
    """What came of the acknowledgements of one partition: `error` is None if they hold."""

    origin: Origin
    said: Acknowledgements
    error: KohortError | None
    lock_timeout_ms: int | None


@dataclass(slots=True, eq=False)
class AcknowledgeCommit:
    """Acknowledgements for one node that go by a ShareAcknowledge."""

    waiting: dict[TopicIdPartition, Acknowledgements]
    deadline_ms: int
    on_done: Callable[[Acknowledgement], None] | None
    """For somebody who waits for it; acknowledgements without one may be sent together."""
    closes: bool = False
    failures: int = 0
    at_ms: int = 0


@dataclass(slots=True)
class ShareNode:
    """A leader that records are acquired from."""

    session: ShareSessionHandler
    is_busy: bool = False
    piggyback: dict[TopicIdPartition, Acknowledgements] = field(default_factory=dict)
    """Acknowledgements for the next ShareFetch."""
    commits: deque[AcknowledgeCommit] = field(default_factory=deque)
    failures: int = 0
    retry_at_ms: int = 0


class ShareFetcher:
    """The part that fetches and acknowledges; see the module's docstring."""

    def __init__(
        self,
        out: Outbox,
        config: ShareConsumerConfig,
        metadata: Metadata,
        member_id: str,
        jitter: Jitter,
        assigned: Callable[[], Iterable[TopicIdPartition]],
    ) -> None:
        self.metrics = ShareFetchMetrics(config.metric_window())
        self.buffered: deque[AcquiredFetch] = deque()
        self.deserializers: tuple[Deserializer[Any] | None, Deserializer[Any] | None] = (None, None)
        self._out, self._config, self._metadata, self._member_id = out, config, metadata, member_id
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._assigned = assigned
        self._nodes: dict[int, ShareNode] = {}
        self._wants_records = False
        self._reads_from: int | None = None  # with record_limit: the only node that is asked for records now
        self._read_last = NO_NODE
        self._answered: deque[Acknowledgement] = deque()
        self._errors: deque[KohortError] = deque()
        self._closed: Operation[None] | None = None

    # --- commands -----------------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Poll wants records, until some come."""
        self._wants_records = True

    def send_with_next_fetch(self, to_send: ToSend) -> None:
        """Sends acknowledgements with the next ShareFetch; if none follows, alone."""
        for origin, said in to_send.items():
            node = self._nodes.get(origin.node_id)
            if node is None or self._has_moved(origin):
                self._tell(origin, said, acknowledgement_refused(_MOVED, None, origin.partition))
            elif origin.partition in node.piggyback:
                node.piggyback[origin.partition].merge(said)
            else:
                node.piggyback[origin.partition] = said

    def commit(self, to_send: ToSend, deadline_ms: int, *, wait: bool) -> Operation[list[Acknowledgement]]:
        """Sends acknowledgements at once. Done when all are answered, or have failed; the operation never fails."""
        operation: Operation[list[Acknowledgement]] = Operation(deadline_ms)
        results: list[Acknowledgement] = []
        expected = len(to_send)

        def done(result: Acknowledgement) -> None:
            results.append(result)
            if len(results) == expected:
                operation.finish(results)

        by_node: dict[int, dict[TopicIdPartition, Acknowledgements]] = {}
        for origin, said in to_send.items():
            node = self._nodes.get(origin.node_id)
            if node is None or node.session.is_new or self._has_moved(origin):
                result = self._tell(origin, said, acknowledgement_refused(_MOVED, None, origin.partition))
                done(result)
            else:
                by_node.setdefault(origin.node_id, {})[origin.partition] = said
        for node_id, waiting in by_node.items():
            self._add_commit(self._nodes[node_id], waiting, deadline_ms, done if wait else None)
        if not expected or not wait:
            operation.finish(results)
        return operation

    def _add_commit(
        self,
        node: ShareNode,
        waiting: dict[TopicIdPartition, Acknowledgements],
        deadline_ms: int,
        on_done: Callable[[Acknowledgement], None] | None,
    ) -> None:
        last = node.commits[-1] if node.commits else None
        if on_done is None and last is not None and last.on_done is None and not last.failures:
            _merge(last.waiting, waiting)
        else:
            node.commits.append(AcknowledgeCommit(waiting, deadline_ms, on_done))

    def close(self, to_send: ToSend, now_ms: int, deadline_ms: int) -> Operation[None]:
        """Sends the last acknowledgements and closes all sessions, which releases what is not acknowledged."""
        self._closed = operation = Operation[None](deadline_ms)
        self._wants_records = False
        self.buffered.clear()
        self.send_with_next_fetch(to_send)
        for node_id, node in self._nodes.items():
            last, node.piggyback = node.piggyback, {}
            if self._metadata.node(node_id) is None or (node.session.is_new and not node.is_busy):
                self._fail_all(node, last, _MOVED)
            else:
                node.commits.append(AcknowledgeCommit(last, deadline_ms, None, closes=True))
        self._finish_close()
        return operation

    def _finish_close(self) -> None:
        if self._closed is not None and not any(
            node.commits or node.is_busy for node in self._nodes.values()
        ):
            self._closed.finish(None)

    def take_answered(self) -> Acknowledgement | None:
        """Returns what came of some acknowledgements, once; None if nothing is new."""
        return self._answered.popleft() if self._answered else None

    @property
    def has_answered(self) -> bool:
        return bool(self._answered)

    @property
    def has_error(self) -> bool:
        return bool(self._errors)

    def take_error(self) -> KohortError | None:
        return self._errors.popleft() if self._errors else None

    # --- the part -----------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Sends to each node that has nothing under way what is due: acknowledgements first, then a fetch."""
        self._expire(now_ms)
        for node_id, node in list(self._nodes.items()):
            self._send_alone(node)
            if node.commits and not node.is_busy:
                self._send_commit(node_id, node, now_ms)
        if self._wants_records and self._closed is None:
            self._fetch(now_ms)

    def next_deadline_ms(self) -> int | None:
        waits: list[int] = []
        for node in self._nodes.values():
            if node.is_busy:
                continue
            waits += [commit.deadline_ms for commit in node.commits]
            waits += [commit.at_ms for commit in list(node.commits)[:1] if commit.at_ms]
            if node.retry_at_ms and self._wants_records:
                waits.append(node.retry_at_ms)
        return min(waits, default=None)

    def _send_alone(self, node: ShareNode) -> None:
        """Moves acknowledgements that no ShareFetch takes along soon into a ShareAcknowledge."""
        if not node.piggyback or (self._wants_records and not any(_renews(node.piggyback))):
            return
        waiting, node.piggyback = node.piggyback, {}
        if node.session.is_new and not node.is_busy:
            self._fail_all(node, waiting, _MOVED)
        else:
            self._add_commit(node, waiting, _FAR_MS, None)

    # --- fetching -----------------------------------------------------------------------------------------

    def _fetch(self, now_ms: int) -> None:
        wanted = self._wanted()
        for node_id in wanted:
            self._nodes.setdefault(node_id, ShareNode(ShareSessionHandler(node_id)))
        ready = [n for n, node in self._nodes.items() if self._may_fetch(node, now_ms)]
        reading = self._choose(ready, wanted)
        for node_id in ready:
            node = self._nodes[node_id]
            mine = wanted.get(node_id, [])
            self._drop_moved(node_id, node, mine)
            if node.commits:
                self._send_commit(node_id, node, now_ms)
                continue
            change = node.session.change(mine)
            reads = node_id in reading
            if not (reads or change.added or change.forgotten or node.piggyback):
                continue
            if not mine and node.session.is_new:
                continue
            self._send_fetch(node_id, node, change, reads, now_ms)

    def _wanted(self) -> dict[int, list[TopicIdPartition]]:
        """Returns the assigned partitions by their leaders."""
        wanted: dict[int, list[TopicIdPartition]] = {}
        for partition in self._assigned():
            leader = self._metadata.cluster.leader_of(partition.place)
            if leader == NO_NODE or self._metadata.node(leader) is None:
                self._metadata.request_update(f"no leader is known of {partition}, which is to be read")
            else:
                wanted.setdefault(leader, []).append(partition)
        return wanted

    def _may_fetch(self, node: ShareNode, now_ms: int) -> bool:
        return not node.is_busy and not node.commits and node.retry_at_ms <= now_ms

    def _choose(self, ready: list[int], wanted: dict[int, list[TopicIdPartition]]) -> set[int]:
        """Returns the nodes to ask for records: all of them, or with record_limit one after the other."""
        readable = sorted(node_id for node_id in ready if node_id in wanted)
        if self._config.share_acquire_mode != "record_limit":
            return set(readable)
        if self._reads_from is not None or not readable:
            return set()
        chosen = next((node_id for node_id in readable if node_id > self._read_last), readable[0])
        self._reads_from = self._read_last = chosen
        return {chosen}

    def _drop_moved(self, node_id: int, node: ShareNode, mine: list[TopicIdPartition]) -> None:
        """Takes out acknowledgements that the next ShareFetch cannot take along."""
        for partition in [each for each in node.piggyback if node.session.is_new or each not in mine]:
            said = node.piggyback.pop(partition)
            if node.session.is_new or self._has_moved(Origin(node_id, partition)):
                self._fail_all(node, {partition: said}, _MOVED)
            else:  # a ShareFetch that named it would put it into the session
                self._add_commit(node, {partition: said}, _FAR_MS, None)

    def _send_fetch(
        self, node_id: int, node: ShareNode, change: SessionChange, reads: bool, now_ms: int
    ) -> None:
        said, node.piggyback = node.piggyback, {}
        self.metrics.acknowledgements.record(sum(map(len, said.values())), now_ms)
        plan = ShareFetchPlan(node.session.epoch, change, said, reads)
        node.is_busy = True
        log.debug(
            "node %d: ShareFetch %d of %d partitions (%d new, %d forgotten), acknowledges %d",
            node_id,
            plan.epoch,
            len(node.session.partitions),
            len(change.added),
            len(change.forgotten),
            len(said),
        )
        self._out.append(
            Send(
                node_id,
                ShareFetchRequest.API_KEY,
                partial(plan.request, self._config, self._member_id),
                "share.fetch",
                self._config.request_timeout_ms + self._config.fetch_max_wait_ms,
                on_answer=partial(self._fetched, plan, now_ms),
            )
        )

    def _fetched(self, plan: ShareFetchPlan, sent_ms: int, answer: Answer, now_ms: int) -> None:
        node_id = answer.send.node_id
        node = self._nodes[node_id]
        node.is_busy = False
        if self._reads_from == node_id and plan.reads:
            self._reads_from = None
        if answer.failure is not None:
            self._failed(node_id, node, answer.failure, now_ms)
            self._raise_from_poll(node_id, answer.failure)
            self._refuse(node, plan.acknowledged, error_for_failure(answer.failure, _NO_ANSWER))
            self._finish_close()
            return
        response: ShareFetchResponse = answer.response
        self.metrics.fetched(now_ms - sent_ms, response.throttle_time_ms, now_ms)
        if not node.session.answered(response.error_code):
            error = request_refused(
                response.error_code, response.error_message, self._metadata.name_of(node_id), self._config
            )
            self._refused(node_id, node, response.error_code, error, now_ms)
            self._refuse(node, plan.acknowledged, error)
        else:
            self._received(node_id, node, plan, response, now_ms)
        if response.throttle_time_ms > 0:
            node.retry_at_ms = max(node.retry_at_ms, now_ms + response.throttle_time_ms)
        self._finish_close()

    def _received(
        self, node_id: int, node: ShareNode, plan: ShareFetchPlan, response: ShareFetchResponse, now_ms: int
    ) -> None:
        lock_ms = response.acquisition_lock_timeout_ms or None
        said = dict(plan.acknowledged)
        known = {(each.topic_id, each.partition): each for each in (*node.session.partitions.values(), *said)}
        failed, before = False, len(self.buffered)
        for topic in response.responses:
            for data in topic.partitions:
                partition = known.get((topic.topic_id, data.partition_index))
                if partition is None:
                    log.warning(
                        "node %d answered for a partition that it was not asked for; it is ignored", node_id
                    )
                    continue
                if partition in said:
                    self._acknowledged(node_id, partition, said.pop(partition), data, lock_ms, now_ms)
                failed |= self._arrived(node_id, partition, data, lock_ms, response, now_ms)
        self._refuse_unanswered(node_id, said)
        if new := list(self.buffered)[before:]:
            acquired = sum(last - first + 1 for each in new for first, last, _ in each.ranges)
            self.metrics.brought(sum(len(each.records) for each in new), acquired, now_ms)
        if failed:
            node.failures += 1
            node.retry_at_ms = now_ms + max(1, self._backoff.after(node.failures))
        else:
            node.failures = node.retry_at_ms = 0

    def _acknowledged(
        self,
        node_id: int,
        partition: TopicIdPartition,
        said: Acknowledgements,
        data: PartitionData,
        lock_ms: int | None,
        now_ms: int,
    ) -> None:
        code = data.acknowledge_error_code
        error = acknowledgement_refused(code, data.acknowledge_error_message, partition) if code else None
        if error is not None:
            self.metrics.refused.record(len(said), now_ms)
        self._tell(Origin(node_id, partition), said, error, lock_ms)

    def _arrived(
        self,
        node_id: int,
        partition: TopicIdPartition,
        data: PartitionData,
        lock_ms: int | None,
        response: ShareFetchResponse,
        now_ms: int,
    ) -> bool:
        """Buffers what was acquired of a partition. Returns whether it failed."""
        if data.error_code != ErrorCode.NONE:
            self._partition_failed(partition, data, response)
            return True
        if data.acquired_records and self._closed is None:
            self._wants_records = False
            self.buffered.append(
                AcquiredFetch(
                    node_id,
                    partition,
                    lock_ms,
                    memoryview(data.records or b""),  # type: ignore[arg-type]
                    [
                        (each.first_offset, each.last_offset, each.delivery_count)
                        for each in data.acquired_records
                    ],
                    self.deserializers,
                    self._config.check_crcs,
                )
            )
        return False

    def _partition_failed(
        self, partition: TopicIdPartition, data: PartitionData, response: ShareFetchResponse
    ) -> None:
        code = data.error_code
        if code in STALE:
            log.debug("%s: %s", partition, code_name(code))
            self._learn_leader(partition, data.current_leader, response.node_endpoints)
        elif code in LATER:
            log.info("%s: %s; it is asked again", partition, code_name(code))
        else:
            self._errors.append(fetch_refused(code, data.error_message, partition))

    def _learn_leader(self, partition: TopicIdPartition, leader: Any, endpoints: Iterable[Any]) -> None:
        nodes = tuple(Node(each.node_id, each.host, each.port, each.rack) for each in endpoints)
        if leader.leader_id < 0 or not self._metadata.update_leader(
            partition.place, leader.leader_id, leader.leader_epoch, nodes
        ):
            self._metadata.request_update(f"{partition} has moved, or is not there any more")

    # --- acknowledging ------------------------------------------------------------------------------------

    def _send_commit(self, node_id: int, node: ShareNode, now_ms: int) -> None:
        commit = node.commits[0]
        if commit.at_ms > now_ms:
            return
        node.commits.popleft()
        if node.session.is_new:
            for partition, mine in commit.waiting.items():
                error = acknowledgement_refused(_MOVED, None, partition)
                self._finish_one(commit, Origin(node_id, partition), mine, error, None)
            self._finish_close()
            return
        said = commit.waiting
        epoch = FINAL_EPOCH if commit.closes else node.session.epoch
        self.metrics.acknowledgements.record(sum(map(len, said.values())), now_ms)
        node.is_busy = True
        self._out.append(
            Send(
                node_id,
                ShareAcknowledgeRequest.API_KEY,
                partial(acknowledge_request, self._config.group_id or "", self._member_id, epoch, said),
                "share.close" if commit.closes else "share.acknowledge",
                self._config.request_timeout_ms,
                on_answer=partial(self._commit_answered, commit, said),
            )
        )

    def _commit_answered(
        self,
        commit: AcknowledgeCommit,
        said: dict[TopicIdPartition, Acknowledgements],
        answer: Answer,
        now_ms: int,
    ) -> None:
        node_id = answer.send.node_id
        node = self._nodes[node_id]
        node.is_busy = False
        commit.waiting = {}
        if answer.failure is not None:
            self._failed(node_id, node, answer.failure, now_ms)
            self._fail_commit(node, commit, said, error_for_failure(answer.failure, _NO_ANSWER), now_ms)
        elif commit.closes:
            node.session.lose()
            self._accept_answers(node, commit, said, answer.response, now_ms)
        elif node.session.answered(answer.response.error_code):
            self._accept_answers(node, commit, said, answer.response, now_ms)
        else:
            self._commit_refused(node_id, node, commit, said, answer.response, now_ms)
        self._finish_close()

    def _accept_answers(
        self,
        node: ShareNode,
        commit: AcknowledgeCommit,
        said: dict[TopicIdPartition, Acknowledgements],
        response: ShareAcknowledgeResponse,
        now_ms: int,
    ) -> None:
        lock_ms = response.acquisition_lock_timeout_ms or None
        node_id = node.session.node_id
        known = {(each.topic_id, each.partition): each for each in said}
        again: dict[TopicIdPartition, Acknowledgements] = {}
        for topic in response.responses:
            for data in topic.partitions:
                partition = known.get((topic.topic_id, data.partition_index))
                if partition is None or partition not in said:
                    continue
                mine, code = said.pop(partition), data.error_code
                if code in ACKNOWLEDGE_AGAIN and not commit.closes:
                    again[partition] = mine
                    continue
                if code in STALE:
                    self._learn_leader(partition, data.current_leader, response.node_endpoints)
                error = acknowledgement_refused(code, data.error_message, partition) if code else None
                if error is not None:
                    self.metrics.refused.record(len(mine), now_ms)
                self._finish_one(commit, Origin(node_id, partition), mine, error, None if code else lock_ms)
        if said and commit.closes and response.error_code:
            error = acknowledgement_refused(response.error_code, response.error_message, "all partitions")
            self._fail_commit(node, commit, said, error, now_ms)
        for partition, mine in said.items():
            error = acknowledgement_refused(
                ErrorCode.INVALID_RECORD_STATE, "the answer does not name it", partition
            )
            self._finish_one(commit, Origin(node_id, partition), mine, error, None)
        if again:
            self._retry(node, commit, again, now_ms)

    def _commit_refused(
        self,
        node_id: int,
        node: ShareNode,
        commit: AcknowledgeCommit,
        said: dict[TopicIdPartition, Acknowledgements],
        response: ShareAcknowledgeResponse,
        now_ms: int,
    ) -> None:
        code = response.error_code
        if code in ACKNOWLEDGE_AGAIN:
            self._retry(node, commit, said, now_ms)
            return
        error = request_refused(code, response.error_message, self._metadata.name_of(node_id), self._config)
        log.info("node %d: %s", node_id, error)
        self._fail_commit(node, commit, said, error, now_ms)

    def _retry(
        self,
        node: ShareNode,
        commit: AcknowledgeCommit,
        said: dict[TopicIdPartition, Acknowledgements],
        now_ms: int,
    ) -> None:
        commit.waiting = said
        commit.failures += 1
        commit.at_ms = now_ms + max(1, self._backoff.after(commit.failures))
        if commit.deadline_ms == _FAR_MS:
            commit.deadline_ms = now_ms + self._config.default_api_timeout_ms
        node.commits.appendleft(commit)

    def _expire(self, now_ms: int) -> None:
        for node in self._nodes.values():
            if node.is_busy:
                continue
            for commit in [each for each in node.commits if each.deadline_ms <= now_ms]:
                node.commits.remove(commit)
                late = TimedOut("time was up before the acknowledgements were answered; they may hold or not")
                self._fail_commit(node, commit, commit.waiting, late, now_ms)
        self._finish_close()

    def _fail_commit(
        self,
        node: ShareNode,
        commit: AcknowledgeCommit,
        said: dict[TopicIdPartition, Acknowledgements],
        error: KohortError,
        now_ms: int,
    ) -> None:
        self.metrics.refused.record(sum(map(len, said.values())), now_ms)
        for partition in list(said):
            self._finish_one(
                commit, Origin(node.session.node_id, partition), said.pop(partition), error, None
            )

    def _finish_one(
        self,
        commit: AcknowledgeCommit,
        origin: Origin,
        said: Acknowledgements,
        error: KohortError | None,
        lock_ms: int | None,
    ) -> None:
        result = self._tell(origin, said, error, lock_ms)
        if commit.on_done is not None:
            commit.on_done(result)

    # --- failures -----------------------------------------------------------------------------------------

    def _failed(self, node_id: int, node: ShareNode, failure: Failure, now_ms: int) -> None:
        if failure.kind not in (
            FailureKind.UNSUPPORTED_VERSION,
            FailureKind.UNENCODABLE,
        ):  # those were not sent
            node.session.lose()
        node.failures += 1
        node.retry_at_ms = now_ms + max(1, self._backoff.after(node.failures))
        level = logging.INFO if node.failures == 1 else logging.DEBUG
        log.log(level, "node %d: no answer (%s %s)", node_id, failure.kind.value, failure.message)
        self._metadata.request_update(f"a request to node {node_id} failed: {failure.kind.value}")

    def _raise_from_poll(self, node_id: int, failure: Failure) -> None:
        """Has poll raise what trying again does not cure."""
        if not failure.is_retriable and failure.kind is not FailureKind.BAD_ANSWER:
            self._errors.append(error_for_failure(failure, f"reading from node {node_id}"))

    def _refused(self, node_id: int, node: ShareNode, code: int, error: KohortError, now_ms: int) -> None:
        node.failures += 1
        if (
            code not in LOST_SHARE_SESSION
            or node.failures > 1
            or code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        ):
            node.retry_at_ms = now_ms + max(1, self._backoff.after(node.failures))
        if code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            self._metadata.warnings.warn(log, self._metadata.name_of(node_id), now_ms, str(error))
        elif code in LOST_SHARE_SESSION:
            log.info("%s", error)
        elif code in STALE:
            self._metadata.request_update(f"node {node_id} answered a ShareFetch with {code_name(code)}")
        elif code not in LATER:
            self._errors.append(error)

    def _refuse(self, node: ShareNode, said: Any, error: KohortError) -> None:
        for partition, mine in said.items():
            self._tell(Origin(node.session.node_id, partition), mine, error)

    def _refuse_unanswered(self, node_id: int, said: dict[TopicIdPartition, Acknowledgements]) -> None:
        for partition, mine in said.items():
            error = acknowledgement_refused(
                ErrorCode.INVALID_RECORD_STATE, "the answer does not name it", partition
            )
            self._tell(Origin(node_id, partition), mine, error)

    def _fail_all(
        self, node: ShareNode, said: dict[TopicIdPartition, Acknowledgements], code: ErrorCode
    ) -> None:
        for partition, mine in said.items():
            origin = Origin(node.session.node_id, partition)
            self._tell(origin, mine, acknowledgement_refused(code, None, partition))

    def _has_moved(self, origin: Origin) -> bool:
        """Whether another node is known to lead the partition now; an unknown leader may still be the same."""
        leader = self._metadata.cluster.leader_of(origin.partition.place)
        return leader not in (NO_NODE, origin.node_id)

    def _tell(
        self,
        origin: Origin,
        said: Acknowledgements,
        error: KohortError | None,
        lock_timeout_ms: int | None = None,
    ) -> Acknowledgement:
        result = Acknowledgement(origin, said, error, lock_timeout_ms)
        self._answered.append(result)
        return result


_FAR_MS = 1 << 62


def _renews(said: dict[TopicIdPartition, Acknowledgements]) -> Iterable[bool]:
    return (each.has_renewals for each in said.values())


def _merge(
    into: dict[TopicIdPartition, Acknowledgements], more: dict[TopicIdPartition, Acknowledgements]
) -> None:
    for partition, said in more.items():
        if partition in into:
            into[partition].merge(said)
        else:
            into[partition] = said
