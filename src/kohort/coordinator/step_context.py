"""The context of one step: what the handlers use to reply, to write, to set timers and to keep the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kohort.coordinator.classic.group import Group, Member
from kohort.coordinator.effects import (
    Append,
    Effect,
    HistoryChanged,
    JoinResponse,
    RecordToWrite,
    Reply,
    Response,
    SetTimer,
    SyncResponse,
    refusal,
)
from kohort.coordinator.events import LogRecord, ShardRequest, TimerKind, Token
from kohort.coordinator.history import GroupHistory
from kohort.coordinator.member_session import MemberSession
from kohort.coordinator.replay import Durable
from kohort.coordinator.settings import Settings
from kohort.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.coordinator.shard import Shard


@dataclass(slots=True)
class Write:
    """Records on their way to the log, and the requests that are answered once they are durable."""

    records: Sequence[RecordToWrite]
    answers: list[tuple[ShardRequest, Response]]

    def replay(self, durable: Durable, base_offset: int, producer_id: int) -> None:
        """Applies the records, which are durable now."""
        for number, record in enumerate(self.records):
            durable.apply(LogRecord(base_offset + number, record.key, record.value, producer_id))

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        """Does what must follow: the records are durable and replayed (NONE), or were not written."""

    def release(self, step: StepContext, error: ErrorCode) -> None:
        self.settled(step, error)
        for request, response in self.answers:
            step.reply(request.request, response if not error else refusal(request, error))


class AnyGroup(Protocol):
    """A group of any type."""

    @property
    def group_id(self) -> str: ...


class StepContext:
    """The shard, the time and the effects of one step."""

    __slots__ = ("effects", "now_ms", "shard")

    def __init__(self, shard: Shard, now_ms: int) -> None:
        self.shard = shard
        self.now_ms = now_ms
        self.effects: list[Effect] = []

    @property
    def settings(self) -> Settings:
        return self.shard.settings

    def reply(self, request: Token, response: Response) -> None:
        self.effects.append(Reply(request, response))

    def refuse(self, request: ShardRequest, error: ErrorCode) -> None:
        self.effects.append(Reply(request.request, refusal(request, error)))

    def append(
        self, write: Write, producer_id: int = -1, producer_epoch: int = -1, verification: object = None
    ) -> None:
        token = self.shard.begin_write(write, producer_id)
        self.effects.append(Append(token, write.records, producer_id, producer_epoch, verification))

    def reply_when_written(self, request: ShardRequest, response: Response, *, before: int) -> None:
        """Answers when the last write of this step is durable; at once if there was none since token `before`."""
        if self.shard.next_token > before:
            self.shard.writes[self.shard.next_token - 1][0].answers.append((request, response))
        else:
            self.reply(request.request, response)

    # ---- timers

    def set_join_timer(self, group: Group, delay_ms: int) -> None:
        group.join_deadline_ms = self.now_ms + delay_ms
        self.effects.append(SetTimer(TimerKind.JOIN, group.group_id, "", group.join_deadline_ms))

    def set_sync_timer(self, group: Group) -> None:
        group.sync_deadline_ms = self.now_ms + group.rebalance_timeout_ms
        self.effects.append(SetTimer(TimerKind.SYNC, group.group_id, "", group.sync_deadline_ms))

    def renew(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Starts the session of a member anew, because the member was heard of."""
        self.renew_session(group, member.member_id, member.session, timeout_ms or member.session_timeout_ms)

    def renew_session(self, group: AnyGroup, member_id: str, session: MemberSession, timeout_ms: int) -> None:
        if not session.moved(self.now_ms, timeout_ms):
            session.heard_ms, session.deadline_ms = self.now_ms, self.now_ms + timeout_ms
            self.set_session_timer(group, member_id, session)

    def set_session_timer(self, group: AnyGroup, member_id: str, session: MemberSession) -> None:
        session.timer_ms = session.deadline_ms
        self.effects.append(SetTimer(TimerKind.SESSION, group.group_id, member_id, session.deadline_ms))

    # ---- parked requests

    def park_join(self, group: Group, member: Member, request: Token) -> None:
        """Parks a join; an earlier one of the same member is told to come again."""
        if member.awaiting_join is not None:
            self.answer_join(group, member, JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.awaiting_join = request
        group.awaiting_joins += 1

    def answer_join(self, group: Group, member: Member, response: JoinResponse) -> bool:
        if member.awaiting_join is None:
            return False
        self.reply(member.awaiting_join, response)
        member.awaiting_join = None
        group.awaiting_joins -= 1
        return True

    def answer_sync(self, member: Member, response: SyncResponse) -> bool:
        if member.awaiting_sync is None:
            return False
        self.reply(member.awaiting_sync, response)
        member.awaiting_sync = None
        return True

    # ---- history

    def history(self, group: AnyGroup) -> GroupHistory:
        found = self.shard.histories.get(group.group_id)
        if found is None:
            found = GroupHistory(self.settings.history_length)
            self.shard.histories[group.group_id] = found
        return found

    def tell(self, group: AnyGroup) -> None:
        """Passes on the newest version of the group's current rebalance."""
        rebalance = self.history(group).latest
        if rebalance is not None:
            self.effects.append(HistoryChanged(group.group_id, rebalance))
