"""What a share-state shard takes in, and what must follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kohort.share.partition import StateBatch
from kohort.share.state import PersistedState, SharePartitionKey, StateRecordBytes
from kohort.wire.errors import ErrorCode

StateToken = object
"""Who asked; it comes back with the answer."""


@dataclass(frozen=True, slots=True)
class InitializeState:
    request: StateToken
    key: SharePartitionKey
    state_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class ReadState:
    request: StateToken
    key: SharePartitionKey
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class WriteState:
    request: StateToken
    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteState:
    request: StateToken
    key: SharePartitionKey


@dataclass(frozen=True, slots=True)
class ReadStateSummary:
    request: StateToken
    key: SharePartitionKey
    leader_epoch: int = -1


ShareStateRequest = InitializeState | ReadState | WriteState | DeleteState | ReadStateSummary


@dataclass(frozen=True, slots=True)
class ShareTopicsDeleted:
    topic_ids: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class SnapshotsDue:
    """It is time for snapshots of what was not written for long, so that the log can be pruned."""


@dataclass(frozen=True, slots=True)
class PruningDue:
    """It is time to delete what no state needs any more."""


@dataclass(frozen=True, slots=True)
class ShareStateDurable:
    token: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class ShareStateNotWritten:
    token: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ShareStateLoadBegun:
    epoch: int


class ShareStateRecord(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ShareStatesRead:
    epoch: int
    records: Sequence[ShareStateRecord]


@dataclass(frozen=True, slots=True)
class ShareStateLoadEnded:
    epoch: int


@dataclass(frozen=True, slots=True)
class ShareStateLost:
    """The partition of the log is not of this node any more, or the node stops."""


ShareStateEvent = (
    ShareStateRequest
    | ShareTopicsDeleted
    | SnapshotsDue
    | PruningDue
    | ShareStateDurable
    | ShareStateNotWritten
    | ShareStateLoadBegun
    | ShareStatesRead
    | ShareStateLoadEnded
    | ShareStateLost
)


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """Answers each of the requests; a read has the state. `message` says what is wrong, as Kafka's answers do."""

    error: ErrorCode
    state: PersistedState | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ShareStateReply:
    request: StateToken
    answer: StateAnswer


@dataclass(frozen=True, slots=True)
class AppendShareState:
    """Records to write in one batch; ShareStateDurable or ShareStateNotWritten must follow, in order."""

    token: int
    records: tuple[StateRecordBytes, ...]


@dataclass(frozen=True, slots=True)
class PruneShareState:
    """All records of the log below the offset can be deleted."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShareStateLoadFailed:
    """The log holds a record that cannot be read; the shard serves nothing until it is loaded anew."""

    epoch: int
    message: str


ShareStateEffect = ShareStateReply | AppendShareState | PruneShareState | ShareStateLoadFailed
