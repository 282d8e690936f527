"""Handles ShareFetch: acquires records for a member of a share group and sends the log's batches that hold them.

A fetch that finds too little parks its connection, and looks again when a partition has new data, when records are
released or their locks expire, and when a share partition is loaded. It is answered when `min_bytes` are there, when a
partition has an error to report, or when `max_wait_ms` are over; and not before its acknowledgements are durable.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kohort.broker.apis.fetch_answers import pinned_frame
from kohort.broker.apis.share_acknowledge import (
    AcknowledgedPartitions,
    AcknowledgeErrors,
    read_batches,
    refusal,
)
from kohort.broker.call import Call, Encoded
from kohort.broker.share.fetched import FetchedBatches
from kohort.broker.share.leader import LedSharePartition
from kohort.security.acls import AclOperation, AclResource
from kohort.share.partition import WantedRecords
from kohort.share.sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    LeaderShareSession,
    ShareSessionKey,
    TopicIdPartition,
    rotated,
)
from kohort.share.state import SharePartitionKey
from kohort.wire.errors import ErrorCode, KafkaError
from kohort.wire.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

log = logging.getLogger("kohort.broker")

_RECORD_LIMIT = 1  # share_acquire_mode
_READ, _TOPIC = AclOperation.READ, AclResource.TOPIC


def share_fetch(broker: Broker, call: Call) -> ShareFetchResponse | None:
    request: ShareFetchRequest = call.request
    error = refusal(broker, call, request.group_id, request.member_id)
    if not error and call.version >= 2 and request.is_renew_ack:
        limits = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
        error = ErrorCode.INVALID_REQUEST if any(limits) else ErrorCode.NONE
    if error:
        return ShareFetchResponse(error_code=error)
    key = ShareSessionKey(request.group_id or "", request.member_id or "")
    named = [(t.topic_id, p.partition_index) for t in request.topics for p in t.partitions]
    has_acknowledgements = any(p.acknowledgement_batches for t in request.topics for p in t.partitions)
    forgotten = [(t.topic_id, index) for t in request.forgotten_topics_data for index in t.partitions]
    session = broker.shares.sessions.fetch(
        key, request.share_session_epoch, named, forgotten, has_acknowledgements, call.connection
    )
    if isinstance(session, LeaderShareSession):
        call.park()
        _ShareFetch(broker, call, session, has_acknowledgements).begin()
        return None
    if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
        _refuse_later(call, session, request.max_wait_ms)
        return None
    return ShareFetchResponse(error_code=session)


def _refuse_later(call: Call, error: ErrorCode, delay_ms: int) -> None:
    """Answers after a while, so that a client that cannot have a session does not ask all the time."""

    def refuse() -> None:
        timer.cancel()
        call.reply(ShareFetchResponse(error_code=error))

    timer = call.connection.loop.call_later(delay_ms / 1000, refuse)
    call.park(on_close=timer.cancel, on_stop=refuse)


class _ShareFetch:
    """One ShareFetch request while it is served."""

    __slots__ = (
        "_acknowledged",
        "_broker",
        "_call",
        "_data",
        "_is_charged",
        "_is_over",
        "_is_read",
        "_led",
        "_looks",
        "_most_bytes",
        "_on_change",
        "_request",
        "_session",
        "_throttle_ms",
        "_timer",
    )

    def __init__(
        self, broker: Broker, call: Call, session: LeaderShareSession, has_acknowledgements: bool
    ) -> None:
        self._broker, self._call, self._session = broker, call, session
        self._request: ShareFetchRequest = call.request
        self._data: dict[TopicIdPartition, PartitionData] = {}
        self._acknowledged: AcknowledgeErrors | None = None if has_acknowledgements else {}
        self._led: dict[TopicIdPartition, LedSharePartition] = {}
        self._is_read = False  # nothing more is to be fetched
        self._is_over = False
        self._is_charged = False  # to the quotas of the client
        self._looks = False
        self._throttle_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._on_change = self._look_again  # one object to add and to remove
        most_bytes = min(self._request.max_bytes, broker.config.fetch_max_bytes)
        if broker.quotas is not None and (limit := call.most_fetch_bytes()) is not None:
            most_bytes = min(most_bytes, limit)
        self._most_bytes = most_bytes

    @property
    def _is_final(self) -> bool:
        return self._request.share_session_epoch == FINAL_EPOCH

    @property
    def _is_renewal(self) -> bool:
        return self._call.version >= 2 and self._request.is_renew_ack

    def begin(self) -> None:
        self._open_partitions()
        if self._acknowledged is None:
            acknowledgements = {
                (t.topic_id, p.partition_index): list(read_batches(p.acknowledgement_batches))
                for t in self._request.topics
                for p in t.partitions
            }
            AcknowledgedPartitions(
                self._broker,
                self._call,
                self._session.key,
                acknowledgements,
                self._is_renewal,
                self._on_acknowledged,
            )
        self._look()
        if not self._is_over:
            self._wait()

    def _on_acknowledged(self, errors: AcknowledgeErrors) -> None:
        self._acknowledged = errors
        self._reply_if_done()

    def _open_partitions(self) -> None:
        """Finds the share partitions of the session, in this request's turn; those with errors are answered."""
        if self._is_final or self._is_renewal:
            self._is_read = True
            return
        group_id, epoch = self._session.key.group_id, self._request.share_session_epoch
        for where in rotated(list(self._session.partitions), epoch):
            topic = self._broker.store.topics_by_id.get(where[0])
            if topic is None:
                self._fail(where, ErrorCode.UNKNOWN_TOPIC_ID)
            elif not self._broker.may(self._call, _READ, _TOPIC, topic.name):
                self._fail(where, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                led = self._broker.shares.open(SharePartitionKey(group_id, *where))
                if isinstance(led, ErrorCode):
                    self._fail(where, led)
                else:
                    self._led[where] = led
        if not self._led or self._request.max_records <= 0 or self._most_bytes <= 0:
            self._is_read = True

    def _fail(self, where: TopicIdPartition, error: ErrorCode) -> None:
        self._data[where] = data = PartitionData(where[1], error, records=b"")
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            data.current_leader.leader_id = self._broker.node_id
            data.current_leader.leader_epoch = self._broker.store.leader_epoch

    # --- reading -----------------------------------------------------------------------------------

    def _look(self, is_last: bool = False) -> None:
        """Acquires what there is, if that is enough to answer; the last look takes what it finds."""
        if self._looks or self._is_over:
            return  # a wake during the look itself
        self._looks = True
        try:
            while not self._is_read and self._read_once(is_last):
                pass
        finally:
            self._looks = False
        self._reply_if_done()

    def _read_once(self, is_last: bool) -> bool:
        """Reads and acquires once. True if nothing was acquired, but another look may find something."""
        if self._has_failed():
            self._is_read = True
            return False
        found: dict[TopicIdPartition, FetchedBatches] = {}
        total, is_wrong = 0, False
        open_ones = {where: led for where, led in self._led.items() if led.can_acquire}
        for where, led in open_ones.items():
            try:
                batches = led.read(self._most_bytes // len(open_ones), at_least_one=not total)
            except KafkaError as error:
                self._fail(where, error.code)
                is_wrong = True
                continue
            if batches is not None:
                found[where] = batches
                total += len(batches.records)
        if not (is_last or is_wrong or (open_ones and total >= self._request.min_bytes)):
            return False
        if self._is_throttled(total):
            return False
        acquired = self._acquire(found)
        self._is_read = is_last or is_wrong or acquired or not found
        return not self._is_read

    def _has_failed(self) -> bool:
        """Takes out the partitions that could not be loaded, or are gone; True if there are any."""
        failed = {where: led for where, led in self._led.items() if led.is_dropped}
        for where, led in failed.items():
            del self._led[where]
            led.remove_waiter(self._on_change)
            gone = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if led.log.deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
            self._fail(where, led.error or gone)
        return bool(failed)

    def _is_throttled(self, size: int) -> bool:
        """Charges for what is about to be sent. Nothing is acquired for a client that has to wait for its quota."""
        if self._broker.quotas is None or not size:
            return False
        self._is_charged = True
        self._throttle_ms = self._call.throttle_fetch(size)
        if self._throttle_ms:
            self._is_read = True
        return self._throttle_ms > 0

    def _acquire(self, found: dict[TopicIdPartition, FetchedBatches]) -> bool:
        request, count = self._request, 0
        is_record_limit = self._call.version >= 2 and request.share_acquire_mode == _RECORD_LIMIT
        for where, batches in found.items():
            wanted = WantedRecords(request.max_records - count, request.batch_size, is_record_limit)
            got = self._led[where].acquire(self._session.key.member_id, batches, wanted)
            if got.acquired:
                count += got.count
                data = PartitionData(where[1], records=batches.holding(got.acquired))
                data.acquired_records = [AcquiredRecords(*each) for each in got.acquired]
                self._data[where] = data
        return count > 0

    # --- waiting -----------------------------------------------------------------------------------

    def _wait(self) -> None:
        if not self._is_read:
            for led in self._led.values():
                led.add_waiter(self._on_change)
            loop = self._call.connection.loop
            delay_s = max(self._request.max_wait_ms, 0) / 1000
            self._timer = loop.call_later(delay_s, self._time_is_up)
        self._call.park(on_close=self._leave, on_stop=self._time_is_up)

    def _look_again(self) -> None:
        self._look()

    def _time_is_up(self) -> None:
        self._look(is_last=True)

    def _leave(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for led in self._led.values():
            led.remove_waiter(self._on_change)
        self._call.on_close = self._call.on_stop = None

    # --- answering ---------------------------------------------------------------------------------

    def _reply_if_done(self) -> None:
        if self._is_over or not self._is_read or self._acknowledged is None:
            return
        self._leave()
        if self._broker.quotas is not None and not self._is_charged:
            self._throttle_ms = self._call.throttle_fetch(
                0
            )  # for its time; it has nothing that could be held back
        try:
            answer = self._encoded(self._acknowledged)
        except OSError:
            # The caller that changed the partition is not at fault, and must not fail.
            log.exception("closing the connection of %s: its share fetch cannot be answered", self._call.peer)
            self._call.connection.close()
            return
        self._call.reply(answer)
        if self._is_final:
            self._broker.shares.close_session(self._session)

    def _encoded(self, acknowledged: AcknowledgeErrors) -> Encoded:
        errors: list[int] = []
        answer = ShareFetchResponse(throttle_time_ms=self._throttle_ms)
        answer.acquisition_lock_timeout_ms = self._broker.shares.config_of(
            self._session.key.group_id
        ).share_record_lock_duration_ms
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        for where, data in self._told(acknowledged).items():
            topic = topics.setdefault(where[0], ShareFetchableTopicResponse(where[0]))
            topic.partitions.append(data)
            errors += [each for each in (data.error_code, data.acknowledge_error_code) if each]
        answer.responses = list(topics.values())
        return Encoded(pinned_frame(self._call.codec, self._call.correlation_id, answer), errors)

    def _told(self, acknowledged: AcknowledgeErrors) -> dict[TopicIdPartition, PartitionData]:
        """Returns what the answer has: partitions with news, all at the first fetch, and all acknowledgements."""
        is_first = self._request.share_session_epoch == FIRST_EPOCH
        told: dict[TopicIdPartition, PartitionData] = {}
        for where in [*self._data, *(each for each in self._led if each not in self._data)]:
            data = self._data.get(where) or PartitionData(where[1], records=b"")
            has_records = bool(data.acquired_records)
            if self._session.is_told(where, has_records, data.error_code) or (
                is_first and not self._throttle_ms
            ):
                told[where] = data
        for where, error in acknowledged.items():
            if where not in told:
                told[where] = PartitionData(where[1], records=b"")
            told[where].acknowledge_error_code = error
        return told
