"""A model of a group member: it joins, syncs, sends heartbeats, commits; sometimes it leaves, dies or hangs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from kohort.coordinator.commit_layout import CommitLayout, LaidOutOffsets
from kohort.coordinator.effects import (
    CommitResponse,
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    Response,
    SyncResponse,
)
from kohort.coordinator.events import (
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    OffsetCommit,
    OffsetToCommit,
    SyncGroup,
    Token,
)
from kohort.sim.faults import FaultRates
from kohort.sim.invariants import require
from kohort.sim.world import SimulatedNetwork, VirtualClock
from kohort.wire.errors import ErrorCode

E = ErrorCode
RETRY_MS = 100
FULL_MS = 5_000
HEARTBEAT_MS = 2_000


@dataclass(slots=True)
class Ledger:
    """What leaders assigned, and a counter that makes every commit and subscription unique."""

    given: dict[tuple[str, int], list[dict[str, bytes]]] = field(default_factory=dict)
    """(group, generation) -> what its leaders assigned to each member.

    There are several leaders if a generation was begun twice: as in Kafka it is in the log only when a leader has
    assigned. After a crash a late request of the first leader may be taken for that of the second, and then members
    that have joined since are assigned nothing.
    """
    counter: int = 0
    stable: int = 0

    def next(self) -> int:
        self.counter += 1
        return self.counter


class MemberLayouts:
    """The layouts of one member's commits in one generation, as a broker learns them from its requests.

    One layout has partitions that nobody else commits, as it should be; the others are of any member.
    """

    def __init__(self, group_id: str, number: int) -> None:
        keys = [[number * 10 + n for n in range(3, 6)], [0, 1, 2], [1, 2]]
        self._layouts = [
            CommitLayout(group_id, [OffsetToCommit("t", partition, 0) for partition in partitions])
            for partitions in keys
        ]

    def chosen(self, random: Random) -> CommitLayout:
        return random.choice((self._layouts[0], *self._layouts))


@dataclass(slots=True)
class SimMember:
    """One model member."""

    number: int
    group_id: str
    group_instance_id: str | None
    clock: VirtualClock
    random: Random
    network: SimulatedNetwork
    ledger: Ledger
    faults: FaultRates
    session_timeout_ms: int
    rebalance_timeout_ms: int
    stuck: str = ""
    """What it never does, though it sends heartbeats: `sync`, or `join` again."""
    recovers: bool = False
    """Whether it behaves once it was removed from the group, as in the calm."""
    alive: bool = True
    silent_until_ms: int = 0
    member_id: str = ""
    generation_id: int = -1
    joined_ms: int = 0
    """When it was last told a generation."""
    stable: bool = False
    assignment: bytes = b""
    subscription: bytes = b""
    life: int = 0
    """Counts attempts: an answer to an earlier one is ignored."""
    layouts: MemberLayouts | None = None
    layouts_of: tuple[str, int] = ("", -1)
    """The member id and the generation that `layouts` are of."""

    @property
    def name(self) -> str:
        return f"member{self.number}"

    # ---- membership

    def join(self) -> None:
        if not self.alive:
            return
        self.stable = False
        self.life += 1
        session, rebalance = self.session_timeout_ms, self.rebalance_timeout_ms
        protocols = (("range", self.subscription), ("sticky", self.subscription))
        member_id, instance = self.member_id, self.group_instance_id

        def make(token: Token) -> GroupRequest:
            uuid = str(self.ledger.next())
            return JoinGroup(
                token, self.group_id, member_id, "consumer", protocols, session, rebalance, uuid, instance,
                self.name, "/sim", reason=None,
            )  # fmt: skip

        self._ask(make, self._joined, rebalance + 5_000)

    def _joined(self, response: Any) -> None:
        assert isinstance(response, JoinResponse)
        match response.error:
            case E.NONE:
                require(response.member_id != "", f"{self.name} joined without an id")
                self.member_id, self.generation_id = response.member_id, response.generation_id
                self.joined_ms = self.clock.now_ms
                self._heartbeat_later(self.life)
                if self.stuck != "sync":
                    self._sync(response)
            case E.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                self.join()
            case E.UNKNOWN_MEMBER_ID:
                self._start_over()
            case E.FENCED_INSTANCE_ID:
                self.alive = False
            case E.GROUP_MAX_SIZE_REACHED:
                self.member_id = ""
                self._later(self.join, FULL_MS)
            case _:
                self._later(self.join)

    def _sync(self, joined: JoinResponse) -> None:
        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == joined.member_id and not joined.skip_assignment:
            stamp = self.ledger.next()
            assignments = tuple((m.member_id, f"{stamp} {m.member_id}".encode()) for m in joined.members)
            of_generation = self.ledger.given.setdefault((self.group_id, joined.generation_id), [])
            of_generation.append(dict(assignments))
        generation, member_id, instance = self.generation_id, self.member_id, self.group_instance_id

        def make(token: Token) -> GroupRequest:
            return SyncGroup(token, self.group_id, member_id, generation, assignments, instance)

        self._ask(make, self._synced, self.rebalance_timeout_ms + 5_000)

    def _synced(self, response: Any) -> None:
        assert isinstance(response, SyncResponse)
        match response.error:
            case E.NONE:
                self.stable, self.assignment = True, response.assignment
                self.ledger.stable += 1
                self._check_assignment()
            case E.UNKNOWN_MEMBER_ID | E.ILLEGAL_GENERATION:
                self._start_over()
            case E.FENCED_INSTANCE_ID:
                self.alive = False
            case _:
                self._later(self.join)

    def _check_assignment(self) -> None:
        """Checks the assignment; a static member that came back has what its instance had under the earlier id."""
        given: set[bytes] = set()
        for assigned in self.ledger.given.get((self.group_id, self.generation_id), []):
            if self.group_instance_id is None:
                own = {assigned[self.member_id]} if self.member_id in assigned else set()
            else:
                own = {d for m, d in assigned.items() if m.startswith(f"{self.group_instance_id}-")}
            given |= own or {b""}
        require(
            self.assignment in given,
            f"{self.name} of {self.group_id} got {self.assignment!r} in generation {self.generation_id}, "
            f"its leader gave {given}",
        )

    def _heartbeat_later(self, life: int) -> None:
        self.clock.after(HEARTBEAT_MS, lambda: self._heartbeat(life))

    def _heartbeat(self, life: int) -> None:
        if life != self.life or not self.alive:
            return
        if self.clock.now_ms < self.silent_until_ms:
            self._heartbeat_later(life)
            return
        generation, member_id, instance = self.generation_id, self.member_id, self.group_instance_id

        def answered(response: Response | None) -> None:
            if life != self.life or not self.alive:
                return
            error = response.error if isinstance(response, HeartbeatResponse) else E.NETWORK_EXCEPTION
            match error:
                case E.REBALANCE_IN_PROGRESS if self.stuck != "join":
                    self.join()
                case E.UNKNOWN_MEMBER_ID | E.ILLEGAL_GENERATION:
                    self._start_over()
                case E.FENCED_INSTANCE_ID:
                    self.alive = False

        self.network.send(
            lambda token: Heartbeat(token, self.group_id, member_id, generation, instance), answered
        )
        self._heartbeat_later(life)

    # ---- what it does as a member

    def commit(self) -> None:
        """Commits once, or some times in a row and then mostly in one layout."""
        ways = self.network.node.ways
        now = (self.member_id, self.generation_id)
        if self.layouts is None or self.layouts_of != now:
            self.layouts, self.layouts_of = MemberLayouts(self.group_id, self.number), now
        layout = self.layouts.chosen(ways.random)
        for delay_ms in ways.burst():
            if delay_ms:
                self.clock.after(delay_ms, partial(self._commit, layout))
            else:
                self._commit(layout)

    def _commit(self, layout: CommitLayout) -> None:
        if not (self.alive and self.stable):
            return
        offsets: Sequence[OffsetToCommit]
        if self.network.node.ways.chosen():
            offsets = LaidOutOffsets(layout, tuple(self.ledger.next() for _ in layout.keys))
        else:
            offsets = (OffsetToCommit("t", self.random.randint(0, 2), self.ledger.next()),)
        generation, member_id, instance = self.generation_id, self.member_id, self.group_instance_id
        life = self.life

        def answered(response: Response | None) -> None:
            if life == self.life and isinstance(response, CommitResponse):
                error = response.errors[0]
                if error is E.REBALANCE_IN_PROGRESS:
                    self.join()
                elif error in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION):
                    self._start_over()

        self.network.send(
            lambda token: OffsetCommit(token, self.group_id, offsets, generation, member_id, instance),
            answered,
        )

    def churn(self) -> None:
        """Does one of the things that make groups rebalance."""
        match self.random.randrange(6):
            case 0:
                self._leave()
            case 1:
                self._die()
            case 2:
                self.subscription = f"topics {self.ledger.next()}".encode()
                self.join()
            case 3:
                self.silent_until_ms = self.clock.now_ms + self.session_timeout_ms * 2
            case 4:
                self.join()
            case _:
                if self.group_instance_id is not None:
                    self.member_id = ""
                    self.join()

    def _leave(self) -> None:
        leaver = Leaver(self.member_id, self.group_instance_id, "the sim says so")
        if self.member_id:
            self.network.send(
                lambda token: LeaveGroup(token, self.group_id, (leaver,)),
                lambda response: require(
                    response is None or isinstance(response, LeaveResponse),
                    f"an answer to a leave: {response}",
                ),
            )
        self._die()

    def _die(self) -> None:
        """Dies without a leave; another one starts in its place after a while."""
        self.life += 1
        self.stable = False
        self.member_id = ""
        stuck = not self.recovers and self.random.random() < self.faults.stuck
        self.stuck = self.random.choice(("sync", "join")) if stuck else ""
        self.silent_until_ms = 0
        self._later(self.join, self.random.randint(100, 15_000))

    # ---- plumbing

    def _start_over(self) -> None:
        self.member_id, self.generation_id = "", -1
        self.stuck = "" if self.recovers else self.stuck
        self._later(self.join)

    def _later(self, action: Callable[[], None], delay_ms: int = RETRY_MS) -> None:
        self.stable = False
        self.life += 1
        life = self.life
        self.clock.after(delay_ms, lambda: action() if life == self.life else None)

    def _ask(
        self, make: Callable[[Token], GroupRequest], then: Callable[[Any], None], timeout_ms: int
    ) -> None:
        """Sends a request; without an answer in time, or with a broken connection, the member joins again."""
        life = self.life
        waiting = True

        def answered(response: Response | None) -> None:
            nonlocal waiting
            if not waiting or life != self.life or not self.alive:
                return
            waiting = False
            if response is None:
                self._later(self.join)
            else:
                then(response)

        self.network.send(make, answered)
        self.clock.after(timeout_ms, lambda: answered(None))
