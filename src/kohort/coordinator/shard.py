"""The groups of one partition of `__consumer_offsets`.

`step(event, now_ms)` changes the soft state and returns what must follow. Durable state changes only when a
write has become durable, through `Durable.apply`, which also builds it on load. A shard that has lost its
partition answers everyone who waited and forgets all.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from kohort.coordinator import expiry, offsets
from kohort.coordinator.classic import describe, heartbeat, join, rebalance, sync
from kohort.coordinator.classic.group import Group, from_record
from kohort.coordinator.classic.state import State, answer_for_append_error
from kohort.coordinator.effects import (
    Effect,
    HeartbeatResponse,
    JoinResponse,
    ListResponse,
    LoadFailed,
    SyncResponse,
    refusal,
)
from kohort.coordinator.events import (
    BeginLoad,
    DeleteGroup,
    DescribeGroup,
    DurableWritten,
    EndLoad,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    LoadRecords,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RebalanceAsked,
    Request,
    Resign,
    RestoreHistory,
    SessionEnded,
    SyncGroup,
    TimerFired,
    TimerKind,
    TopicsDeleted,
    TxnMarker,
    TxnOffsetCommit,
    WriteFailed,
)
from kohort.coordinator.history import GroupHistory
from kohort.coordinator.records import fits
from kohort.coordinator.replay import Durable
from kohort.coordinator.settings import Settings
from kohort.coordinator.turn import Turn, Write
from kohort.wire.errors import BadRecord, ErrorCode


class Status(Enum):
    NOT_LOADED = "not loaded"
    LOADING = "loading"
    ACTIVE = "active"


_ACTIVE: Final = Status.ACTIVE  # to look up a member of an Enum takes as long as a call

_REFUSALS: Final = {
    Status.NOT_LOADED: ErrorCode.NOT_COORDINATOR,
    Status.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_REQUESTS: Final[dict[type, Callable[[Turn, Any], None]]] = {
    JoinGroup: join.join_group,
    SyncGroup: sync.sync_group,
    Heartbeat: heartbeat.heartbeat,
    LeaveGroup: heartbeat.leave_group,
    OffsetCommit: offsets.commit_offsets,
    TxnOffsetCommit: offsets.commit_offsets_in_transaction,
    OffsetFetch: offsets.fetch_offsets,
    OffsetDelete: offsets.delete_offsets,
    DescribeGroup: describe.describe_group,
    ListGroups: describe.list_groups,
    DeleteGroup: expiry.delete_group,
}
_MAY_HAVE_NO_GROUP_ID: Final = (OffsetCommit, OffsetFetch, DescribeGroup, DeleteGroup)


def _has_good_group_id(request: Request) -> bool:
    if isinstance(request, ListGroups):
        return True
    if request.group_id:
        return fits(request.group_id)
    return request.group_id is not None and isinstance(request, _MAY_HAVE_NO_GROUP_ID)


class Shard:
    """One partition's groups. Only `step` changes anything."""

    def __init__(self, partition: int, settings: Settings) -> None:
        self.partition = partition
        self.settings = settings
        self.status = Status.NOT_LOADED
        self.epoch = -1
        self.durable = Durable()
        self.groups: dict[str, Group] = {}
        self.histories: dict[str, GroupHistory] = {}
        self.writes: dict[int, tuple[Write, int]] = {}
        """Token -> what is on its way to the log, with the producer id; in order."""
        self.next_token = 0
        self.expire_deadline_ms: int | None = None

    @property
    def is_active(self) -> bool:
        return self.status is _ACTIVE

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        turn = Turn(self, now_ms)
        handle = _REQUESTS.get(type(event))
        if handle is not None:
            self._request(turn, handle, event)  # type: ignore[arg-type]
        else:
            self._other(turn, event)
        return turn.effects

    def _request(self, turn: Turn, handle: Callable[[Turn, Any], None], request: Request) -> None:
        if not _has_good_group_id(request):
            turn.refuse(request, ErrorCode.INVALID_GROUP_ID)
        elif self.status is _ACTIVE:
            handle(turn, request)
        else:
            self._refuse(turn, request, _REFUSALS[self.status])

    def _refuse(self, turn: Turn, request: Request, error: ErrorCode) -> None:
        """Older clients do not expect to hear that a partition is loading in answer to these two."""
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and isinstance(request, Heartbeat):
            turn.reply(request.request, HeartbeatResponse(ErrorCode.NONE))
        elif error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and isinstance(request, SyncGroup):
            turn.refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)
        elif error is ErrorCode.NOT_COORDINATOR and isinstance(request, ListGroups):
            turn.reply(request.request, ListResponse(ErrorCode.NONE))
        else:
            turn.refuse(request, error)

    def _other(self, turn: Turn, event: Event) -> None:
        if isinstance(event, DurableWritten):  # not a pattern: of what is not a request nearly all are these
            self._written(turn, event.token, event.base_offset)
            return
        match event:
            case WriteFailed(token, error):
                self._failed(turn, token, error)
            case TimerFired():
                self._timer(turn, event)
            case RebalanceAsked(group_id, reason) if group_id in self.groups:
                rebalance.asked_for(turn, self.groups[group_id], reason)
            case SessionEnded(group_id, member_id) if group_id in self.groups:
                rebalance.end_session(turn, self.groups[group_id], member_id)
            case TopicsDeleted() if self.status is Status.ACTIVE:
                expiry.topics_deleted(turn, event)
            case TxnMarker() if self.status is Status.ACTIVE:
                self.durable.end_transaction(event.producer_id, event.commit)
                self._add_simple_groups()
            case BeginLoad(epoch) if epoch > self.epoch:
                self._forget(turn)
                self.epoch, self.status = epoch, Status.LOADING
            case LoadRecords(epoch, records) if epoch == self.epoch and self.status is Status.LOADING:
                self._load(turn, epoch, records)
            case RestoreHistory(epoch) if epoch == self.epoch and self.status is Status.LOADING:
                history = self.histories[event.group_id] = GroupHistory(self.settings.history_length)
                history.restore(event.rebalances)
            case EndLoad(epoch) if epoch == self.epoch and self.status is Status.LOADING:
                self._loaded(turn)
            case Resign(epoch) if epoch is None or epoch > self.epoch:
                self._forget(turn)
                self.epoch = self.epoch if epoch is None else epoch

    # ---- writes

    def begin_write(self, write: Write, producer_id: int = -1) -> int:
        """It is on its way to the log; what comes of it is told under the token."""
        token = self.next_token
        self.next_token = token + 1
        self.writes[token] = (write, producer_id)
        return token

    def take_written(self, token: int, base_offset: int) -> Write | None:
        """Replays what is durable now; None if it is of a time before the partition moved away."""
        found = self.writes.pop(token, None)
        if found is None:
            return None
        write, producer_id = found
        assert not self.writes or token < next(iter(self.writes)), "writes became durable out of order"
        write.replay(self.durable, base_offset, producer_id)
        return write

    def _written(self, turn: Turn, token: int, base_offset: int) -> None:
        write = self.take_written(token, base_offset)
        if write is not None:
            write.release(turn, ErrorCode.NONE)

    def _failed(self, turn: Turn, token: int, error: ErrorCode) -> None:
        found = self.writes.pop(token, None)
        if found is not None:
            found[0].release(turn, answer_for_append_error(error))

    # ---- timers

    def _timer(self, turn: Turn, event: TimerFired) -> None:
        if event.kind is TimerKind.EXPIRE:
            if event.deadline_ms == self.expire_deadline_ms:
                expiry.expire(turn)
            return
        group = self.groups.get(event.group_id)
        if group is None:
            return
        match event.kind:
            case TimerKind.SESSION:
                rebalance.session_timer_fired(turn, group, event.member_id, event.deadline_ms)
            case TimerKind.JOIN:
                rebalance.join_timer_fired(turn, group, event.deadline_ms)
            case TimerKind.SYNC:
                rebalance.sync_timer_fired(turn, group, event.deadline_ms)

    # ---- load and resign

    def _load(self, turn: Turn, epoch: int, records: Any) -> None:
        apply = self.durable.apply
        try:
            for record in records:
                apply(record)
        except BadRecord as error:
            where = f"__consumer_offsets-{self.partition} offset {record.offset}"
            self._forget(turn)
            turn.effects.append(LoadFailed(epoch, f"{where}: {error}"))

    def _loaded(self, turn: Turn) -> None:
        self.status = Status.ACTIVE
        self.groups = {g: from_record(g, record) for g, record in self.durable.groups.items()}
        self._add_simple_groups()
        self.histories = {g: history for g, history in self.histories.items() if g in self.groups}
        for group in self.groups.values():
            for member in group.members.values():
                turn.renew(group, member)
            if group.members:
                turn.history(group).loaded(sync.assignments_by_name(group))
            size, limit = len(group.members), self.settings.group_max_size
            if size > limit:
                reason = f"loaded with {size} members, more than group.max.size {limit}"
                rebalance.begin(turn, group, rebalance.Cause("", reason))
        expiry.schedule(turn)

    def _add_simple_groups(self) -> None:
        for group_id in self.durable.groups_with_offsets():
            if group_id not in self.groups:
                self.groups[group_id] = Group(group_id)

    def _forget(self, turn: Turn) -> None:
        """Everyone who waits is told to look for the new coordinator."""
        for group in self.groups.values():
            self._answer_parked(turn, group, ErrorCode.NOT_COORDINATOR)
            if group.state is not State.DEAD:
                group.move_to(State.DEAD, turn.now_ms)
        for write, _ in self.writes.values():
            for request, _response in write.answers:
                turn.reply(request.request, refusal(request, ErrorCode.NOT_COORDINATOR))
        self.groups, self.writes, self.histories = {}, {}, {}
        self.durable = Durable()
        self.expire_deadline_ms = None
        self.status = Status.NOT_LOADED

    def _answer_parked(self, turn: Turn, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            turn.answer_join(group, member, JoinResponse(error, member.member_id))
            turn.answer_sync(member, SyncResponse(error))

    # ---- for the request files

    def dissolve(self, turn: Turn, group: Group, error: ErrorCode) -> None:
        """A group that could not be written: it never existed."""
        self._answer_parked(turn, group, error)
        group.members.clear()
        del self.groups[group.group_id]
        self.histories.pop(group.group_id, None)

    def forget_if_unused(self, group: Group) -> None:
        """A simple group whose only commit failed or held nothing was never there."""
        if (
            group.state is State.EMPTY
            and not group.pending_commits
            and not group.pending_joins
            and not self.durable.knows(group.group_id)
            and self.groups.get(group.group_id) is group
            and not any(getattr(write, "group", None) is group for write, _ in self.writes.values())
        ):
            del self.groups[group.group_id]
