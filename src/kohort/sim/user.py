"""The user of a consumer: how they poll, work and commit, and what they do wrong."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from kohort.client.errors import (
    CommitFailed,
    FencedInstanceId,
    RebalanceInProgress,
    RetriableCommitFailed,
    TimedOut,
)
from kohort.client.group.rebalance_listener import RebalanceListener
from kohort.client.records import Records
from kohort.client.types import TopicPartition
from kohort.sim.driver import Program, Work
from kohort.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.sim.consumer import SimConsumer

COMMIT_MS = 8_000
CLOSE_MS = 10_000
STYLES = ("auto", "sync", "async", "revoke")


class UsersOwn(Exception):
    """Raised by a callback of the user."""


@dataclass(slots=True)
class User:
    """The program of one user; with `calm` it behaves."""

    consumer: SimConsumer
    random: Random
    style: str
    topics: list[str]
    bad_callbacks: float
    is_slow: bool = False
    """Whether it polls one record at a time, and always has more than it can do."""
    calm: bool = False
    stopping: bool = False
    rebalance: bool = False
    nap_ms: int = 0
    """How long to work once."""
    subscribed: tuple[str, ...] = ()
    uncommitted: bool = False
    fenced: bool = False
    refused: bool = False
    """Whether the group refused it because of its assignors."""
    raised: bool = False

    def program(self) -> Program[None]:
        calls, run = self.consumer.calls, self.consumer.driver.run
        yield from self._subscribe()
        while not (self.stopping or self.fenced):
            try:
                polled = yield from self.consumer.poll(self.random.randint(0, 2_000))
            except UsersOwn:
                self.raised = False
                continue
            except FencedInstanceId:
                self.fenced = True
                break
            except KafkaError as error:
                if error.code is not ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                    raise
                self.refused = True
                continue
            self.consumer.require(not self.raised, "a callback raised, and poll did not")
            yield from self._process(polled)
            yield from self._commit_some()
            if self.rebalance:
                self.rebalance = False
                yield from run(calls.enforce_rebalance("the sim says so"))
            if tuple(self.topics) != self.subscribed:
                yield from self._subscribe()
        with suppress(UsersOwn, FencedInstanceId):
            yield from self.consumer.bounded(calls.close(self._now() + CLOSE_MS), CLOSE_MS, "close")

    def _now(self) -> int:
        return self.consumer.driver.clock.now_ms

    def _subscribe(self) -> Program[None]:
        self.subscribed = tuple(self.topics)
        listener = RebalanceListener(self._on_assigned, self._on_revoked, self._on_lost)
        yield from self.consumer.driver.run(self.consumer.calls.subscribe(self.subscribed, listener))

    # ---- work

    def _process(self, polled: dict[TopicPartition, Records]) -> Program[None]:
        """Works on records; they count as processed when the work is done, so a crash before leaves them to others."""
        nap_ms, self.nap_ms = self.nap_ms, 0
        if nap_ms:
            yield Work(nap_ms, awaited=True)
        for partition, records in polled.items():
            yield Work(self.random.choice((700, 1_500) if self.is_slow else (0, 0, 1, 20, 200)))
            self.consumer.processed(partition, [record.offset for record in records])
            self.uncommitted = True
        if not polled:
            yield Work(self.random.choice((0, 10)))

    def _commit_some(self) -> Program[None]:
        calls = self.consumer.calls
        if not self.uncommitted or self.style in ("auto", "revoke"):
            return
        if self.style == "sync":
            self.uncommitted = not (yield from self._commit())
        else:
            self.uncommitted = False
            yield from self.consumer.driver.run(calls.commit_async(None, self._committed))

    def _committed(self, offsets: Any, error: Exception | None) -> None:
        self.uncommitted = self.uncommitted or error is not None

    def _commit(self) -> Program[bool]:
        """Commits; True if it is certain that everything returned so far is committed."""
        steps = self.consumer.calls.commit(None, self._now() + COMMIT_MS)
        try:
            yield from self.consumer.bounded(steps, COMMIT_MS, "commit")
        except (CommitFailed, RebalanceInProgress, RetriableCommitFailed, TimedOut):
            return False
        except FencedInstanceId:
            self.fenced = True
            return False
        return True

    # ---- callbacks

    def _on_assigned(self, partitions: list[TopicPartition]) -> Program[None]:
        self.consumer.assigned(partitions)
        yield from self._distracted()

    def _on_revoked(self, partitions: list[TopicPartition]) -> Program[None]:
        self.consumer.revoking(partitions)
        positions = self.consumer.positions(partitions)
        clean = self.style == "auto"
        if self.style in ("revoke", "sync"):
            clean = yield from self._commit()
        self.consumer.gives(positions, clean)
        try:
            yield from self._distracted()
        finally:
            self.consumer.revoked(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> Program[None]:
        self.consumer.lost(partitions)
        yield from self._distracted()

    def _distracted(self) -> Program[None]:
        """Makes a callback take long, or raise."""
        if self.calm:
            return
        if self.random.random() < self.bad_callbacks:
            yield Work(self.random.choice((100, 3_000, 9_000)), awaited=self.random.random() < 0.5)
        if self.random.random() < self.bad_callbacks:
            self.raised = True
            raise UsersOwn("a callback fails")
