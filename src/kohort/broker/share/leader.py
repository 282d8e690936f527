"""The share partitions that this node leads: loads their state, acquires, acknowledges, and ends locks in time.

A share partition is made when a member first fetches it: its state is read from the share coordinator, and from then on
each change is written there before it is answered. It is dropped when the group has no session left, when the topic is
deleted, or when the coordinator says that its epoch is over; the next fetch loads it anew.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.broker.share.dead_letters import DeadLetterCopier
from kohort.broker.share.fetched import FetchedBatches, read_batches
from kohort.coordinator.group_config import GroupConfig
from kohort.log.partition import Partition
from kohort.share.partition import (
    AcknowledgedRange,
    Acquisition,
    ShareLimits,
    SharePartition,
    ShareStateWrite,
    WantedRecords,
)
from kohort.share.sessions import LeaderShareSession, ShareSessions
from kohort.share.state import NO_OFFSET, PersistedState, SharePartitionKey
from kohort.share.state_events import ReadState, StateAnswer, WriteState
from kohort.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.broker import Broker

log = logging.getLogger("kohort.share")

OnError = Callable[[ErrorCode], None]

_E = ErrorCode
# What the share coordinator answers, as a member is told it; others become UNKNOWN_SERVER_ERROR.
TOLD: Final[dict[ErrorCode, ErrorCode]] = {
    _E.NONE: _E.NONE,
    _E.NOT_COORDINATOR: _E.COORDINATOR_NOT_AVAILABLE,
    _E.COORDINATOR_NOT_AVAILABLE: _E.COORDINATOR_NOT_AVAILABLE,
    _E.COORDINATOR_LOAD_IN_PROGRESS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.GROUP_ID_NOT_FOUND: _E.GROUP_ID_NOT_FOUND,
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.UNKNOWN_TOPIC_OR_PARTITION,
    _E.FENCED_LEADER_EPOCH: _E.NOT_LEADER_OR_FOLLOWER,
    _E.FENCED_STATE_EPOCH: _E.NOT_LEADER_OR_FOLLOWER,
}
_DROPS: Final = (_E.NOT_LEADER_OR_FOLLOWER, _E.GROUP_ID_NOT_FOUND, _E.UNKNOWN_TOPIC_OR_PARTITION)


class LedSharePartition:
    """One share partition: the core, its log, its lock timer, and the fetches that wait for it."""

    __slots__ = ("_owner", "_timer", "_waiters", "core", "error", "is_dropped", "key", "log", "state_epoch")

    def __init__(self, owner: ShareLeader, key: SharePartitionKey, log_partition: Partition) -> None:
        self._owner = owner
        self.key = key
        self.log = log_partition
        self.core: SharePartition | None = None  # None while the state is being read
        self.error = ErrorCode.NONE  # why it could not be loaded
        self.is_dropped = False
        self.state_epoch = 0
        self._waiters: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limits(self) -> ShareLimits:
        return limits_of(self._owner.config_of(self.key.group_id))

    # --- loading -----------------------------------------------------------------------------------

    def load(self) -> None:
        self._owner.broker.share_states.submit(ReadState(self._loaded, self.key, self.log.leader_epoch))

    def _loaded(self, answer: StateAnswer) -> None:
        if self.is_dropped:
            return
        if answer.state is None:
            self.error = TOLD.get(answer.error, _E.UNKNOWN_SERVER_ERROR)
            text = "the state of %s-%d for share group %r cannot be read: %s %s"
            group_id = self.key.group_id
            log.warning(
                text, self.log.topic, self.log.index, group_id, answer.error.name, answer.message or ""
            )
            self._owner.drop(self)
            return
        self._begin(answer.state)
        self.wake()

    def _begin(self, state: PersistedState) -> None:
        self.state_epoch = state.state_epoch
        start = state.start_offset
        if start == NO_OFFSET:
            start = self._owner.reset_offset(self.key.group_id, self.log)
        self.core = SharePartition(start, state.batches)
        if state.start_offset == NO_OFFSET:
            # The reset is decided once: after a restart `latest` must not leave out what came meanwhile.
            self.persist(ShareStateWrite(start, 0))
        self._arm()

    # --- fetching ----------------------------------------------------------------------------------

    @property
    def can_acquire(self) -> bool:
        return self.core is not None and self.core.can_acquire(self.limits)

    def read(self, max_bytes: int, *, at_least_one: bool) -> FetchedBatches | None:
        """Reads from where the next fetch begins; KafkaError if that fails."""
        assert self.core is not None
        is_committed = self._owner.config_of(self.key.group_id).share_isolation_level == "read_committed"
        while True:
            offset = self.core.next_fetch_offset()
            if self.log.log_start_offset <= offset:
                return read_batches(
                    self.log, offset, max_bytes, at_least_one=at_least_one, is_committed=is_committed
                )
            write = self.core.log_starts_at(self.log.log_start_offset)
            assert write is not None, "an offset before the log starts is before its start"
            self.persist(write)

    def acquire(self, member_id: str, fetched: FetchedBatches, wanted: WantedRecords) -> Acquisition:
        core = self.core
        assert core is not None
        offset = core.next_fetch_offset()
        now_ms = self._owner.now_ms()
        acquired = core.acquire(
            member_id, offset, fetched.offsets, wanted, self.limits, now_ms, fetched.aborted
        )
        if acquired.write is not None:
            self.persist(acquired.write)
        self._arm()
        return acquired

    # --- acknowledging -----------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledgements: Iterable[AcknowledgedRange], done: OnError
    ) -> None:
        """Acknowledges records, or none of them; `done` is called when that is durable, perhaps at once."""
        if self.core is None:
            done(_E.UNKNOWN_TOPIC_OR_PARTITION)
            return
        answer = self.core.acknowledge(member_id, acknowledgements, self.limits, self._owner.now_ms())
        if isinstance(answer, ShareStateWrite):
            self.persist(answer, done)
        else:
            done(answer)
        self._arm()

    def release(self, member_id: str) -> None:
        """Makes all that a member holds available again."""
        if self.core is not None:
            write = self.core.release(member_id, self.limits)
            if write is not None:
                self.persist(write)

    def expire(self) -> None:
        """Ends the locks that have run out. Called by the timer, and after a test has moved the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.core is not None and not self.is_dropped:
            write = self.core.expire(self.limits, self._owner.now_ms())
            if write is not None:
                self.persist(write)
                self.wake()
            self._arm()

    def _arm(self) -> None:
        core = self.core
        if self._timer is None and core is not None and core.next_deadline_ms is not None:
            delay_s = max(core.next_deadline_ms - self._owner.now_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.expire)

    # --- writing -----------------------------------------------------------------------------------

    def persist(self, write: ShareStateWrite, done: OnError | None = None) -> None:
        """Writes a change of the state; records that are given up are copied first, if the group wants that."""
        topic = self._owner.config_of(self.key.group_id).share_dlq_topic
        if not write.dead_letters or topic is None or topic == self.log.topic:
            self._write(write, done)
            return

        def copied(error: ErrorCode) -> None:
            if error:
                self._written(write, done, StateAnswer(error))
            else:
                self._write(write, done)

        self._owner.copier.copy(self.key.group_id, self.log, write.dead_letters, topic, copied)

    def _write(self, write: ShareStateWrite, done: OnError | None) -> None:
        written = partial(self._written, write, done)
        self._owner.broker.share_states.submit(
            WriteState(
                written,
                self.key,
                self.state_epoch,
                self.log.leader_epoch,
                write.start_offset,
                write.delivery_complete_count,
                write.batches,
            )
        )

    def _written(self, write: ShareStateWrite, done: OnError | None, answer: StateAnswer) -> None:
        error = TOLD.get(answer.error, _E.UNKNOWN_SERVER_ERROR)
        assert self.core is not None
        has_news = self.core.written(write, error, self.limits, self._owner.now_ms())
        if error:
            text = "the state of %s-%d for share group %r was not written: %s"
            log.warning(text, self.log.topic, self.log.index, self.key.group_id, answer.error.name)
        if error in _DROPS:
            self._owner.drop(self)
        if done is not None:
            done(error)
        self._arm()
        if has_news:
            self.wake()

    # --- waiting -----------------------------------------------------------------------------------

    def add_waiter(self, callback: Callable[[], None]) -> None:
        """Has `callback` called when records may be available: data, a release, an expired lock, a load, a failure."""
        if not self._waiters:
            self.log.add_waiter(self.wake)
        self._waiters[callback] = None

    def remove_waiter(self, callback: Callable[[], None]) -> None:
        self._waiters.pop(callback, None)
        if not self._waiters:
            self.log.remove_waiter(self.wake)

    def wake(self) -> None:
        for callback in list(self._waiters):
            callback()

    def close(self) -> None:
        self.is_dropped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()


class ShareLeader:
    """All share partitions and share sessions of this node."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.now_ms = broker.clock.steady_ms  # locks are measured by a clock that cannot be set back
        self.sessions = ShareSessions(broker.config.group_share_max_share_sessions)
        self._partitions: dict[SharePartitionKey, LedSharePartition] = {}
        self.copier = DeadLetterCopier(broker)

    def config_of(self, group_id: str) -> GroupConfig:
        return self.broker.group_config(group_id)

    def get(self, key: SharePartitionKey) -> LedSharePartition | None:
        return self._partitions.get(key)

    def of_group(self, group_id: str) -> list[LedSharePartition]:
        return [led for key, led in self._partitions.items() if key.group_id == group_id]

    def open(self, key: SharePartitionKey) -> LedSharePartition | ErrorCode:
        """Returns a share partition, which may have to be loaded first; an error if there is no such partition."""
        found = self._partitions.get(key)
        if found is not None and not found.log.deleted:
            return found
        log_partition = self.broker.partition_by_id(key.topic_id, key.partition)
        if isinstance(log_partition, ErrorCode):
            return log_partition
        led = LedSharePartition(self, key, log_partition)
        self._partitions[key] = led
        led.load()
        return led

    def drop(self, led: LedSharePartition) -> None:
        """Forgets a share partition; the next fetch loads it anew."""
        if self._partitions.get(led.key) is led:
            del self._partitions[led.key]
        led.close()

    # --- sessions ----------------------------------------------------------------------------------

    def close_session(self, session: LeaderShareSession) -> None:
        """Releases what the member of a session holds, when the session is over."""
        self.sessions.close(session.key)
        group_id, member_id = session.key
        for topic_id, index in session.partitions:
            led = self._partitions.get(SharePartitionKey(group_id, topic_id, index))
            if led is not None:
                led.release(member_id)
        if not self.sessions.has_group(group_id):
            self._drop_group(group_id)

    def connection_lost(self, connection: object) -> None:
        for session in self.sessions.connection_lost(connection):
            self.close_session(session)

    def _drop_group(self, group_id: str) -> None:
        for led in self.of_group(group_id):
            self.drop(led)

    def topics_deleted(self, topic_ids: frozenset[bytes]) -> None:
        for key, led in list(self._partitions.items()):
            if key.topic_id in topic_ids:
                self.drop(led)

    # --- where a group begins ----------------------------------------------------------------------

    def reset_offset(self, group_id: str, partition: Partition) -> int:
        """Returns where a group begins that has no offset yet, by `share.auto.offset.reset`."""
        reset = self.config_of(group_id).share_auto_offset_reset
        if reset == "earliest":
            return partition.log_start_offset
        if reset.startswith("by_duration:"):
            since_ms = self.broker.now_ms() - duration_ms(reset.removeprefix("by_duration:"))
            try:
                found = partition.find_time(since_ms)
            except KafkaError:
                found = None
            if found is not None:
                return found[1]
        return partition.high_watermark

    def next_deadline_ms(self) -> int | None:
        """Returns when a lock may expire next."""
        cores = (led.core for led in self._partitions.values() if led.core is not None)
        deadlines = (core.next_deadline_ms for core in cores)
        return min((each for each in deadlines if each is not None), default=None)

    def fire_due(self) -> None:
        """Ends all locks that have run out, after a test has moved the clock."""
        for led in list(self._partitions.values()):
            led.expire()

    async def close(self) -> None:
        for led in list(self._partitions.values()):
            self.drop(led)
        await self.copier.close()


def limits_of(config: GroupConfig) -> ShareLimits:
    return ShareLimits(
        has_dead_letter_topic=config.share_dlq_topic is not None,
        delivery_count_limit=config.share_delivery_count_limit,
        record_lock_ms=config.share_record_lock_duration_ms,
        max_record_locks=config.share_partition_max_record_locks,
        may_renew=config.share_renew_acknowledge_enable,
    )


_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """Returns an ISO 8601 duration as Java reads it (`P3D`, `PT1H30M`, `PT0.5S`) in milliseconds."""
    found = _DURATION.fullmatch(text)
    assert found is not None, f"{text!r} was checked when it was set"
    days, hours, minutes, seconds, fraction = found.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return whole * 1000 + int((fraction or "").ljust(3, "0")[:3])
