"""Fetches the assigned partitions ahead of the user, and hands out their records with `take`.

Each node has at most one fetch under way. A partition may have one answer buffered and the next under way from where
that one ends, so that the broker works while the user does. A node is not asked while the buffer of one of its
partitions is full: a fetch without that partition would keep the connection in a long poll when there is room again.

Positions advance only in `take`. An answer to a question from before a seek, a reset or a change of assignment is
dropped: `PartitionState.seeks` and the state object itself are compared with those at the time of asking.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kohort.client.config import ConsumerConfig
from kohort.client.consume.fetch_buffer import (
    ARROW_DECODED,
    MAX_ARROW_BYTES,
    MAX_CHAIN,
    MAX_DECODED,
    MAX_ROWS,
    FetchBuffer,
    FetchSize,
    Piece,
    end_of,
)
from kohort.client.consume.fetch_errors import FetchErrors, Question, name
from kohort.client.consume.fetch_metrics import FetchMetrics
from kohort.client.consume.fetch_session import (
    LOST_SESSION,
    AskedPartition,
    FetchRequestData,
    FetchSessionHandler,
    fetch_request,
)
from kohort.client.core.backoff import Backoff, Jitter
from kohort.client.core.cluster import NO_NODE, Node, PartitionInfo
from kohort.client.core.effects import Answer, Failure, FailureKind, Outbox, Send, ignore_answer
from kohort.client.core.metadata import Metadata
from kohort.client.errors import error_for_failure
from kohort.client.offsets.subscription import PartitionState, SubscriptionState
from kohort.client.records import Records
from kohort.client.types import TopicPartition
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kohort.wire.records.columns import Columns
from kohort.wire.struct import ZERO_UUID

log = logging.getLogger("kohort.client.fetcher")


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """A fetch under way."""

    plan: FetchRequestData
    questions: dict[TopicPartition, Question]
    sent_ms: int


@dataclass(slots=True)
class FetchNode:
    """A node that is fetched from."""

    session: FetchSessionHandler
    under_way: Fetch | None = None
    failures: int = 0
    retry_at_ms: int = 0
    """0 means at once."""


@dataclass(slots=True)
class _Round:
    """What one tick collects: whom to ask for what."""

    wanted: dict[int, dict[TopicPartition, AskedPartition]] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    """Nodes that must not be asked now: they are busy, or the buffer of one of their partitions is full."""


class Fetcher:
    """The part that fetches; see the module's docstring."""

    def __init__(
        self,
        out: Outbox,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        metadata: Metadata,
        jitter: Jitter,
    ) -> None:
        self._out = out
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, jitter)
        self._read_committed = config.isolation_level == "read_committed"
        self.metrics = FetchMetrics(config.metric_window(), subscription, self._read_committed)
        self._nodes: dict[int, FetchNode] = {}
        self._buffer = FetchBuffer()
        self.buffered: Iterable[TopicPartition] = self._buffer
        self._served: dict[TopicPartition, int] = {}
        self._serving = 0
        self._errors = FetchErrors(subscription, metadata, self._buffer, self._backoff)
        self._closed = False
        self._size = FetchSize(config.max_partition_fetch_bytes)
        self._arrow_bytes = 0  # of the last batch of Arrow

    # --- asking -----------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Sends a fetch to each node that has none under way and whose partitions may all be asked for more."""
        if self._closed:
            return
        self._drop_late()
        self._end_waits(now_ms)
        busy = {
            n for n, node in self._nodes.items() if node.under_way is not None or node.retry_at_ms > now_ms
        }
        now = _Round(closed=busy)
        all_nodes = self._metadata.cluster.nodes.keys()
        for partition, state in self._subscription.fetchable():
            if all_nodes and now.closed >= all_nodes:
                return
            self._consider(partition, state, now, now_ms)
        for node_id, wanted in now.wanted.items():
            if node_id not in now.closed:
                self._send(node_id, wanted, now_ms)

    def _consider(self, partition: TopicPartition, state: PartitionState, now: _Round, now_ms: int) -> None:
        info = self._metadata.cluster.partition(partition)
        if info is not None and info.leader_id in now.closed and state.preferred_replica == NO_NODE:
            return
        if self._errors.must_wait(partition, state, info):
            return
        node_id = self._node_for(partition, state, info, now_ms)
        if node_id == NO_NODE or node_id in now.closed:
            return
        assert info is not None
        offset = self._next_offset(partition, state)
        if offset is None:
            now.closed.add(node_id)
            return
        asked = AskedPartition(self._topic_id(partition), offset, info.leader_epoch, self._size.to_ask)
        now.wanted.setdefault(node_id, {})[partition] = asked

    def _next_offset(self, partition: TopicPartition, state: PartitionState) -> int | None:
        """Returns the offset to fetch from; None while the buffer of the partition is full."""
        chain = self._buffer.chain(partition)
        if chain is None:
            assert state.position is not None
            return state.position.offset
        if (
            len(chain) >= MAX_CHAIN
            or not self._errors.may_read_ahead(partition)
            or self._buffer.bytes >= self._config.fetch_max_bytes
        ):
            return None
        return chain[-1].end_offset

    def _node_for(
        self, partition: TopicPartition, state: PartitionState, info: PartitionInfo | None, now_ms: int
    ) -> int:
        """Returns the replica to read from: the preferred one (KIP-392), else the leader, NO_NODE if there is none."""
        if info is None or info.leader_id == NO_NODE or self._metadata.node(info.leader_id) is None:
            self._metadata.request_update(f"no leader is known of {partition}, which is to be read")
            return NO_NODE
        preferred = state.preferred_replica
        if preferred == NO_NODE:
            return info.leader_id
        if now_ms >= state.preferred_until_ms:
            log.debug(
                "%s: replica %d was preferred long enough, the leader is asked again", partition, preferred
            )
        elif self._metadata.node(preferred) is None or preferred in info.offline_replicas:
            log.info("%s: replica %d is offline, reading from the leader again", partition, preferred)
            self._metadata.request_update(f"the preferred replica {preferred} of {partition} is offline")
        else:
            return preferred
        state.prefer_leader()
        return info.leader_id

    def _topic_id(self, partition: TopicPartition) -> bytes:
        topic = self._metadata.cluster.topics.get(partition.topic)
        return topic.topic_id if topic is not None else ZERO_UUID

    def _send(self, node_id: int, wanted: dict[TopicPartition, AskedPartition], now_ms: int) -> None:
        # The partition that was served last comes last: an answer is filled in this order.
        served = self._served
        order = sorted(wanted, key=lambda partition: served.get(partition, 0))
        node = self._nodes.setdefault(node_id, FetchNode(FetchSessionHandler(node_id)))
        plan = node.session.plan({partition: wanted[partition] for partition in order})
        states = self._subscription.partitions
        questions = {
            p: Question(states[p], states[p].seeks, asked.fetch_offset) for p, asked in wanted.items()
        }
        node.under_way = Fetch(plan, questions, now_ms)
        log.debug("node %d: %s", node_id, plan)
        self._out.append(
            Send(
                node_id,
                FetchRequest.API_KEY,
                partial(fetch_request, plan, self._config),
                "fetcher.fetch",
                # The broker may keep it for fetch.max.wait.ms before it has to hurry.
                self._config.request_timeout_ms + self._config.fetch_max_wait_ms,
                max_version=plan.max_version,
                on_answer=partial(self._fetched, node.under_way),
            )
        )

    def next_deadline_ms(self) -> int | None:
        if self._closed:
            return None
        waits = [node.retry_at_ms for node in self._nodes.values() if node.retry_at_ms]
        errors_ms = self._errors.next_deadline_ms()
        if errors_ms is not None:
            waits.append(errors_ms)
        return min(waits, default=None)

    def _end_waits(self, now_ms: int) -> None:
        for node in self._nodes.values():
            if node.retry_at_ms <= now_ms:
                node.retry_at_ms = 0
        self._errors.end_waits(now_ms)

    # --- answered -----------------------------------------------------------------------------------------

    def _fetched(self, fetch: Fetch, answer: Answer, now_ms: int) -> None:
        node_id = answer.send.node_id
        node = self._nodes.get(node_id)
        if node is None or node.under_way is not fetch or self._closed:
            return
        node.under_way = None
        if answer.failure is not None:
            self._failed(node, fetch, answer.failure, now_ms)
            return
        response: FetchResponse = answer.response
        found = node.session.accept(fetch.plan, response, answer.version)
        sizes: dict[str, int] = {}
        if found is None:
            self._refused(node, response, now_ms)
        else:
            node.failures = node.retry_at_ms = 0
            leaders = tuple(Node(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints)
            for partition, data in found.items():
                if data.records:
                    sizes[partition.topic] = sizes.get(partition.topic, 0) + len(data.records)
                self._arrived(node_id, partition, data, fetch.questions[partition], leaders, now_ms)
        self.metrics.fetched(now_ms - fetch.sent_ms, response.throttle_time_ms, sizes, now_ms)
        if response.throttle_time_ms > 0:
            node.retry_at_ms = max(node.retry_at_ms, now_ms + response.throttle_time_ms)

    def _failed(self, node: FetchNode, fetch: Fetch, failure: Failure, now_ms: int) -> None:
        node_id = node.session.node_id
        node.session.begin_again()
        node.failures += 1
        node.retry_at_ms = now_ms + max(1, self._backoff.after(node.failures))
        level = logging.INFO if node.failures == 1 else logging.DEBUG
        log.log(level, "node %d: fetching failed (%s %s)", node_id, failure.kind.value, failure.message)
        for question in fetch.questions.values():
            if question.state.preferred_replica == node_id:
                question.state.prefer_leader()
        self._metadata.request_update(f"a fetch from node {node_id} failed: {failure.kind.value}")
        if not failure.is_retriable and failure.kind is not FailureKind.BAD_ANSWER:
            self._errors.add(error_for_failure(failure, f"reading from node {node_id}"))

    def _refused(self, node: FetchNode, response: FetchResponse, now_ms: int) -> None:
        """Handles an answer that is of no use; the session has made the next fetch a full one."""
        node.failures += 1
        if response.error_code:
            log.info("node %d: %s, a full fetch follows", node.session.node_id, name(response.error_code))
        if response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._metadata.request_update("a broker knows other topic ids than we do")
        if response.error_code not in LOST_SESSION or node.failures > 1:
            node.retry_at_ms = now_ms + max(1, self._backoff.after(node.failures))

    def _arrived(
        self,
        node_id: int,
        partition: TopicPartition,
        data: PartitionData,
        question: Question,
        leaders: tuple[Node, ...],
        now_ms: int,
    ) -> None:
        state = question.state
        is_current = question.is_current(partition, self._subscription)
        if not is_current or question.offset != self._expected(partition, state):
            log.debug("%s: a late answer from offset %d is dropped", partition, question.offset)
            return
        if data.error_code != ErrorCode.NONE:
            self._errors.failed(node_id, partition, data, question, leaders, now_ms)
            return
        self._errors.succeeded(partition)
        self._learn(partition, state, data, now_ms)
        records = memoryview(data.records or b"")  # type: ignore[arg-type]
        if not len(records):
            return
        self._serving += 1
        self._served[partition] = self._serving
        end = end_of(records)
        if end is not None:
            self._size.arrived(len(records), end[0] - question.offset)
        aborted = None
        if self._read_committed:
            aborted = [(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or ()]
        end_offset, end_epoch = (None, -1) if end is None else (max(end[0], question.offset), end[1])
        piece = Piece(
            state, question.seeks, question.offset, records, aborted, len(records), end_offset, end_epoch
        )
        self._buffer.add(partition, piece)

    def _expected(self, partition: TopicPartition, state: PartitionState) -> int | None:
        """Returns the offset that an answer must begin with to be of use."""
        chain = self._buffer.chain(partition)
        if chain is not None:
            return chain[-1].end_offset
        return state.position.offset if state.position is not None else None

    def _learn(
        self, partition: TopicPartition, state: PartitionState, data: PartitionData, now_ms: int
    ) -> None:
        state.learn_offsets(
            now_ms,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
            last_stable_offset=data.last_stable_offset,
        )
        if data.preferred_read_replica >= 0 and data.preferred_read_replica != state.preferred_replica:
            log.info("%s: reading from replica %d from now on", partition, data.preferred_read_replica)
            state.prefer_replica(data.preferred_read_replica, now_ms + self._config.metadata_max_age_ms)

    # --- errors ---------------------------------------------------------------------------------------------

    @property
    def has_error(self) -> bool:
        """Whether `take_error` returns an error."""
        return self._errors.has_error

    def take_error(self) -> Exception | None:
        """Returns what poll must raise: most errors once, a corrupt batch until a seek (unless it is paused)."""
        return self._errors.take()

    # --- handing out ------------------------------------------------------------------------------------------

    @property
    def has_data(self) -> bool:
        """Whether `take` has something to hand out now, or to move a position past."""
        self._drop_late()
        return any(map(self._subscription.is_fetchable, self._buffer))

    @property
    def buffered_bytes(self) -> int:
        return self._buffer.bytes

    def take(self, max_records: int, now_ms: int) -> dict[TopicPartition, Records]:
        """Returns the next records of the partitions in turn, at most `max_records`; positions advance past them.

        Damage is found here: what comes before it is returned, and `take_error` returns the rest.
        """
        self._size.polled(max_records)
        return {
            partition: Records(partition.topic, partition.partition, columns, next_offset)
            for partition, columns, next_offset in self._take(max_records, now_ms)
        }

    def take_arrow(
        self,
        max_records: int | None,
        columns: Sequence[str] | None,
        now_ms: int,
        *,
        binary_view: bool = False,
    ) -> Any:
        """Returns the next records as one pyarrow.RecordBatch, without an object per record; None if there are none.

        `max_records=None` means all that is buffered. Raises ValueError for a column that records do not have.
        """
        from kohort.wire.records.arrow_rows import ArrowRows

        # This comes before anything is taken: a wrong name of a column costs no records.
        early = self._buffer.is_compressed
        rows = ArrowRows(columns, binary_view=binary_view, early=early, expected=self._arrow_bytes)
        most = MAX_ROWS if max_records is None else max_records
        self._size.polled(most)
        before, decoded = -1, ARROW_DECODED if early else MAX_DECODED
        while before < rows.count and rows.size < MAX_ARROW_BYTES:
            before = rows.count
            for partition, part, _ in self._take(most - before, now_ms, decoded):
                rows.add(partition.topic, partition.partition, part)
                del part  # the next part is unpacked into its memory
                if rows.size >= MAX_ARROW_BYTES:
                    break
        self._arrow_bytes = rows.size
        return rows.finish()

    def _take(
        self, max_records: int, now_ms: int, max_decoded: int = MAX_DECODED
    ) -> Iterator[tuple[TopicPartition, Columns, int]]:
        """Yields, for each partition in turn, what is decoded at once, and the position after it."""
        self._drop_late()
        for partition in self._buffer.order():
            state = self._subscription.partitions[partition]
            while max_records > 0 and self._subscription.is_fetchable(partition):
                chain = self._buffer.chain(partition)
                if chain is None:
                    break
                columns = self._cut(partition, state, chain[0], max_records, max_decoded, now_ms)
                if columns is not None:
                    assert state.position is not None
                    max_records -= len(columns)
                    yield partition, columns, state.position.offset
                    del columns
                    break

    def _cut(
        self,
        partition: TopicPartition,
        state: PartitionState,
        piece: Piece,
        max_records: int,
        decoded: int,
        now_ms: int,
    ) -> Columns | None:
        """Returns records of one answer and advances the position; None if it had no more, and then drops it."""
        assert state.position is not None
        columns = piece.cut(max_records, self._config.check_crcs, decoded)
        state.advance(piece.position_after(state.position, columns))
        if columns is not None:
            self.metrics.handed_out(partition, state, len(columns), now_ms)
        error = piece.error
        if error is not None:
            self._errors.stop(partition, state, piece.next_offset, error.message)
        elif piece.is_used_up:
            self._buffer.used_up(partition)
            self.metrics.used_up(partition, state, piece.size, now_ms)
            if partition not in self._buffer:
                self._errors.reached_position(partition)
        return columns

    def _drop_late(self) -> None:
        for partition in self._buffer.drop_late(self._subscription):
            log.debug("%s: what was buffered is not wanted any more", partition)
            self._errors.reached_position(partition)

    # --- the end ------------------------------------------------------------------------------------------------

    def close_sessions(self, now_ms: int) -> None:
        """Frees the sessions on the brokers and forgets what is buffered; nothing is fetched after this."""
        self._closed = True
        self._buffer.clear()
        for node_id, node in self._nodes.items():
            plan = node.session.close()
            if plan is None or self._metadata.node(node_id) is None:
                continue
            log.debug("node %d: closing fetch session %d", node_id, plan.session_id)
            self._out.append(
                Send(
                    node_id,
                    FetchRequest.API_KEY,
                    partial(fetch_request, plan, self._config),
                    "fetcher.close",
                    self._config.request_timeout_ms,
                    on_answer=ignore_answer,
                )
            )
