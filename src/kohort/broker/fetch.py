"""Fetch: stored batches go out untouched; a fetch that finds too little waits for more.

A long poll parks its connection, waits on the partitions it reads, and is answered when `min_bytes` are there,
when a partition has an error to tell, or when `max_wait_ms` are over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kohort.broker.call import Call
from kohort.broker.offsets import epoch_error
from kohort.broker.sessions import FetchSessions, Plan, Wanted
from kohort.log.partition import Partition
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

READ_COMMITTED = 1
_NOTHING = b""
_NOT_HERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def fetch(broker: Broker, call: Call) -> FetchResponse | None:
    request: FetchRequest = call.request
    plan = broker.sessions.plan(request, call.version, broker.now_ms())
    if plan.error:
        return FetchResponse(error_code=plan.error, session_id=0)
    poll = _Fetch(broker, call, plan)
    answers, size, failed = poll.read()
    if size >= request.min_bytes or failed or request.max_wait_ms <= 0 or not poll.wait():
        return poll.response(answers)
    return None


class _Fetch:
    """One fetch while it is served."""

    __slots__ = ("broker", "by_id", "call", "max_bytes", "partitions", "plan", "request", "timer")

    def __init__(self, broker: Broker, call: Call, plan: Plan) -> None:
        self.broker, self.call, self.plan = broker, call, plan
        self.request: FetchRequest = call.request
        self.by_id = call.version >= 13
        self.max_bytes = min(self.request.max_bytes, broker.config.fetch_max_bytes)
        self.timer: asyncio.TimerHandle | None = None
        self.partitions: list[Partition] = []

    # --- reading -----------------------------------------------------------------------------------

    def read(self) -> tuple[list[tuple[Wanted, PartitionData]], int, bool]:
        """What each partition has now; how many bytes; whether one has an error to tell at once.

        That a partition is not here waits until the others have something to tell, as in Kafka: who goes on
        asking for one would otherwise never wait.
        """
        answers: list[tuple[Wanted, PartitionData]] = []
        total, failed = 0, False
        incremental = not self.plan.is_full
        for wanted in self.plan.wanted:
            if incremental and self._has_no_news(wanted):
                continue
            data = PartitionData(wanted.key.partition, records=_NOTHING)
            if self.request.isolation_level == READ_COMMITTED:
                data.aborted_transactions = []
            try:
                size = self._read_partition(wanted, data, total)
            except KafkaError as error:
                data.error_code = error.code
                data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
                size = 0
                if error.code in _NOT_HERE:
                    data.aborted_transactions = []  # Kafka's bytes for it; for other errors it is null
                else:
                    failed = True
            failed = failed or data.diverging_epoch.epoch >= 0
            total += size
            answers.append((wanted, data))
        return answers, total, failed

    def _has_no_news(self, wanted: Wanted) -> bool:
        """A session's partition that is read to its end and did not move: most of them, most of the time."""
        if wanted.fetch_offset != wanted.high_watermark:
            return False
        partition = self._find(wanted)
        return (
            isinstance(partition, Partition)
            and partition.high_watermark == wanted.high_watermark
            and partition.log_start_offset == wanted.log_start_offset
            and wanted.current_leader_epoch in (-1, partition.leader_epoch)
            and wanted.last_fetched_epoch < 0
        )

    def _read_partition(self, wanted: Wanted, data: PartitionData, total: int) -> int:
        partition = self._partition(wanted)
        error = epoch_error(partition, wanted.current_leader_epoch)
        if error:
            raise KafkaError(error)
        data.high_watermark = data.last_stable_offset = partition.high_watermark
        data.log_start_offset = partition.log_start_offset
        if wanted.last_fetched_epoch >= 0 and _diverges(partition, wanted, data):
            return 0
        # A first batch that is larger than all limits still comes, so that a consumer never gets stuck on it.
        room = min(wanted.max_bytes, self.max_bytes - total)
        piece = partition.read(
            wanted.fetch_offset,
            max(room, 0),
            at_least_one=total == 0,
            up_to=partition.high_watermark,
        )
        size = len(piece)
        data.records = piece if size else _NOTHING
        return size

    def _partition(self, wanted: Wanted) -> Partition:
        found = self._find(wanted)
        if isinstance(found, ErrorCode):
            raise KafkaError(found)
        return found

    def _find(self, wanted: Wanted) -> Partition | ErrorCode:
        key = wanted.key
        if self.by_id:
            return self.broker.partition_by_id(key.topic_id, key.partition)
        return self.broker.partition(key.topic, key.partition)

    # --- waiting -----------------------------------------------------------------------------------

    def wait(self) -> bool:
        """Waits for the partitions that are here; False if there is none to wait for."""
        self.partitions = self._here()
        if not self.partitions:
            return False
        for partition in self.partitions:
            partition.add_waiter(self._woken)
        loop = self.call.connection.loop
        self.timer = loop.call_later(self.request.max_wait_ms / 1000, self._time_is_up)
        self.call.park(on_close=self._leave)
        return True

    def _here(self) -> list[Partition]:
        found = map(self._find, self.plan.wanted)
        return list({id(p): p for p in found if isinstance(p, Partition)}.values())

    def _woken(self) -> None:
        """A partition moved or is gone: enough to answer?"""
        answers, size, failed = self.read()
        if size >= self.request.min_bytes or failed or self._one_is_gone(answers):
            self._leave()
            self.call.reply(self.response(answers))

    def _one_is_gone(self, answers: list[tuple[Wanted, PartitionData]]) -> bool:
        missing = any(data.error_code in _NOT_HERE for _, data in answers)
        return missing and len(self._here()) < len(self.partitions)

    def _time_is_up(self) -> None:
        self._leave()
        self.call.reply(self.response(self.read()[0]))

    def _leave(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for partition in self.partitions:
            partition.remove_waiter(self._woken)
        self.partitions = []

    # --- answering ---------------------------------------------------------------------------------

    def response(self, answers: list[tuple[Wanted, PartitionData]]) -> FetchResponse:
        plan = self.plan
        if plan.session is not None:
            answers = self._news(answers)
        response = FetchResponse(session_id=plan.session_id)
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for wanted, data in answers:
            name = wanted.key[:2]
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchableTopicResponse(*name)
                response.responses.append(topic)
            topic.partitions.append(data)
        return response

    def _news(self, answers: list[tuple[Wanted, PartitionData]]) -> list[tuple[Wanted, PartitionData]]:
        """Of a session's partitions those that have something to tell; remembers what was told."""
        session = self.plan.session
        assert session is not None
        told = []
        for wanted, data in answers:
            has_data = bool(len(data.records or _NOTHING))
            moved = (data.high_watermark, data.log_start_offset) != (
                wanted.high_watermark,
                wanted.log_start_offset,
            )
            if data.error_code:
                # Told again and again until it is over, as in Kafka.
                wanted.high_watermark = wanted.log_start_offset = -1
            else:
                wanted.high_watermark, wanted.log_start_offset = data.high_watermark, data.log_start_offset
            if self.plan.is_full or has_data or moved or data.error_code or data.diverging_epoch.epoch >= 0:
                told.append((wanted, data))
        FetchSessions.served(session, [w.key for w, data in told if len(data.records or _NOTHING)])
        return told


def _diverges(partition: Partition, wanted: Wanted, data: PartitionData) -> bool:
    """The client's log parted from ours: tells where, instead of records."""
    epoch, end_offset = partition.end_of_epoch(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return False
    if epoch < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    data.diverging_epoch = EpochEndOffset(epoch, end_offset)
    return True
