"""What must follow a step: records to append, replies to send, timers to set, and history for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from kohort.coordinator.events import (
    AlterSharePartitions,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeShareGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListSharePartitions,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    ShardRequest,
    ShareGroupHeartbeat,
    SyncGroup,
    TimerKind,
    Token,
    TxnOffsetCommit,
)
from kohort.coordinator.frozen import frozen
from kohort.coordinator.history import Rebalance
from kohort.wire.errors import ErrorCode
from kohort.wire.struct import ZERO_UUID

NONE = ErrorCode.NONE


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class JoinResponse:
    error: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@frozen
class SyncResponse:
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


@frozen
class HeartbeatResponse:
    error: ErrorCode


class LeaveResult(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@frozen
class LeaveResponse:
    error: ErrorCode
    members: tuple[LeaveResult, ...] = ()


@frozen
class CommitResponse:
    """One error per offset of the request, in its order."""

    errors: tuple[ErrorCode, ...]


class FetchedOffset(NamedTuple):
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = NONE
    topic_id: bytes = ZERO_UUID
    """The topic that the offset was committed for; zeros if that is not on record."""


@frozen
class FetchResponse:
    error: ErrorCode
    group_id: str = ""
    topics: tuple[tuple[str, tuple[FetchedOffset, ...]], ...] = ()


@frozen
class OffsetDeleteResponse:
    error: ErrorCode
    topics: tuple[tuple[str, tuple[tuple[int, ErrorCode], ...]], ...] = ()


@frozen
class ConsumerHeartbeatResponse:
    """The answer to a heartbeat of KIP-848; an assignment of None says that the member keeps what it has."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[tuple[bytes, tuple[int, ...]], ...] | None = None


class DescribedConsumer(NamedTuple):
    """A member of a consumer group; partitions by the id and the name of their topic."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str
    assignment: tuple[tuple[bytes, str, tuple[int, ...]], ...]
    target: tuple[tuple[bytes, str, tuple[int, ...]], ...]
    is_classic: bool


@frozen
class DescribeConsumerResponse:
    error: ErrorCode
    group_id: str = ""
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@frozen
class DescribeResponse:
    error: ErrorCode
    group_id: str = ""
    state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@frozen
class ListResponse:
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@frozen
class DeleteResponse:
    error: ErrorCode
    group_id: str = ""


@frozen
class ShareHeartbeatResponse:
    """The answer to a heartbeat of KIP-932; an assignment of None says that the member keeps what it has."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[tuple[bytes, tuple[int, ...]], ...] | None = None


class DescribedShareMember(NamedTuple):
    """A member of a share group; partitions by the id and the name of their topic."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assignment: tuple[tuple[bytes, str, tuple[int, ...]], ...]


@frozen
class DescribeShareResponse:
    error: ErrorCode
    group_id: str = ""
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    members: tuple[DescribedShareMember, ...] = ()


@frozen
class SharePartitionsResponse:
    """Partitions by topic id, and the epoch of the group, which is that of the state."""

    error: ErrorCode
    group_epoch: int = 0
    partitions: Mapping[bytes, frozenset[int]] = field(default_factory=dict)
    has_members: bool = False


Response = (
    JoinResponse
    | SyncResponse
    | HeartbeatResponse
    | LeaveResponse
    | CommitResponse
    | FetchResponse
    | OffsetDeleteResponse
    | DescribeResponse
    | ListResponse
    | DeleteResponse
    | ConsumerHeartbeatResponse
    | DescribeConsumerResponse
    | ShareHeartbeatResponse
    | DescribeShareResponse
    | SharePartitionsResponse
)


def refusal(request: ShardRequest, error: ErrorCode) -> Response:
    """Returns the response that carries nothing but an error, as the API of the request has it."""
    match request:
        case JoinGroup(member_id=member_id):
            return JoinResponse(error, member_id)
        case SyncGroup():
            return SyncResponse(error)
        case Heartbeat():
            return HeartbeatResponse(error)
        case LeaveGroup():
            return LeaveResponse(error)
        case OffsetCommit(offsets=offsets) | TxnOffsetCommit(offsets=offsets):
            return CommitResponse(tuple(o.refused or error for o in offsets))
        case OffsetFetch(group_id=group_id):
            return FetchResponse(error, group_id or "")
        case OffsetDelete():
            return OffsetDeleteResponse(error)
        case DescribeGroup(group_id=group_id):
            return DescribeResponse(error, group_id or "")
        case ListGroups():
            return ListResponse(error)
        case _:
            return _other_refusal(request, error)


def _other_refusal(
    request: (
        DeleteGroup
        | ConsumerGroupHeartbeat
        | DescribeConsumerGroup
        | ShareGroupHeartbeat
        | DescribeShareGroup
        | ListSharePartitions
        | AlterSharePartitions
    ),
    error: ErrorCode,
) -> Response:
    match request:
        case ShareGroupHeartbeat():
            return ShareHeartbeatResponse(error)
        case DescribeShareGroup(group_id=group_id):
            return DescribeShareResponse(error, group_id or "")
        case ListSharePartitions() | AlterSharePartitions():
            return SharePartitionsResponse(error)
        case DeleteGroup(group_id=group_id):
            return DeleteResponse(error, group_id or "")
        case DescribeConsumerGroup(group_id=group_id):
            return DescribeConsumerResponse(error, group_id or "")
        case ConsumerGroupHeartbeat():
            return ConsumerHeartbeatResponse(error)


class RecordToWrite(NamedTuple):
    """Bytes for `__consumer_offsets`; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


@frozen
class Append:
    """Records to write in one batch; DurableWritten or WriteFailed must follow with the token, in order."""

    token: int
    records: Sequence[RecordToWrite]
    producer_id: int = -1
    producer_epoch: int = -1
    verification: object = None


@frozen
class Reply:
    request: Token
    response: Response


@frozen
class SetTimer:
    """A timer: TimerFired follows with the same fields at `deadline_ms`. Timers are never cancelled, only ignored."""

    kind: TimerKind
    group_id: str
    member_id: str
    deadline_ms: int


@frozen
class HistoryChanged:
    """A rebalance began, went on or ended; its newest version (by group and number) is to be kept."""

    group_id: str
    rebalance: Rebalance


@frozen
class ShareStateWanted:
    """The share coordinator is to make state of these partitions; ShareStateInitialized must follow."""

    group_id: str
    state_epoch: int
    partitions: Mapping[bytes, frozenset[int]]


@frozen
class LoadFailed:
    """The log holds a record that this version cannot read; the shard serves nothing until it is loaded anew."""

    epoch: int
    message: str


Effect = Append | Reply | SetTimer | HistoryChanged | ShareStateWanted | LoadFailed
