"""ModernGroup: the soft part of a live group, and ModernWrite: the records of one step on their way to the log.

A live group is always what `Durable` says, plus the changes that are on their way to the log. If these cannot be
written it becomes what is left: `ModernWrite.settled` calls `revert`, which a room implements. A log that fails a write
fails all later ones, so these count no more either; should one of them be written after all, the group takes it in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kohort.coordinator.effects import Response, SetTimer
from kohort.coordinator.events import ShardRequest, TimerKind
from kohort.coordinator.member_session import MemberSession
from kohort.coordinator.modern.state import Change
from kohort.coordinator.step_context import StepContext, Write
from kohort.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.coordinator.shard import Shard


class ModernGroup:
    """What is not in the log: the sessions of the members, and the writes that are on their way."""

    group_id: str

    def init_soft(self, group_id: str) -> None:
        self.group_id = group_id
        self.sessions: dict[str, MemberSession] = {}
        self.in_flight: list[ModernWrite] = []
        """In the order of the log; an answer that shows what they change waits for the last one."""
        self.refresh_due = True
        """Whether topics may have changed: the next heartbeat compares the hash."""

    def renew(self, step: StepContext, member_id: str, timeout_ms: int) -> None:
        """Starts the session of a member anew, because it was heard of."""
        session = self.sessions.get(member_id)
        if session is None:
            session = self.sessions[member_id] = MemberSession()
        step.renew_session(self, member_id, session, timeout_ms)

    def session_is_over(self, step: StepContext, member_id: str, deadline_ms: int) -> MemberSession | None:
        """Returns the session whose timer fired if it has ended; else its timer is set anew."""
        session = self.sessions.get(member_id)
        if session is None or session.timer_ms != deadline_ms:
            return None
        session.timer_ms = None
        if session.deadline_ms > step.now_ms:
            step.set_session_timer(self, member_id, session)
            return None
        return session

    def set_timer(self, step: StepContext, kind: TimerKind, member_id: str, delay_ms: int) -> int:
        deadline_ms = step.now_ms + delay_ms
        step.effects.append(SetTimer(kind, self.group_id, member_id, deadline_ms))
        return deadline_ms

    def answer(self, step: StepContext, request: ShardRequest, response: Response) -> None:
        """Answers a request when all that the group has written is durable; at once if nothing is on its way."""
        if self.in_flight:
            self.in_flight[-1].answers.append((request, response))
        else:
            step.reply(request.request, response)


@dataclass(slots=True, eq=False)
class ModernWrite(Write):
    """Changes to a group on their way to the log. A room says how they are applied and how they are taken back."""

    group: ModernGroup
    changes: tuple[Change, ...]
    is_doomed: bool = field(default=False, init=False)
    """Whether an earlier write of the group has failed: a log that stops fails this one too."""

    def begin(self, step: StepContext) -> None:
        self.group.in_flight.append(self)
        step.append(self)

    def settled(self, step: StepContext, error: ErrorCode) -> None:
        # The group may have been replaced by another one of its name, or forgotten with its shard.
        if self in self.group.in_flight:
            self.group.in_flight.remove(self)
        if error and not self.is_doomed:
            self._doom_later_ones(step)
        if error or self.is_doomed:
            self.revert(step, error)

    def _doom_later_ones(self, step: StepContext) -> None:
        for write, _ in step.shard.writes.values():
            if isinstance(write, ModernWrite) and write.group.group_id == self.group.group_id:
                write.is_doomed = True
                if write in write.group.in_flight:
                    write.group.in_flight.remove(write)

    def revert(self, step: StepContext, error: ErrorCode) -> None:
        """Makes the live group what Durable says, plus what other writes of it change."""
        raise NotImplementedError


def later_changes(shard: Shard, kind: type[ModernWrite], group_id: str) -> list[Change]:
    """Returns the changes to a group that are still on their way to the log, in order."""
    return [
        change
        for write, _ in shard.writes.values()
        if isinstance(write, kind) and write.group.group_id == group_id and not write.is_doomed
        for change in write.changes
    ]
