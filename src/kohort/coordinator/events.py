"""What can happen to a shard: decoded requests, timers, the outcome of writes, loading and resigning.

What the version of a request implies is a flag here, not a number. `request` identifies the caller who waits for the
answer; the core hands it back in `Reply` and never looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from kohort.coordinator.frozen import frozen
from kohort.coordinator.history import Rebalance
from kohort.wire.errors import ErrorCode
from kohort.wire.struct import ZERO_UUID

Token = Hashable


@frozen
class JoinGroup:
    request: Token
    group_id: str | None
    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Before v1 this is the session timeout, as the request has no other."""
    fresh_uuid: str
    """Made by the broker; it is the suffix of the member id if this join makes one."""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = True
    """v4+: a first join is answered with the id to use."""
    can_skip_assignment: bool = True
    """v9+"""
    reason: str | None = None


@frozen
class SyncGroup:
    request: Token
    group_id: str | None
    member_id: str
    generation_id: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


@frozen
class Heartbeat:
    request: Token
    group_id: str | None
    member_id: str
    generation_id: int
    group_instance_id: str | None = None


class Leaver(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@frozen
class LeaveGroup:
    """A request with one or more leavers; before v3 there is one, and its error is that of the response."""

    request: Token
    group_id: str | None
    members: tuple[Leaver, ...]


@frozen
class ConsumerGroupHeartbeat:
    """A heartbeat of KIP-848. The broker has checked its form; None (and -1) says that a field has not changed."""

    request: Token
    group_id: str | None
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves, -2 says that a static member is away for a while."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Mapping[bytes, Sequence[int]] | None = None
    client_id: str = ""
    client_host: str = ""
    fresh_uuid: str = ""
    """Made by the broker; it is the member id if the member has none."""
    may_describe: Callable[[str], bool] | None = None
    """Whether the member may know of a topic that its regular expression matches; None if it may know of all."""


@frozen
class DescribeConsumerGroup:
    request: Token
    group_id: str | None


@frozen
class ShareGroupHeartbeat:
    """A heartbeat of KIP-932. The broker has checked its form; None says that a field has not changed."""

    request: Token
    group_id: str | None
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves."""
    rack_id: str | None = None
    topic_names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


@frozen
class DescribeShareGroup:
    request: Token
    group_id: str | None


@frozen
class ListSharePartitions:
    """Asks which partitions of a share group have state."""

    request: Token
    group_id: str | None


@frozen
class AlterSharePartitions:
    """Begins to alter or to delete the state of partitions, by topic id, of a share group without members."""

    request: Token
    group_id: str | None
    partitions: Mapping[bytes, frozenset[int]]
    is_deletion: bool = False
    """All partitions of the topics; those that are named do not matter."""


@frozen
class ShareStateInitialized:
    """The share coordinator has made the state of these partitions, or has failed."""

    group_id: str
    partitions: Mapping[bytes, frozenset[int]]
    error: ErrorCode


@frozen
class FinishShareDeletion:
    """The share coordinator has deleted the state of these topics."""

    group_id: str
    topic_ids: frozenset[bytes]


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    refused: ErrorCode = ErrorCode.NONE
    """What the broker has found wrong with it (such as an unknown topic); it is answered and not written."""
    topic_id: bytes = ZERO_UUID
    """The id that the topic has now; it is kept with the offset."""


@frozen
class OffsetCommit:
    request: Token
    group_id: str | None
    offsets: Sequence[OffsetToCommit]
    """A `LaidOutOffsets` if they are of distinct partitions in a layout; else a tuple."""
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    """v2–4 only."""
    group_may_be_unknown: bool = True
    """v9+: an unknown group is GROUP_ID_NOT_FOUND, before ILLEGAL_GENERATION. Members of KIP-848 need it."""


@frozen
class TxnOffsetCommit:
    """A commit in a transaction; the broker has verified its producer, and a COMMIT marker makes it visible."""

    request: Token
    group_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    producer_id: int
    producer_epoch: int
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    verification: object = None
    """What the log needs to take the offsets as the first of a transaction; handed on in `Append`."""


@frozen
class TxnMarker:
    """The marker of a transaction in this partition; the broker has written it, and it is durable."""

    producer_id: int
    commit: bool


@frozen
class OffsetFetch:
    """One group of an OffsetFetch request; `topics` is None for all offsets of the group."""

    request: Token
    group_id: str | None
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None
    require_stable: bool = False
    member_id: str | None = None
    """v9+: a member of a consumer group names itself and its epoch."""
    member_epoch: int = -1


@frozen
class OffsetDelete:
    request: Token
    group_id: str | None
    topics: tuple[tuple[str, tuple[int, ...]], ...]


@frozen
class DescribeGroup:
    request: Token
    group_id: str | None
    unknown_is_error: bool = True
    """v6+: an unknown group is GROUP_ID_NOT_FOUND."""


@frozen
class ListGroups:
    request: Token
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@frozen
class DeleteGroup:
    request: Token
    group_id: str | None


@frozen
class TopicsDeleted:
    topics: tuple[str, ...]


@frozen
class TopicsChanged:
    """Topics were created, have grown or were deleted; the catalog already shows that."""

    topics: tuple[str, ...]
    created: bool = False


@frozen
class BeginLoad:
    """The node now leads the partition; a stale epoch is ignored."""

    epoch: int


class LogRecord(NamedTuple):
    """A record of `__consumer_offsets` as it is in the log; a marker has a key of None."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    commit_marker: bool = False


@frozen
class LoadRecords:
    epoch: int
    records: Sequence[LogRecord]


@frozen
class RestoreHistory:
    """The history that `HistoryChanged` told before a restart; it comes between BeginLoad and EndLoad."""

    epoch: int
    group_id: str
    rebalances: tuple[Rebalance, ...]


@frozen
class EndLoad:
    epoch: int


@frozen
class Resign:
    """The partition has moved away; an epoch of None stands for the current one."""

    epoch: int | None = None


class TimerKind(Enum):
    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"
    REBALANCE = "rebalance"
    """A member of a consumer group must have given up its partitions."""
    EXPIRE = "expire offsets"


@frozen
class TimerFired:
    """A timer of `SetTimer` with the deadline it was set for; the shard ignores one that is outdated."""

    kind: TimerKind
    group_id: str
    member_id: str
    deadline_ms: int


@frozen
class RebalanceAsked:
    """A request from outside to rebalance; nothing happens to a group without members or in a rebalance."""

    group_id: str
    reason: str


@frozen
class SessionEnded:
    """A member is given up before its time, as if its session had expired; an unknown member is ignored."""

    group_id: str
    member_id: str


@frozen
class DurableWritten:
    """The records of an Append are durable; these events come in the order of the Appends."""

    token: int
    base_offset: int


@frozen
class WriteFailed:
    token: int
    error: ErrorCode


GroupRequest = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | DeleteGroup
    | ConsumerGroupHeartbeat
    | DescribeConsumerGroup
    | ShareGroupHeartbeat
    | DescribeShareGroup
    | ListSharePartitions
    | AlterSharePartitions
)
ShardRequest = GroupRequest | ListGroups
Event = (
    ShardRequest
    | TxnMarker
    | TopicsDeleted
    | TopicsChanged
    | ShareStateInitialized
    | FinishShareDeletion
    | BeginLoad
    | LoadRecords
    | RestoreHistory
    | EndLoad
    | Resign
    | TimerFired
    | RebalanceAsked
    | SessionEnded
    | DurableWritten
    | WriteFailed
)
