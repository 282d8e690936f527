"""The groups of one partition of `__consumer_offsets`.

`step(event, now_ms)` takes any event, changes the soft state and returns the effects that must follow. Nearly all
requests of a running group are heartbeats that move a deadline, and commits that differ from the one before in their
offsets alone. These may take a short way, which needs no event and no effects:

- `heartbeat_in_time` and `consumer_heartbeat_in_time` answer a heartbeat.
- `commit_at_once` answers a commit if the log makes a write durable at once.
- `begin_commit` and `settle_commit` enclose the write of a commit if the log needs time for it.

A short way does exactly what `step` would do with the event, or it does nothing and returns None; then the caller
must hand the event to `step`. Nothing else changes a shard. Property tests compare the ways, and the simulator takes
either of them by its seed.

Durable state changes only when a write has become durable, through the `apply` methods of `Durable` on every way; the
same methods build it on load. A shard that has lost its partition answers everyone who waits and forgets all.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from kohort.coordinator import expiry, offsets
from kohort.coordinator.classic import describe, heartbeat, rebalance, sync
from kohort.coordinator.classic.group import Group, from_record
from kohort.coordinator.classic.state import GroupState, answer_for_append_error
from kohort.coordinator.commit_layout import CommitLayout, LaidOutOffsets, LaidOutRecords
from kohort.coordinator.consumer import classic_members
from kohort.coordinator.consumer import describe as consumer_describe
from kohort.coordinator.consumer import heartbeat as consumer_heartbeat
from kohort.coordinator.consumer import timers as consumer_timers
from kohort.coordinator.consumer.group import ConsumerGroup
from kohort.coordinator.effects import (
    CommitResponse,
    Effect,
    HeartbeatResponse,
    JoinResponse,
    ListResponse,
    LoadFailed,
    Response,
    SyncResponse,
    refusal,
)
from kohort.coordinator.events import (
    AlterSharePartitions,
    BeginLoad,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeShareGroup,
    DurableWritten,
    EndLoad,
    Event,
    FinishShareDeletion,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListSharePartitions,
    LoadRecords,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RebalanceAsked,
    Resign,
    RestoreHistory,
    SessionEnded,
    ShardRequest,
    ShareGroupHeartbeat,
    ShareStateInitialized,
    SyncGroup,
    TimerFired,
    TimerKind,
    TopicsChanged,
    TopicsDeleted,
    TxnMarker,
    TxnOffsetCommit,
    WriteFailed,
)
from kohort.coordinator.group_config import DEFAULT_GROUP_CONFIG, GroupConfig, GroupConfigOf
from kohort.coordinator.history import GroupHistory
from kohort.coordinator.modern.topics import NoTopics
from kohort.coordinator.offsets import LaidOutCommitWrite, begin_laid_out, commit_in_time
from kohort.coordinator.records import fits
from kohort.coordinator.replay import Durable
from kohort.coordinator.settings import Settings
from kohort.coordinator.share import admin as share_admin
from kohort.coordinator.share import heartbeat as share_heartbeat
from kohort.coordinator.share.group import ShareGroup
from kohort.coordinator.step_context import StepContext, Write
from kohort.coordinator.topic_catalog import TopicCatalog
from kohort.wire.errors import BadRecord, ErrorCode, KafkaError

WriteAtOnce = Callable[[int, LaidOutRecords, int], int]
"""write(partition, records, now_ms) returns the base offset of records that are durable then, or raises KafkaError."""


def _default_config_of(group_id: str) -> GroupConfig:
    return DEFAULT_GROUP_CONFIG


class ShardStatus(Enum):
    NOT_LOADED = "not loaded"
    LOADING = "loading"
    ACTIVE = "active"


_ACTIVE: Final = ShardStatus.ACTIVE  # a member of an Enum takes as long to look up as a call

_REFUSALS: Final = {
    ShardStatus.NOT_LOADED: ErrorCode.NOT_COORDINATOR,
    ShardStatus.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_REQUESTS: Final[dict[type, Callable[[StepContext, Any], None]]] = {
    JoinGroup: classic_members.join_group,
    SyncGroup: classic_members.sync_group,
    Heartbeat: classic_members.heartbeat,
    LeaveGroup: classic_members.leave_group,
    OffsetCommit: offsets.commit_offsets,
    TxnOffsetCommit: offsets.commit_offsets_in_transaction,
    OffsetFetch: offsets.fetch_offsets,
    OffsetDelete: offsets.delete_offsets,
    DescribeGroup: describe.describe_group,
    ListGroups: describe.list_groups,
    DeleteGroup: expiry.delete_group,
    ConsumerGroupHeartbeat: consumer_heartbeat.consumer_heartbeat,
    DescribeConsumerGroup: consumer_describe.describe_consumer_group,
    ShareGroupHeartbeat: share_heartbeat.share_heartbeat,
    DescribeShareGroup: share_admin.describe_share_group,
    ListSharePartitions: share_admin.list_share_partitions,
    AlterSharePartitions: share_admin.alter_share_partitions,
}
# What a share group answers to requests that are for groups of other types; those about all groups are not here.
_NOT_FOR_SHARE_GROUPS: Final[dict[type, ErrorCode]] = {
    JoinGroup: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    SyncGroup: ErrorCode.UNKNOWN_MEMBER_ID,
    Heartbeat: ErrorCode.UNKNOWN_MEMBER_ID,
    LeaveGroup: ErrorCode.UNKNOWN_MEMBER_ID,
    OffsetCommit: ErrorCode.GROUP_ID_NOT_FOUND,
    TxnOffsetCommit: ErrorCode.GROUP_ID_NOT_FOUND,
    OffsetDelete: ErrorCode.GROUP_ID_NOT_FOUND,
    ConsumerGroupHeartbeat: ErrorCode.GROUP_ID_NOT_FOUND,
}
_MAY_HAVE_NO_GROUP_ID: Final = (
    OffsetCommit,
    OffsetFetch,
    DescribeGroup,
    DescribeConsumerGroup,
    DescribeShareGroup,
    DeleteGroup,
)


def _has_good_group_id(request: ShardRequest) -> bool:
    if isinstance(request, ListGroups):
        return True
    if request.group_id:
        return fits(request.group_id)
    return request.group_id is not None and isinstance(request, _MAY_HAVE_NO_GROUP_ID)


class Shard:
    """The groups of one partition; only `step` and the short ways change them."""

    def __init__(
        self,
        partition: int,
        settings: Settings,
        topics: TopicCatalog | None = None,
        config_of: GroupConfigOf | None = None,
    ) -> None:
        self.partition = partition
        self.settings = settings
        self.topics: TopicCatalog = topics or NoTopics()
        self.config_of: GroupConfigOf = config_of or _default_config_of
        self.status = ShardStatus.NOT_LOADED
        self.epoch = -1
        self.durable = Durable()
        self.groups: dict[str, Group] = {}
        """The classic groups, and those that only hold offsets."""
        self.share_groups: dict[str, ShareGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        """The groups of KIP-848; an id is in one of the three."""
        self.histories: dict[str, GroupHistory] = {}
        self.writes: dict[int, tuple[Write, int]] = {}
        """Token -> a write that is on its way to the log, with the producer id; in order."""
        self.next_token = 0
        self.expire_deadline_ms: int | None = None
        self.expired_offsets = self.expired_groups = 0

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        step = StepContext(self, now_ms)
        handle = _REQUESTS.get(type(event))
        if handle is not None:
            self._request(step, handle, event)  # type: ignore[arg-type]
        else:
            self._other(step, event)
        return step.effects

    def _request(
        self, step: StepContext, handle: Callable[[StepContext, Any], None], request: ShardRequest
    ) -> None:
        if not _has_good_group_id(request):
            step.refuse(request, ErrorCode.INVALID_GROUP_ID)
        elif self.share_groups and (refused := self._of_share_group(request)) is not None:
            step.refuse(request, refused)
        elif self.status is _ACTIVE:
            handle(step, request)
        else:
            self._refuse(step, request, _REFUSALS[self.status])

    def _of_share_group(self, request: ShardRequest) -> ErrorCode | None:
        """Returns how a share group refuses a request that is not for groups of its type; None if it does not."""
        if isinstance(request, ListGroups) or request.group_id not in self.share_groups:
            return None
        return _NOT_FOR_SHARE_GROUPS.get(type(request))

    def _refuse(self, step: StepContext, request: ShardRequest, error: ErrorCode) -> None:
        """Refuses a request; older clients do not expect to hear of loading in answer to Heartbeat and SyncGroup."""
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and isinstance(request, Heartbeat):
            step.reply(request.request, HeartbeatResponse(ErrorCode.NONE))
        elif error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and isinstance(request, SyncGroup):
            step.refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)
        elif error is ErrorCode.NOT_COORDINATOR and isinstance(request, ListGroups):
            step.reply(request.request, ListResponse(ErrorCode.NONE))
        else:
            step.refuse(request, error)

    def _other(self, step: StepContext, event: Event) -> None:
        if isinstance(event, DurableWritten):  # first, and no pattern: nearly all other events are these
            self._written(step, event.token, event.base_offset)
            return
        match event:
            case WriteFailed(token, error):
                self._failed(step, token, error)
            case TimerFired():
                self._timer(step, event)
            case RebalanceAsked() | SessionEnded():
                self._asked(step, event)
            case TopicsChanged() | ShareStateInitialized() | FinishShareDeletion():
                self._outside_changed(step, event)
            case TopicsDeleted() if self.status is ShardStatus.ACTIVE:
                expiry.topics_deleted(step, event)
            case TxnMarker() if self.status is ShardStatus.ACTIVE:
                self.durable.end_transaction(event.producer_id, event.commit)
                self._add_simple_groups()
            case BeginLoad(epoch) if epoch > self.epoch:
                self._forget(step)
                self.epoch, self.status = epoch, ShardStatus.LOADING
            case LoadRecords(epoch, records) if epoch == self.epoch and self.status is ShardStatus.LOADING:
                self._load(step, epoch, records)
            case RestoreHistory(epoch) if epoch == self.epoch and self.status is ShardStatus.LOADING:
                history = self.histories[event.group_id] = GroupHistory(self.settings.history_length)
                history.restore(event.rebalances)
            case EndLoad(epoch) if epoch == self.epoch and self.status is ShardStatus.LOADING:
                self._loaded(step)
            case Resign(epoch) if epoch is None or epoch > self.epoch:
                self._forget(step)
                self.epoch = self.epoch if epoch is None else epoch

    def _outside_changed(
        self, step: StepContext, event: TopicsChanged | ShareStateInitialized | FinishShareDeletion
    ) -> None:
        if self.status is not ShardStatus.ACTIVE:
            return
        if isinstance(event, TopicsChanged):
            consumer_timers.topics_changed(step, event)
            share_admin.share_topics_changed(step, event)
        else:
            share_admin.state_changed(step, event)

    def _asked(self, step: StepContext, event: RebalanceAsked | SessionEnded) -> None:
        consumer_group = self.consumer_groups.get(event.group_id)
        group = self.groups.get(event.group_id)
        match event:
            case SessionEnded(_, member_id) if consumer_group is not None:
                consumer_timers.end_session(step, consumer_group, member_id)
            case SessionEnded(_, member_id) if group is not None:
                rebalance.end_session(step, group, member_id)
            case RebalanceAsked(_, reason) if consumer_group is not None:
                consumer_timers.asked_to_rebalance(step, consumer_group, reason)
            case RebalanceAsked(_, reason) if group is not None:
                rebalance.asked_for(step, group, reason)

    # ---- the short ways

    def heartbeat_in_time(
        self, group_id: str, member_id: str, generation_id: int, now_ms: int
    ) -> ErrorCode | None:
        """Answers a heartbeat of a dynamic member if it only moves a deadline; None if it needs a `step`."""
        group = self.groups.get(group_id)
        if group is None or self.status is not _ACTIVE:
            return None
        return heartbeat.in_time(group, member_id, generation_id, now_ms)

    def consumer_heartbeat_in_time(
        self,
        group_id: str,
        member_id: str,
        member_epoch: int,
        instance_id: str | None,
        client: tuple[str, str],
        now_ms: int,
    ) -> int | None:
        """Answers a heartbeat of KIP-848 without other fields if it only moves a deadline.

        Returns the heartbeat interval for the answer, which has the member's id and epoch and no assignment; None if
        the heartbeat needs a `step`. `client` is the id and the host of the client.
        """
        group = self.consumer_groups.get(group_id)
        if group is None or self.status is not _ACTIVE:
            return None
        config = self.config_of(group_id)
        timeout_ms, refresh_ms = (
            config.consumer_session_timeout_ms,
            self.settings.group_consumer_regex_refresh_interval_ms,
        )
        if not consumer_heartbeat.in_time(
            group, member_id, member_epoch, instance_id, client, timeout_ms, refresh_ms, now_ms
        ):
            return None
        return config.consumer_heartbeat_interval_ms

    def commit_at_once(
        self,
        layout: CommitLayout,
        offsets: tuple[int, ...],
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        now_ms: int,
        write: WriteAtOnce,
    ) -> CommitResponse | None:
        """Writes and answers a commit in the layout of the commit before; None if it needs a `step`.

        It does not overtake a write that is on its way to the log.
        """
        if self.status is not _ACTIVE or self.writes:
            return None
        merged = commit_in_time(self, layout, generation_id, member_id, group_instance_id, now_ms)
        if merged is None:
            return None
        records = LaidOutRecords(layout, offsets, now_ms)
        try:
            base_offset = write(self.partition, records, now_ms)
        except KafkaError as error:
            return CommitResponse((answer_for_append_error(error.code),) * len(offsets))
        self.durable.apply_laid_out(records, base_offset, merged)
        return layout.accepted

    def begin_commit(self, request: OffsetCommit, now_ms: int) -> tuple[int, LaidOutRecords] | None:
        """Returns the token and the records of a commit in the layout of the one before; None if it needs a `step`.

        The caller writes the records. It ends the commit by `settle_commit` or by the event `DurableWritten` when they
        are durable, and by `WriteFailed` when they are not written.
        """
        offsets = request.offsets
        if self.status is not _ACTIVE or request.retention_time_ms != -1:
            return None
        assert isinstance(offsets, LaidOutOffsets)
        layout = offsets.layout
        merged = commit_in_time(
            self, layout, request.generation_id, request.member_id, request.group_instance_id, now_ms
        )
        if merged is None:
            return None
        group = self.group_with_offsets(layout.group_id)
        assert group is not None
        return begin_laid_out(self, group, request, offsets, now_ms)

    def settle_commit(self, token: int, base_offset: int) -> tuple[ShardRequest, Response] | None:
        """Makes a commit of `begin_commit` visible, and returns its request and the response.

        None if the shard has lost its partition meanwhile: then the request has been answered.
        """
        write = self._take_written(token, base_offset)
        if write is None:
            return None
        assert isinstance(write, LaidOutCommitWrite)
        write.settled_in(self, ErrorCode.NONE)
        return write.answers[0]

    # ---- writes

    def begin_write(self, write: Write, producer_id: int = -1) -> int:
        """Remembers a write that is on its way to the log; its outcome is told under the returned token."""
        token = self.next_token
        self.next_token = token + 1
        self.writes[token] = (write, producer_id)
        return token

    def _take_written(self, token: int, base_offset: int) -> Write | None:
        """Replays a write that is durable now; None if it was begun before the partition moved away."""
        found = self.writes.pop(token, None)
        if found is None:
            return None
        write, producer_id = found
        assert not self.writes or token < next(iter(self.writes)), "writes became durable out of order"
        write.replay(self.durable, base_offset, producer_id)
        return write

    def _written(self, step: StepContext, token: int, base_offset: int) -> None:
        write = self._take_written(token, base_offset)
        if write is not None:
            write.release(step, ErrorCode.NONE)

    def _failed(self, step: StepContext, token: int, error: ErrorCode) -> None:
        found = self.writes.pop(token, None)
        if found is not None:
            found[0].release(step, answer_for_append_error(error))

    # ---- timers

    def _timer(self, step: StepContext, event: TimerFired) -> None:
        if event.kind is TimerKind.EXPIRE:
            if event.deadline_ms == self.expire_deadline_ms:
                expiry.expire(step)
            return
        share_group = self.share_groups.get(event.group_id)
        if share_group is not None:
            share_admin.share_timer_fired(step, share_group, event)
            return
        consumer_group = self.consumer_groups.get(event.group_id)
        if consumer_group is not None:
            consumer_timers.timer_fired(step, consumer_group, event)
            return
        group = self.groups.get(event.group_id)
        if group is None:
            return
        match event.kind:
            case TimerKind.SESSION:
                rebalance.session_timer_fired(step, group, event.member_id, event.deadline_ms)
            case TimerKind.JOIN:
                rebalance.join_timer_fired(step, group, event.deadline_ms)
            case TimerKind.SYNC:
                rebalance.sync_timer_fired(step, group, event.deadline_ms)

    # ---- load and resign

    def _load(self, step: StepContext, epoch: int, records: Any) -> None:
        apply = self.durable.apply
        try:
            for record in records:
                apply(record)
        except BadRecord as error:
            where = f"__consumer_offsets-{self.partition} offset {record.offset}"
            self._forget(step)
            step.effects.append(LoadFailed(epoch, f"{where}: {error}"))

    def _loaded(self, step: StepContext) -> None:
        self.status = ShardStatus.ACTIVE
        self.consumer_groups = consumer_timers.loaded(step)
        self.share_groups = share_admin.share_groups_loaded(step)
        self.groups = {
            group_id: from_record(group_id, record)
            for group_id, record in self.durable.groups.items()
            if group_id not in self.consumer_groups
        }
        self._add_simple_groups()
        known = self.groups.keys() | self.consumer_groups.keys() | self.share_groups.keys()
        self.histories = {g: history for g, history in self.histories.items() if g in known}
        for group in self.groups.values():
            for member in group.members.values():
                step.renew(group, member)
            if group.members:
                step.history(group).loaded(sync.assignments_by_name(group))
            size, limit = len(group.members), self.settings.group_max_size
            if size > limit:
                reason = f"loaded with {size} members, more than group.max.size {limit}"
                rebalance.begin(step, group, rebalance.Cause("", reason))
        expiry.schedule(step)

    def _add_simple_groups(self) -> None:
        for group_id in self.durable.groups_with_offsets():
            if group_id not in self.groups and group_id not in self.consumer_groups:
                self.groups[group_id] = Group(group_id)

    def _forget(self, step: StepContext) -> None:
        """Tells everyone who waits to look for the new coordinator, and forgets all groups."""
        for group in self.groups.values():
            self.answer_parked(step, group, ErrorCode.NOT_COORDINATOR)
            if group.state is not GroupState.DEAD:
                group.move_to(GroupState.DEAD, step.now_ms)
        for write, _ in self.writes.values():
            for request, _response in write.answers:
                step.reply(request.request, refusal(request, ErrorCode.NOT_COORDINATOR))
        self.groups, self.consumer_groups, self.share_groups = {}, {}, {}
        self.writes, self.histories = {}, {}
        self.durable = Durable()
        self.expire_deadline_ms = None
        self.status = ShardStatus.NOT_LOADED

    def answer_parked(self, step: StepContext, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            step.answer_join(group, member, JoinResponse(error, member.member_id))
            step.answer_sync(member, SyncResponse(error))

    # ---- for the request files

    def dissolve(self, step: StepContext, group: Group, error: ErrorCode) -> None:
        """Removes a group that could not be written, as if it had never existed."""
        self.answer_parked(step, group, error)
        group.members.clear()
        del self.groups[group.group_id]
        self.histories.pop(group.group_id, None)

    def group_with_offsets(self, group_id: str) -> Group | ConsumerGroup | None:
        """Returns a group of a type that has offsets."""
        return self.groups.get(group_id) or self.consumer_groups.get(group_id)

    def groups_with_offsets(self) -> list[Group | ConsumerGroup]:
        return [*self.groups.values(), *self.consumer_groups.values()]

    def forget_if_unused(self, group: Group | ConsumerGroup) -> None:
        """Removes a simple group whose only commit failed or held nothing, as if it had never existed."""
        if (
            isinstance(group, Group)
            and group.state is GroupState.EMPTY
            and not group.pending_commits
            and not group.pending_joins
            and not self.durable.knows(group.group_id)
            and self.groups.get(group.group_id) is group
            and not any(getattr(write, "group", None) is group for write, _ in self.writes.values())
        ):
            del self.groups[group.group_id]
