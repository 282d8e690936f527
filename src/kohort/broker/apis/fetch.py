"""Handles Fetch: stored batches are sent as they are; a fetch that finds too little waits for more.

With `isolation_level` read_committed it reads up to the last stable offset, and the answer names the aborted
transactions in what it has, which the client leaves out.

A long poll parks its connection, waits on the partitions it reads, and is answered when `min_bytes` are there, when a
partition has an error to report, or when `max_wait_ms` are over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.broker.apis.fetch_answers import NOT_HERE, NOTHING, PartitionAnswer, layout
from kohort.broker.apis.offsets import READ_COMMITTED, epoch_error
from kohort.broker.call import Call, Encoded, release
from kohort.broker.fetch_sessions import NO_SESSION, FetchPlan, FetchSessions, Key, Wanted
from kohort.log.partition import Partition
from kohort.security.acls import AclOperation, AclResource
from kohort.wire.compiler.compile import Chunk
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.frame import response_chunks
from kohort.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchRequest, FetchResponse

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

log = logging.getLogger("kohort.broker")

# Requests ask by these; a look-up in an Enum is slow.
_READ = AclOperation.READ
_TOPIC = AclResource.TOPIC


def fetch(broker: Broker, call: Call) -> Encoded | FetchResponse | None:
    request: FetchRequest = call.request
    plan = broker.sessions.plan(request, call.version, broker.now_ms(), call.connection.principal)
    if plan.error:
        return FetchResponse(error_code=plan.error, session_id=0)
    poll = _Fetch(broker, call, plan)
    poll.read()
    if poll.is_enough or request.max_wait_ms <= 0 or not poll.wait():
        return poll.encoded()
    return None


class _Fetch:
    """One Fetch request while it is served."""

    __slots__ = (
        "_answers",
        "_broker",
        "_call",
        "_denied",
        "_errors",
        "_min_bytes",
        "_most_bytes",
        "_on_change",
        "_partitions",
        "_plan",
        "_timer",
        "is_enough",
    )

    def __init__(self, broker: Broker, call: Call, plan: FetchPlan) -> None:
        self._broker, self._call, self._plan = broker, call, plan
        request: FetchRequest = call.request
        most_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        if broker.quotas is not None and (limit := call.most_fetch_bytes()) is not None:
            most_bytes = min(most_bytes, limit)
        self._most_bytes, self._min_bytes = most_bytes, min(request.min_bytes, most_bytes)
        self._denied = _denied(broker, call, plan) if broker.authorizer is not None else frozenset()
        self._answers: list[PartitionAnswer] = []  # what each partition had when it was last read
        self._errors: list[int] = []  # those among them
        self.is_enough = False  # to answer at once
        self._timer: asyncio.TimerHandle | None = None
        self._partitions: list[Partition] = []  # those it waits for
        self._on_change: Callable[[], None] | None = None

    # --- reading -----------------------------------------------------------------------------------

    def read(self) -> None:
        """Reads what each partition has now, and decides whether that is enough to answer at once.

        `min_bytes` are enough, and so is an error; but a missing partition is reported only with the others' news, as
        in Kafka: a client that keeps asking for one would otherwise never wait.
        """
        answers: list[PartitionAnswer] = []
        self._answers = answers
        if self._errors:
            self._errors = []
        total, failed, most_bytes = 0, False, self._most_bytes
        incremental = not self._plan.is_full
        committed = self._call.request.isolation_level == READ_COMMITTED
        for wanted in self._plan.wanted:
            if self._denied and wanted.key in self._denied:
                wanted.partition = None  # nobody waits for it
                self._errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                answers.append((wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, -1, NOTHING, None))
                continue
            partition = wanted.partition
            if partition is None or partition.deleted:
                partition = wanted.partition = self._find(wanted)
            if partition is not None:
                # Most partitions, most of the time, are read to the end, and there is nothing to check.
                end, start = partition.high_watermark, partition.log_start_offset
                epoch = wanted.current_leader_epoch
                if (
                    start <= wanted.fetch_offset == (partition.last_stable_offset if committed else end)
                    and (epoch == -1 or epoch == partition.leader_epoch)
                    and wanted.last_fetched_epoch < 0
                ):
                    if not incremental or wanted.high_watermark != end or wanted.log_start_offset != start:
                        is_stable = partition.first_unstable_offset >= end
                        stable = end if is_stable else partition.last_stable_offset
                        answers.append((wanted, 0, end, stable, start, NOTHING, None))
                    continue
            try:
                answer = self._read_partition(wanted, partition, most_bytes - total, total == 0)
            except KafkaError as error:
                answer = (wanted, error.code, -1, -1, -1, NOTHING, None)
                self._errors.append(error.code)
                failed = failed or error.code not in NOT_HERE
            failed = failed or isinstance(answer[6], EpochEndOffset)
            total += len(answer[5])
            answers.append(answer)
        self.is_enough = failed or total >= self._min_bytes

    def _find(self, wanted: Wanted) -> Partition | None:
        key, store = wanted.key, self._broker.store
        topic = store.topics_by_id.get(key[1]) if self._call.version >= 13 else store.topics.get(key[0])
        return topic.partitions[key[2]] if topic is not None and 0 <= key[2] < len(topic.partitions) else None

    def _read_partition(
        self, wanted: Wanted, partition: Partition | None, room: int, is_first: bool
    ) -> PartitionAnswer:
        if partition is None:
            raise KafkaError(self._why_not_here(wanted))
        error = epoch_error(partition, wanted.current_leader_epoch)
        if error:
            raise KafkaError(error)
        end, start = partition.high_watermark, partition.log_start_offset
        stable = partition.last_stable_offset
        if wanted.last_fetched_epoch >= 0:
            diverging = _diverging_epoch(partition, wanted)
            if diverging is not None:
                return wanted, 0, end, stable, start, NOTHING, diverging
        # A first batch that is larger than all limits is still sent, so that a consumer never gets stuck at it.
        max_bytes = max(min(wanted.max_bytes, room), 0)
        offset = wanted.fetch_offset
        if self._call.request.isolation_level != READ_COMMITTED:
            records = partition.read(offset, max_bytes, at_least_one=is_first)
            return wanted, 0, end, stable, start, records, None
        records = partition.read(offset, max_bytes, at_least_one=is_first, up_to=stable)
        aborted = partition.aborted_transactions(offset, records) if len(records) else None
        if not aborted:
            return wanted, 0, end, stable, start, records, None
        told = [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in aborted]
        return wanted, 0, end, stable, start, records, told

    def _why_not_here(self, wanted: Wanted) -> ErrorCode:
        key, broker = wanted.key, self._broker
        by_id = self._call.version >= 13
        why = broker.partition_by_id(key[1], key[2]) if by_id else broker.partition(key[0], key[2])
        assert isinstance(why, ErrorCode)
        return why

    # --- waiting -----------------------------------------------------------------------------------

    def wait(self) -> bool:
        """Waits for the partitions that exist; False if there is none to wait for."""
        self._partitions = self._here()
        if not self._partitions:
            return False
        self._on_change = on_change = self._look_again  # one object to add and to remove
        for partition in self._partitions:
            partition.add_waiter(on_change)
        loop = self._call.connection.loop
        self._timer = loop.call_later(self._call.request.max_wait_ms / 1000, self._time_is_up)
        self._call.park(on_close=self._leave, on_stop=self._time_is_up)
        return True

    def _here(self) -> list[Partition]:
        return [w.partition for w in self._plan.wanted if w.partition is not None and not w.partition.deleted]

    def _look_again(self) -> None:
        """Reads again, because a partition has changed or is deleted, and answers if that is enough."""
        self.read()
        if self.is_enough or self._one_is_gone():
            self._reply()

    def _one_is_gone(self) -> bool:
        missing = any(answer[1] in NOT_HERE for answer in self._answers)
        return missing and len(self._here()) < len(self._partitions)

    def _time_is_up(self) -> None:
        self.read()
        self._reply()

    def _reply(self) -> None:
        self._leave()
        try:
            answer = self.encoded()
        except OSError:
            # The caller that changed the partition is not at fault, and must not fail.
            log.exception("closing the connection of %s: its fetch could not be answered", self._call.peer)
            self._call.connection.close()
        else:
            self._call.reply(answer)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_change is not None:
            for partition in self._partitions:
                partition.remove_waiter(self._on_change)
        self._partitions = []
        # This breaks the circle of references, so that the memory is free at once for the next request.
        self._on_change = self._call.on_close = self._call.on_stop = None

    # --- answering ---------------------------------------------------------------------------------

    def encoded(self) -> Encoded:
        plan = self._plan
        if self._broker.quotas is not None:
            return self._charged()
        return Encoded(self._frame(self._answers if plan.session is None else self._news()), self._errors)

    def _frame(self, answers: list[PartitionAnswer]) -> list[Chunk]:
        call, plan = self._call, self._plan
        read_committed = call.request.isolation_level == READ_COMMITTED
        return layout(call.version).frame(call.correlation_id, plan.session_id, answers, read_committed)

    def _charged(self) -> Encoded:
        """Answers a client that may have a quota. What it is not told because of that is not remembered as told."""
        session = self._plan.session
        told = self._answers if session is None else [each for each in self._answers if self._is_news(each)]
        chunks = self._frame(told)
        header = 5 if self._call.codec.response_header_is_flexible else 4
        throttle_ms = self._call.throttle_fetch(sum(map(len, chunks)) - header)
        if throttle_ms:
            release(chunks)
            return self._throttled(throttle_ms)
        if session is not None:
            self._news()
        return Encoded(chunks, self._errors)

    def _throttled(self, throttle_ms: int) -> Encoded:
        """Returns an answer without partitions. A session that it would have begun is not begun, as in Kafka."""
        call, plan = self._call, self._plan
        answer = FetchResponse(throttle_time_ms=throttle_ms, session_id=plan.session_id)
        if plan.session is not None and plan.is_full:
            self._broker.sessions.drop(plan.session)
            answer.session_id = NO_SESSION
        return Encoded(response_chunks(call.codec, call.correlation_id, call.codec.encode_response(answer)))

    def _is_news(self, answer: PartitionAnswer) -> bool:
        wanted, error, end, _, start, records, rare = answer
        return (
            self._plan.is_full
            or len(records) > 0
            or error != 0
            or rare is not None
            or wanted.high_watermark != end
            or wanted.log_start_offset != start
        )

    def _news(self) -> list[PartitionAnswer]:
        """Returns the answers of a session's partitions that have news, and remembers what was told."""
        plan = self._plan
        assert plan.session is not None
        told, with_data = [], []
        for answer in self._answers:
            wanted, error, end, _, start, records, rare = answer
            has_data = len(records) > 0
            if (
                plan.is_full
                or has_data
                or error
                or rare is not None
                or wanted.high_watermark != end
                or wanted.log_start_offset != start
            ):
                told.append(answer)
            # An error is told again in every answer until it is over, as in Kafka: its answer has -1 for both.
            wanted.high_watermark, wanted.log_start_offset = end, start
            if has_data:
                with_data.append(wanted.key)
        FetchSessions.served(plan.session, with_data)
        return told


def _denied(broker: Broker, call: Call, plan: FetchPlan) -> frozenset[Key]:
    """Returns the partitions that the caller may not read. An id that nobody knows is not among them.

    Each fetch asks, so a change of an ACL counts from the next one on; one that waits goes on with the answers that it
    got when it came, as in Kafka.
    """
    store, by_id = broker.store, call.version >= 13
    allowed: dict[str, bool] = {}
    denied = []
    if _is_from_a_node(call.request, call.version):
        # A node among nodes reads everything, or nothing of what it named.
        if broker.may_in_cluster(call, AclOperation.CLUSTER_ACTION):
            return frozenset()
        return frozenset(wanted.key for wanted in plan.wanted)
    for wanted in plan.wanted:
        name = wanted.key[0]
        if by_id:
            topic = store.topics_by_id.get(wanted.key[1])
            if topic is None:
                continue
            name = topic.name
        if name not in allowed:
            allowed[name] = broker.may(call, _READ, _TOPIC, name)
        if not allowed[name]:
            denied.append(wanted.key)
    return frozenset(denied)


def _is_from_a_node(request: FetchRequest, version: int) -> bool:
    return (request.replica_state.replica_id if version >= 15 else request.replica_id) >= 0


def _diverging_epoch(partition: Partition, wanted: Wanted) -> EpochEndOffset | None:
    """Returns where the client's log diverged from this one, which is sent instead of records; None if it has not."""
    epoch, end_offset = partition.end_of_epoch(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    if epoch < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return EpochEndOffset(epoch, end_offset)
