"""Share sessions: which partitions a member fetches from this node, and the epoch that its next request must have.

A session belongs to a connection. When it closes, or the connection is lost, all that the member holds is released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kohort.wire.errors import ErrorCode

FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1


class ShareSessionKey(NamedTuple):
    group_id: str
    member_id: str


TopicIdPartition = tuple[bytes, int]


def next_epoch(epoch: int) -> int:
    """Returns the epoch after this one; a session that goes on never has 0 again."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


@dataclass(slots=True)
class LeaderShareSession:
    """A session of a member, as the leader of its partitions keeps it."""

    key: ShareSessionKey
    connection: object
    epoch: int
    partitions: dict[TopicIdPartition, bool] = field(default_factory=dict)
    """In the order of turns -> whether the next answer has the partition even if there is no news of it."""

    def in_turn(self, epoch: int) -> list[TopicIdPartition]:
        """Returns the partitions, beginning with another one at each epoch."""
        return rotated(list(self.partitions), epoch)

    def is_told(self, partition: TopicIdPartition, has_records: bool, error: int) -> bool:
        """Tells whether an answer has to have the partition, and remembers that it had."""
        must = has_records or bool(error) or self.partitions.get(partition, False)
        if partition in self.partitions:
            self.partitions[partition] = bool(error)
            if has_records:
                self.partitions[partition] = self.partitions.pop(partition)
        return must


def rotated(partitions: list[TopicIdPartition], epoch: int) -> list[TopicIdPartition]:
    if len(partitions) < 2 or epoch < 1:
        return partitions
    at = epoch % len(partitions)
    return partitions[at:] + partitions[:at]


class ShareSessions:
    """All share sessions of this node."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._sessions: dict[ShareSessionKey, LeaderShareSession] = {}
        self._by_connection: dict[object, dict[ShareSessionKey, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: ShareSessionKey) -> LeaderShareSession | None:
        return self._sessions.get(key)

    def fetch(
        self,
        key: ShareSessionKey,
        epoch: int,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
        has_acknowledgements: bool,
        connection: object,
    ) -> LeaderShareSession | ErrorCode:
        """Takes a ShareFetch into its session. One with the final epoch is closed by `close`, when it is answered."""
        session = self._sessions.get(key)
        if epoch == FIRST_EPOCH:
            if has_acknowledgements:
                return ErrorCode.INVALID_REQUEST
            if session is not None:
                self.close(key)
            return self._open(key, added, connection)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        for partition in added:
            session.partitions.setdefault(partition, True)
        for partition in forgotten:
            session.partitions.pop(partition, None)
        session.epoch = next_epoch(epoch)
        return session

    def _open(
        self, key: ShareSessionKey, added: Iterable[TopicIdPartition], connection: object
    ) -> LeaderShareSession | ErrorCode:
        if len(self._sessions) >= self.most:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = LeaderShareSession(key, connection, next_epoch(FIRST_EPOCH), dict.fromkeys(added, False))
        self._sessions[key] = session
        self._by_connection.setdefault(connection, {})[key] = None
        return session

    def acknowledge(self, key: ShareSessionKey, epoch: int) -> ErrorCode:
        """Takes a ShareAcknowledge into its session."""
        if epoch == FIRST_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return ErrorCode.NONE
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = next_epoch(epoch)
        return ErrorCode.NONE

    def close(self, key: ShareSessionKey) -> LeaderShareSession | None:
        """Forgets a session, and returns it: the caller releases what its member holds."""
        session = self._sessions.pop(key, None)
        if session is not None:
            of_connection = self._by_connection.get(session.connection, {})
            of_connection.pop(key, None)
            if not of_connection:
                self._by_connection.pop(session.connection, None)
        return session

    def connection_lost(self, connection: object) -> list[LeaderShareSession]:
        """Closes the sessions of a connection: mostly one, and none for most connections."""
        closed = [self.close(key) for key in list(self._by_connection.get(connection, ()))]
        return [session for session in closed if session is not None]

    def has_group(self, group_id: str) -> bool:
        return any(key.group_id == group_id for key in self._sessions)
