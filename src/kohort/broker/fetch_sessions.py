"""Keeps fetch sessions (KIP-227): the broker remembers what a consumer reads, so requests need not repeat it.

A session holds the partitions of the last full fetch, as changed by each incremental one. An incremental answer names
only partitions that have something new. A session belongs to the principal that began it: for all others it is not
there, so that nobody who guesses its number learns what it reads, or disturbs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kohort.security.acls import ANONYMOUS
from kohort.wire.errors import ErrorCode
from kohort.wire.messages.fetch import FetchPartition, FetchRequest

if TYPE_CHECKING:
    from kohort.log.partition import Partition

FINAL_EPOCH = -1  # a fetch without a session, or the end of one
INITIAL_EPOCH = 0  # asks for a new session
NO_SESSION = 0
_MAX_EPOCH = 2**31 - 1
_EVICTION_MS = 120_000  # as Kafka: a session this long unused may be replaced by a new one
_new_key = tuple.__new__  # half the time of Key(…)


class Key(NamedTuple):
    """A partition as the client names it: by topic name before v13, by topic id since."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class Wanted:
    """One partition of a fetch, and what the client knows of it."""

    key: Key
    fetch_offset: int = 0
    max_bytes: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    # what the last answer said; −1 before the first
    high_watermark: int = -1
    log_start_offset: int = -1
    # once it was found; good until it is deleted
    partition: Partition | None = None

    def update(self, part: FetchPartition) -> None:
        self.fetch_offset = part.fetch_offset
        self.max_bytes = part.partition_max_bytes
        self.current_leader_epoch = part.current_leader_epoch
        self.last_fetched_epoch = part.last_fetched_epoch


@dataclass(slots=True)
class FetchSession:
    """What the broker remembers of one consumer's fetches."""

    id: int
    uses_topic_ids: bool
    partitions: dict[Key, Wanted] = field(default_factory=dict)
    principal: str = ANONYMOUS
    epoch: int = 1
    last_used_ms: int = 0


@dataclass(slots=True)
class FetchPlan:
    """What one fetch reads, and how it is answered."""

    wanted: list[Wanted]
    session_id: int = NO_SESSION
    session: FetchSession | None = None
    is_full: bool = True  # the answer names every partition; an incremental one only those with news
    error: ErrorCode = ErrorCode.NONE


class FetchSessions:
    """The sessions of one broker: at most `slots`; the one that was unused for longest is replaced first."""

    def __init__(self, slots: int, fresh_id: Callable[[], int]) -> None:
        self._slots = slots
        # Returns a random positive int32: ids of other brokers should not be mistaken for those of this one.
        self._fresh_id = fresh_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions_of(self, session_id: int) -> list[Key]:
        """Returns what a session reads; nothing if there is none of this id."""
        session = self._sessions.get(session_id)
        return list(session.partitions) if session is not None else []

    def plan(self, request: FetchRequest, version: int, now_ms: int, principal: str = ANONYMOUS) -> FetchPlan:
        """Returns what a request of a principal reads, and changes the session that it names."""
        by_id = version >= 13
        if version < 7 or request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            # The request ends a session, uses none, or begins a new one; in each case the session it names is dropped.
            if version >= 7 and request.session_id != NO_SESSION:
                named = self._of(request.session_id, principal)
                if named is not None:
                    self.drop(named)
            wanted = _wanted_by(request)
            if version < 7 or request.session_epoch == FINAL_EPOCH:
                return FetchPlan(list(wanted.values()))
            session = self._open(wanted, by_id, now_ms, principal)
            if session is None:
                return FetchPlan(list(wanted.values()))
            return FetchPlan(list(wanted.values()), session.id, session)
        return self._go_on(request, by_id, now_ms, principal)

    def _of(self, session_id: int, principal: str) -> FetchSession | None:
        """Returns a session of this principal; None if there is none of this id."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.principal == principal else None

    def _open(
        self, wanted: dict[Key, Wanted], by_id: bool, now_ms: int, principal: str
    ) -> FetchSession | None:
        if not wanted or not self._make_room(now_ms):
            return None
        session_id = self._fresh_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._fresh_id()
        session = FetchSession(session_id, by_id, wanted, principal, last_used_ms=now_ms)
        self._sessions[session_id] = session
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        # The order of insertion is the order of use: `_go_on` puts a session back at the end.
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < _EVICTION_MS:
            return False
        del self._sessions[oldest.id]
        return True

    def _go_on(self, request: FetchRequest, by_id: bool, now_ms: int, principal: str) -> FetchPlan:
        session = self._of(request.session_id, principal)
        if session is None:
            return FetchPlan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != by_id:
            return FetchPlan([], session.id, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if request.session_epoch != session.epoch:
            return FetchPlan([], session.id, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        partitions = session.partitions
        for topic in request.topics:
            for part in topic.partitions:
                key = Key(topic.topic, topic.topic_id, part.partition)
                known = partitions.get(key)
                if known is None:
                    known = partitions[key] = Wanted(key)
                known.update(part)
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                partitions.pop(Key(forgotten.topic, forgotten.topic_id, index), None)
        if not partitions:
            # As Kafka: a session without partitions is closed; the answer says so by id 0.
            del self._sessions[session.id]
            return FetchPlan([], is_full=False)
        return FetchPlan(list(partitions.values()), session.id, session, is_full=False)

    def drop(self, session: FetchSession) -> None:
        """Forgets a session, because its client was not told of it."""
        self._sessions.pop(session.id, None)

    @staticmethod
    def served(session: FetchSession, with_data: Iterable[Key]) -> None:
        """Moves partitions that had records to the end, so that the others come first in the next fetch."""
        for key in with_data:
            wanted = session.partitions.pop(key, None)
            if wanted is not None:
                session.partitions[key] = wanted


def _wanted_by(request: FetchRequest) -> dict[Key, Wanted]:
    wanted: dict[Key, Wanted] = {}
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        for part in topic.partitions:
            key = _new_key(Key, (name, topic_id, part.partition))
            wanted[key] = Wanted(
                key,
                part.fetch_offset,
                part.partition_max_bytes,
                part.current_leader_epoch,
                part.last_fetched_epoch,
            )
    return wanted
