"""Share sessions: epochs, partitions and their turns, limits, lost connections."""

from __future__ import annotations

from kohort.share.sessions import LeaderShareSession, ShareSessionKey, ShareSessions, next_epoch, rotated
from kohort.wire.errors import ErrorCode

A, B, C = ((b"t" * 16, index) for index in range(3))
KEY, OTHER = ShareSessionKey("g", "m1"), ShareSessionKey("g", "m2")


def opened(
    sessions: ShareSessions, key: ShareSessionKey = KEY, connection: object = "c"
) -> LeaderShareSession:
    session = sessions.fetch(key, 0, [A, B], [], False, connection)
    assert isinstance(session, LeaderShareSession)
    return session


def test_partitions_are_added_and_forgotten() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert sessions.fetch(KEY, 1, [C], [A], True, "c") is session
    assert list(session.partitions) == [B, C]
    assert session.epoch == 2


def test_epochs() -> None:
    sessions = ShareSessions(10)
    assert sessions.fetch(KEY, 1, [], [], False, "c") is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.fetch(KEY, 0, [A], [], True, "c") is ErrorCode.INVALID_REQUEST
    session = opened(sessions)
    assert sessions.fetch(KEY, 2, [], [], False, "c") is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.acknowledge(KEY, 1) is ErrorCode.NONE  # it shares the counter
    assert sessions.acknowledge(KEY, 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.acknowledge(KEY, 0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.fetch(KEY, -1, [], [], True, "c") is session
    assert opened(sessions) is not session
    assert next_epoch(2**31 - 1) == 1


def test_an_answer_has_what_is_news() -> None:
    session = opened(ShareSessions(10))
    assert not session.is_told(A, has_records=False, error=0)
    assert session.is_told(A, has_records=True, error=0)
    assert list(session.partitions) == [B, A]  # it has had its turn
    assert session.is_told(B, has_records=False, error=3)
    assert session.is_told(B, has_records=False, error=0)  # the error is over
    assert not session.is_told(B, has_records=False, error=0)


def test_turns_rotate_with_the_epoch() -> None:
    assert [rotated([A, B, C], epoch)[0] for epoch in (0, 1, 2, 3)] == [A, B, C, A]


def test_sessions_are_limited_and_end_with_their_connection() -> None:
    sessions = ShareSessions(2)
    first, second = opened(sessions), opened(sessions, OTHER)
    third = ShareSessionKey("h", "m3")
    assert sessions.fetch(third, 0, [A], [], False, "d") is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.connection_lost("d") == []
    assert sessions.connection_lost("c") == [first, second]
    assert (len(sessions), sessions.has_group("g")) == (0, False)
    assert sessions.connection_lost("c") == []
