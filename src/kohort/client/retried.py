"""Says which error codes each client tries again by itself, from the tables that the clients run on: docs/errors.md."""

from __future__ import annotations

from kohort.client.consume.fetch_errors import STALE_LEADER, STALE_TOPIC
from kohort.client.consume.fetch_session import LOST_SESSION
from kohort.client.core import metadata, requests
from kohort.client.group import coordinator
from kohort.client.offsets import commit_errors, committed
from kohort.client.produce import produce_errors
from kohort.wire.errors import ErrorCode

REJOINED = (
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
"""Answers to JoinGroup, SyncGroup and Heartbeat after which the consumer joins again (client/group/membership.py)."""

RETRIED: dict[str, frozenset[ErrorCode]] = {
    "consumer": frozenset(
        {
            *REJOINED,
            *STALE_LEADER,
            *STALE_TOPIC,
            *LOST_SESSION,
            *metadata.ASK_AGAIN,
            *coordinator.ASK_AGAIN,
            *committed.RETRIED,
            *commit_errors.RETRIED_COMMITS,
        }
    ),
    "producer": frozenset({*produce_errors.RETRIABLE, *metadata.ASK_AGAIN}),
    "admin": frozenset(requests.RETRIABLE),
}
"""By client: what it does not tell its user before the time of the call is up."""
