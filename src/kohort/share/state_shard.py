"""The states of share partitions in one partition of `__share_group_state`: the share coordinator.

`step(event, now_ms)` takes any event and returns the effects that must follow. A request is answered when its record is
durable. Requests that come before that see the state with the records that are on their way; if one cannot be written,
all that were on their way are refused, and the state is again what is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from kohort.share.state import (
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    PersistedState,
    SharePartitionKey,
    StateChange,
    StateRecordBytes,
    decode,
    merge,
    snapshot_record,
    update_record,
)
from kohort.share.state_events import (
    AppendShareState,
    DeleteState,
    InitializeState,
    PruneShareState,
    PruningDue,
    ReadState,
    ReadStateSummary,
    ShareStateDurable,
    ShareStateEffect,
    ShareStateEvent,
    ShareStateLoadBegun,
    ShareStateLoadEnded,
    ShareStateLoadFailed,
    ShareStateLost,
    ShareStateNotWritten,
    ShareStateRecord,
    ShareStateReply,
    ShareStateRequest,
    ShareStatesRead,
    ShareTopicsDeleted,
    SnapshotsDue,
    StateAnswer,
    WriteState,
)
from kohort.wire.errors import BadRecord, ErrorCode

PartitionExists = Callable[[bytes, int], bool]
"""Tells whether a topic, by its id, has a partition."""

_E = ErrorCode
# How a failed append is answered; other errors are answered as they are.
APPEND_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
}
_READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
_WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
_UNKNOWN: Final = PersistedState(0, 0, 0, NO_OFFSET, NO_COUNT)
"""What a summary says of a partition that has no state."""


@dataclass(frozen=True, slots=True)
class StateSettings:
    updates_per_snapshot: int = 500
    cold_snapshot_ms: int = 300_000


class StateShardStatus(Enum):
    NOT_LOADED = "not loaded"
    LOADING = "loading"
    ACTIVE = "active"


_REFUSALS: Final = {
    StateShardStatus.NOT_LOADED: ErrorCode.NOT_COORDINATOR,
    StateShardStatus.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass(frozen=True, slots=True)
class _Write:
    records: tuple[StateRecordBytes, ...]
    request: object = None
    answer: StateAnswer | None = None


class DurableStates:
    """What the log says: replay is the only way in."""

    def __init__(self) -> None:
        self.states: dict[SharePartitionKey, PersistedState] = {}
        self.updates: dict[SharePartitionKey, int] = {}
        """How many updates followed the last snapshot."""
        self.snapshots: dict[SharePartitionKey, int] = {}
        """The offset of the last snapshot: what is before all of these is not needed."""
        self.end_offset = 0

    def apply(self, offset: int, key: bytes, value: bytes | None) -> None:
        self.end_offset = offset + 1
        decoded = decode(key, value)
        if decoded is None:
            return
        partition, said = decoded
        if isinstance(said, StateChange):
            known = self.states.get(partition)
            self.states[partition] = _from_update(said) if known is None else known.merged(said)
            self.updates[partition] = self.updates.get(partition, 0) + 1
            # An update without a snapshot before it must not be pruned either.
            self.snapshots.setdefault(partition, offset)
        elif said is None:
            self.states.pop(partition, None)
            self.updates.pop(partition, None)
            self.snapshots.pop(partition, None)
        else:
            self.states[partition] = _no_older(said, self.states.get(partition))
            self.updates[partition] = 0
            self.snapshots[partition] = offset

    @property
    def needed_from(self) -> int:
        """The first offset that is still needed."""
        return min(self.snapshots.values(), default=self.end_offset)


def _no_older(said: PersistedState, known: PersistedState | None) -> PersistedState:
    """Returns a snapshot with the highest epochs that were ever seen: an old leader stays fenced."""
    if known is None:
        return said
    return replace(
        said,
        leader_epoch=max(said.leader_epoch, known.leader_epoch),
        state_epoch=max(said.state_epoch, known.state_epoch),
    )


def _from_update(change: StateChange) -> PersistedState:
    start, count = change.start_offset, change.delivery_complete_count
    batches = merge(change.batches, start)
    return PersistedState(change.snapshot_epoch, NO_EPOCH, change.leader_epoch, start, count, batches)


class ShareStateShard:
    """The states of one partition of the log; only `step` changes them."""

    def __init__(self, partition: int, settings: StateSettings, partition_exists: PartitionExists) -> None:
        self.partition = partition
        self.settings = settings
        self.epoch = -1
        self._exists = partition_exists
        self._next_token = 0
        self._effects: list[ShareStateEffect] = []
        self._forget()
        self._handlers: dict[type, Callable[[Any, int], None]] = {
            InitializeState: self._initialize,
            ReadState: self._read,
            WriteState: self._write,
            DeleteState: self._delete,
            ReadStateSummary: self._summarize,
        }

    def _forget(self) -> None:
        self.status = StateShardStatus.NOT_LOADED
        self.durable = DurableStates()
        self.writes: dict[int, _Write] = {}
        """Token -> records on their way to the log; in order."""
        self._soft: dict[SharePartitionKey, PersistedState | None] = {}
        """The states with what is on its way to the log."""
        self._soft_updates: dict[SharePartitionKey, int] = {}
        self.pruned_to = 0

    def state(self, key: SharePartitionKey) -> PersistedState | None:
        """Returns the state with what is on its way to the log."""
        return self._soft[key] if key in self._soft else self.durable.states.get(key)

    def step(self, event: ShareStateEvent, now_ms: int) -> list[ShareStateEffect]:
        effects: list[ShareStateEffect] = []
        self._effects = effects
        handle = self._handlers.get(type(event))
        if handle is None:
            self._other(event, now_ms)
        elif self.status is StateShardStatus.ACTIVE:
            handle(event, now_ms)
        else:
            self._refuse(event, _REFUSALS[self.status])  # type: ignore[arg-type]
        return effects

    def _other(self, event: ShareStateEvent, now_ms: int) -> None:
        match event:
            case ShareStateDurable(token, base_offset):
                self._written(token, base_offset)
            case ShareStateNotWritten(token, error) if token in self.writes:
                self._fail(APPEND_ERRORS.get(error, error))
            case ShareTopicsDeleted(topic_ids) if self.status is StateShardStatus.ACTIVE:
                self._bury([key for key in self._known() if key.topic_id in topic_ids])
            case SnapshotsDue() if self.status is StateShardStatus.ACTIVE:
                self._snapshot_cold(now_ms)
            case PruningDue() if self.status is StateShardStatus.ACTIVE:
                self._prune()
            case ShareStateLoadBegun(epoch) if epoch > self.epoch:
                self._lose()
                self.epoch, self.status = epoch, StateShardStatus.LOADING
            case ShareStatesRead(epoch, records) if self._is_loading(epoch):
                self._load(epoch, records)
            case ShareStateLoadEnded(epoch) if self._is_loading(epoch):
                self.status = StateShardStatus.ACTIVE
            case ShareStateLost():
                self._lose()

    # --- requests ----------------------------------------------------------------------------------

    def _reply(self, request: object, answer: StateAnswer) -> None:
        self._effects.append(ShareStateReply(request, answer))

    def _refuse(self, request: ShareStateRequest, error: ErrorCode, message: str | None = None) -> None:
        self._reply(request.request, StateAnswer(error, message=message))

    def _is_missing(self, request: ShareStateRequest) -> bool:
        """Refuses a request about a partition that does not exist."""
        if request.key.partition < 0:
            self._refuse(request, _E.INVALID_REQUEST, "The partition id cannot be a negative number.")
        elif not self._exists(request.key.topic_id, request.key.partition):
            self._refuse(request, _E.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            return False
        return True

    def _initialize(self, request: InitializeState, now_ms: int) -> None:
        known = self.state(request.key)
        if known is not None and _is_below(request.state_epoch, known.state_epoch):
            self._refuse(request, _E.FENCED_STATE_EPOCH)
        elif not self._is_missing(request):
            fresh = PersistedState(
                0 if known is None else known.snapshot_epoch + 1,
                request.state_epoch,
                NO_EPOCH,
                request.start_offset,
                NO_COUNT if request.start_offset == NO_OFFSET else 0,
                created_ms=now_ms,
                written_ms=now_ms,
            )
            self._append_snapshot(request.key, fresh, request.request, StateAnswer(_E.NONE))

    def _read(self, request: ReadState, now_ms: int) -> None:
        known = self.state(request.key)
        if known is None:
            self._refuse(request, _E.INVALID_REQUEST, _READ_UNINITIALIZED)
        elif _is_below(request.leader_epoch, known.leader_epoch):
            self._refuse(request, _E.FENCED_LEADER_EPOCH)
        elif self._is_missing(request):
            return
        elif request.leader_epoch in (-1, known.leader_epoch):
            self._reply_when_durable(request.request, StateAnswer(_E.NONE, known))
        else:
            # The epoch is written, so that a leader of before is refused from now on.
            count = known.delivery_complete_count
            self._append_change(
                request.key,
                known,
                StateChange(known.snapshot_epoch, request.leader_epoch, known.start_offset, count),
                now_ms,
                request.request,
                StateAnswer(_E.NONE, replace(known, leader_epoch=request.leader_epoch)),
            )

    def _write(self, request: WriteState, now_ms: int) -> None:
        known = self.state(request.key)
        if known is None:
            self._refuse(request, _E.INVALID_REQUEST, _WRITE_UNINITIALIZED)
        elif _is_below(request.leader_epoch, known.leader_epoch):
            self._refuse(request, _E.FENCED_LEADER_EPOCH)
        elif _is_below(request.state_epoch, known.state_epoch):
            self._refuse(request, _E.FENCED_STATE_EPOCH)
        elif not self._is_missing(request):
            change = StateChange(
                known.snapshot_epoch,
                known.leader_epoch,
                request.start_offset,
                request.delivery_complete_count,
                merge(request.batches, request.start_offset),
            )
            self._append_change(request.key, known, change, now_ms, request.request, StateAnswer(_E.NONE))

    def _delete(self, request: DeleteState, now_ms: int) -> None:
        if self._is_missing(request):
            return
        if self.state(request.key) is None:
            self._reply_when_durable(request.request, StateAnswer(_E.NONE))
        else:
            self._bury([request.key], request.request, StateAnswer(_E.NONE))

    def _summarize(self, request: ReadStateSummary, now_ms: int) -> None:
        if not self._is_missing(request):
            found = self.state(request.key)
            answer = StateAnswer(_E.NONE, _UNKNOWN if found is None else found)
            self._reply_when_durable(request.request, answer)

    # --- writes ------------------------------------------------------------------------------------

    def _append_change(
        self,
        key: SharePartitionKey,
        known: PersistedState,
        change: StateChange,
        now_ms: int,
        request: object,
        answer: StateAnswer,
    ) -> None:
        """Writes an update; a snapshot if there were enough updates since the last one."""
        updates = self._soft_updates.get(key, self.durable.updates.get(key, 0))
        merged = known.merged(change)
        if updates >= self.settings.updates_per_snapshot:
            epoch = known.snapshot_epoch + 1
            fresh = replace(merged, snapshot_epoch=epoch, created_ms=now_ms, written_ms=now_ms)
            self._append_snapshot(key, fresh, request, answer)
            return
        self._soft[key], self._soft_updates[key] = merged, updates + 1
        self._append((update_record(key, change),), request, answer)

    def _append_snapshot(
        self, key: SharePartitionKey, state: PersistedState, request: object, answer: StateAnswer | None
    ) -> None:
        self._soft[key], self._soft_updates[key] = _no_older(state, self.state(key)), 0
        self._append((snapshot_record(key, state),), request, answer)

    def _bury(
        self, keys: list[SharePartitionKey], request: object = None, answer: StateAnswer | None = None
    ) -> None:
        if keys:
            for key in keys:
                self._soft[key], self._soft_updates[key] = None, 0
            self._append(tuple(snapshot_record(key, None) for key in keys), request, answer)

    def _append(
        self, records: tuple[StateRecordBytes, ...], request: object, answer: StateAnswer | None
    ) -> None:
        token = self._next_token
        self._next_token = token + 1
        self.writes[token] = _Write(records, request, answer)
        self._effects.append(AppendShareState(token, records))

    def _reply_when_durable(self, request: object, answer: StateAnswer) -> None:
        """Answers a read once what it has seen is durable."""
        if self.writes:
            self._append((), request, answer)
        else:
            self._reply(request, answer)

    def _written(self, token: int, base_offset: int) -> None:
        write = self.writes.pop(token, None)
        if write is None:
            return
        assert not self.writes or token < next(iter(self.writes)), "writes became durable out of order"
        for number, (key, value) in enumerate(write.records):
            self.durable.apply(base_offset + number, key, value)
        if not self.writes:
            self._soft.clear()
            self._soft_updates.clear()
        if write.answer is not None:
            self._reply(write.request, write.answer)

    def _fail(self, error: ErrorCode) -> None:
        """Refuses all that was on its way to the log, because later records stand on those that were not written."""
        writes, self.writes = self.writes, {}
        self._soft.clear()
        self._soft_updates.clear()
        for write in writes.values():
            if write.answer is not None:
                self._reply(write.request, StateAnswer(error))

    # --- housekeeping ------------------------------------------------------------------------------

    def _known(self) -> list[SharePartitionKey]:
        return [key for key in {**self.durable.states, **self._soft} if self.state(key) is not None]

    def _snapshot_cold(self, now_ms: int) -> None:
        """Writes snapshots of states that were not written for long: they hold back the pruning of the log."""
        states = {key: state for key in self._known() if (state := self.state(key)) is not None}
        if all(state.created_ms != state.written_ms for state in states.values()):
            return  # all of them are cold already
        records = []
        for key, state in states.items():
            if now_ms - state.written_ms >= self.settings.cold_snapshot_ms:
                fresh = replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms)
                self._soft[key], self._soft_updates[key] = fresh, 0
                records.append(snapshot_record(key, fresh))
        if records:
            self._append(tuple(records), None, None)

    def _prune(self) -> None:
        needed = self.durable.needed_from
        if needed > self.pruned_to:
            self.pruned_to = needed
            self._effects.append(PruneShareState(needed))

    # --- load and loss -----------------------------------------------------------------------------

    def _is_loading(self, epoch: int) -> bool:
        return epoch == self.epoch and self.status is StateShardStatus.LOADING

    def _load(self, epoch: int, records: Any) -> None:
        record: ShareStateRecord
        try:
            for record in records:
                self.durable.apply(record.offset, record.key, record.value)
        except BadRecord as error:
            where = f"__share_group_state-{self.partition} offset {record.offset}"
            self._forget()
            self._effects.append(ShareStateLoadFailed(epoch, f"{where}: {error}"))

    def _lose(self) -> None:
        """Tells everyone who waits to look for the new coordinator, and forgets all."""
        self._fail(_E.NOT_COORDINATOR)
        self._forget()


def _is_below(told: int, known: int) -> bool:
    return told != -1 and told < known
