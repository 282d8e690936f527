"""The client for programs that are built on it, as Kohort's Spark source is: sessions with a cluster, and range reads.

ClusterSession   asks a cluster for its topics and offsets, and reads ranges of offsets; it is no consumer
GroupSession     also speaks for a group: commits offsets in its name, and may become one of its members
RangeFetcher     the records of a range of offsets as raw bytes, with retries

All calls block. They may come from several threads. Timeouts are in seconds; without one `default.api.timeout.ms`
holds. Nothing is sent before it is needed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Self

from kohort.client.admin_types import GroupDescription
from kohort.client.administer.groups import GroupCalls
from kohort.client.config import CONSUMER, read_config
from kohort.client.consume.calls import ConsumerCalls
from kohort.client.consume.range_fetch import (
    FetchedRecords,
    FetchReply,
    Obstacle,
    PartitionLeader,
    RangeFetches,
)
from kohort.client.consumer import build_core
from kohort.client.core.backoff import Backoff
from kohort.client.core.cluster import Cluster
from kohort.client.core.operation import Operation
from kohort.client.core.requests import GroupOf, Requests
from kohort.client.core.steps import Steps, T, Until
from kohort.client.errors import TimedOut
from kohort.client.group.assignors import load_assignors
from kohort.client.group.rebalance_listener import RebalanceCallback, RebalanceListener
from kohort.client.io.driving import deadline_after, run_steps
from kohort.client.io.engine import Engine
from kohort.client.types import (
    ByPartition,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from kohort.wire.errors import KohortError

__all__ = [
    "Cluster",
    "ClusterSession",
    "FetchedRecords",
    "GroupSession",
    "PartitionLeader",
    "CommitInFlight",
    "PendingFetch",
    "RangeFetcher",
    "TopicReplaced",
    "check_assignors",
]

_ASSIGNORS = "partition.assignment.strategy"
"""The setting that may hold classes besides texts."""

FIRST_BYTES_PER_OFFSET = 1024
SMALLEST_FETCH = 64 << 10
FIRST_FETCH, FETCH_GROWTH, LONG_RANGE = 128 << 10, 8, 2 << 20
"""The first request of a range that seems longer than the last of these asks for so many bytes, each next one
for so many times more: whoever wants the first few records of a long range should not wait for megabytes, nor make the
broker read them. It costs a long range one to two milliseconds."""
LONGEST_PAUSE_MS = 1_000


def check_assignors(strategy: str) -> None:
    """SettingError if a value of `partition.assignment.strategy` names what is no assignor."""
    load_assignors(strategy)


class ClusterSession:
    """Connections to a cluster, and what a program may ask over them without being a consumer.

    `settings` are those of a consumer, by Kafka's names.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.config, objects = read_config(CONSUMER, settings, {}, (_ASSIGNORS,))
        self._engine = Engine(self.config)
        self._core = build_core(self.config, objects, self._engine)
        self._calls = ConsumerCalls(
            self._core, self._engine.now_ms, obstacle=lambda: self._engine.network.last_error
        )
        self._fetches = RangeFetches(self._engine.out, self.config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections, also while another thread waits."""
        self._engine.close()

    # --- topics and offsets ---------------------------------------------------------------------------

    def look_up(self, topics: Collection[str] | None) -> Cluster:
        """What the cluster says about these topics (None: about all) now. Nothing is created."""
        deadline_ms = self._deadline()
        wanted = None if topics is None else frozenset(topics)

        def steps() -> Steps[Cluster]:
            operation = self._core.metadata.look_up(wanted, self._engine.now_ms(), deadline_ms)
            yield Until(lambda: operation.done, deadline_ms)
            return operation.value()

        return self._run(steps())

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of these partitions begin."""
        if not partitions:
            return {}
        return self._run(self._calls.beginning_offsets(partitions, self._deadline()))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of these partitions end; with `read_committed`, what is committed of them."""
        if not partitions:
            return {}
        return self._run(self._calls.end_offsets(partitions, self._deadline()))

    def offsets_for_times(self, times: ByPartition[int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms since 1970); None if there is none."""
        return self._run(self._calls.offsets_for_times(times, self._deadline()))

    # --- records --------------------------------------------------------------------------------------

    def fetch_range(
        self, partition: TopicPartition, leader: PartitionLeader, end: int, log: logging.Logger
    ) -> RangeFetcher:
        """Reads a partition up to `end`, beginning at its leader of the moment; retries are logged to `log`."""
        return RangeFetcher(self, partition, leader, end, log)

    def _send_fetch(
        self, leader: PartitionLeader, partition: TopicPartition, offset: int, max_bytes: int
    ) -> Operation[FetchReply]:
        """Begins a fetch, which is on its way when this returns."""
        with self._engine.shielded():
            if leader.node is not None:
                self._engine.metadata.learn(leader.node)
            operation = self._fetches.fetch(leader, partition, offset, max_bytes)
            if not operation.done:
                self._engine.pump()
        return operation

    def _wait_for_fetch(self, operation: Operation[FetchReply]) -> FetchReply:
        if not operation.done:
            give_up_ms = self._engine.now_ms() + 2 * self.config.request_timeout_ms
            self._engine.run(lambda: operation.done, give_up_ms)
            if not operation.done:
                raise TimedOut("a fetch got neither an answer nor an error")
        return operation.value()

    # --- how it waits ---------------------------------------------------------------------------------

    def _run(self, steps: Steps[T], *, wakeable: bool = True) -> T:
        return run_steps(self._engine, steps, wakeable=wakeable)

    def _deadline(self, timeout: float | None = None) -> int:
        return deadline_after(self._engine, self.config, timeout)


# --- a group ------------------------------------------------------------------------------------------


class GroupSession(ClusterSession):
    """A session that speaks for the group of its setting `group.id`.

    Until `join` it is an outsider, whose commits only a group without members takes. A thread of its own keeps the
    connections going, so that commits come to their end while nobody waits.
    """

    def __init__(self, settings: Mapping[str, object], thread_name: str) -> None:
        super().__init__(settings)
        assert self.config.group_id is not None, "a session for a group needs group.id"
        self.group_id = self.config.group_id
        engine = self._engine
        requests = Requests(engine.out, self.config, engine.metadata, engine.jitter)
        engine.add(requests)
        self._groups = GroupCalls(requests, engine.metadata, engine.now_ms)
        engine.start_background(thread_name, everything=True)

    def describe(self) -> GroupDescription:
        """The group as its coordinator describes it."""
        described = self._run(self._groups.describe_groups([self.group_id], self._deadline()))
        return described[self.group_id]

    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions; None where nothing is."""
        if not partitions:
            return {}
        return self._run(self._calls.committed(partitions, self._deadline()))

    def commit(self, offsets: Mapping[TopicPartition, int], timeout: float | None = None) -> None:
        """Commits and returns when it is done. RebalanceInProgress or CommitFailed if the group moves on meanwhile."""
        wanted: dict[tuple[str, int], int | OffsetAndMetadata] = dict(offsets.items())
        self._run(self._calls.commit(wanted, self._deadline(timeout)), wakeable=False)

    def begin_commit(self, offsets: Mapping[TopicPartition, int]) -> CommitInFlight:
        """Begins a commit, which goes on by itself."""
        engine = self._engine
        with engine.shielded():
            operation = self._core.commits.commit(
                {partition: OffsetAndMetadata(at) for partition, at in offsets.items()},
                engine.now_ms(),
                self._deadline(),
            )
        engine.nudge()
        return CommitInFlight(self, operation, dict(offsets))

    # --- membership -----------------------------------------------------------------------------------

    def join(
        self,
        topics: Collection[str],
        on_assigned: RebalanceCallback,
        on_revoked: RebalanceCallback,
        on_lost: RebalanceCallback,
    ) -> None:
        """Joins the group for these topics with the next `serve`; called again, it changes the topics."""
        self._run(self._calls.subscribe(sorted(topics), RebalanceListener(on_assigned, on_revoked, on_lost)))

    def serve(self, timeout: float) -> None:
        """Takes part in the group for so long: heartbeats, rebalances, the callbacks of `join`. Reads no records."""
        self._run(self._calls.poll(self._deadline(timeout), lambda now_ms: None, None))

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Fetches nothing of these partitions: for members that read what they are assigned in another way."""
        self._run(self._calls.pause(partitions, True))

    def wakeup(self) -> None:
        """Makes the `serve` that waits now, or the next one, raise Wakeup. From any thread."""
        self._engine.wakeup()

    def leave(self, reason: str, timeout: float) -> None:
        """Takes this member out of its group by name, as a static member has to be; no callback is called."""
        membership = self._core.membership
        assert membership is not None
        request = membership.removal(reason)
        if request is None:
            return
        asked = self._groups.ask(request, GroupOf(self.group_id), self._deadline(timeout))
        self._run(asked, wakeable=False)

    def remove_instance(self, group_instance_id: str, reason: str, timeout: float) -> None:
        """Takes another member out of the group: one of this group.instance.id that is known to be dead."""
        steps = self._groups.remove_members(
            self.group_id, (), (group_instance_id,), reason, self._deadline(timeout)
        )
        self._run(steps, wakeable=False)

    def membership(self) -> str:
        """How the membership stands, for people."""
        return repr(self._core.membership)


class CommitInFlight:
    """A commit that was begun: done at some time, with an error or without."""

    def __init__(
        self,
        session: GroupSession,
        operation: Operation[dict[TopicPartition, OffsetAndMetadata]],
        offsets: dict[TopicPartition, int],
    ) -> None:
        self._session, self._operation = session, operation
        self.offsets = offsets

    @property
    def done(self) -> bool:
        return self._operation.done

    @property
    def error(self) -> Exception | None:
        return self._operation.error

    def wait(self, timeout: float | None = None) -> None:
        """Returns when it is done, or when the time is up."""
        session, operation = self._session, self._operation
        if not operation.done:
            session._engine.run(lambda: operation.done, session._deadline(timeout), wakeable=False)


# --- ranges of offsets ----------------------------------------------------------------------------------


class TopicReplaced(KohortError):
    """The topic of a range does not exist any more, or was deleted and created again under the same name."""

    what_to_do = "Start again from the beginning of the new topic; offsets of the old one mean nothing in it."


class PendingFetch:
    """A request for records that is on its way."""

    __slots__ = ("offset", "operation")

    def __init__(self, offset: int, operation: Operation[FetchReply]) -> None:
        self.offset, self.operation = offset, operation


class RangeFetcher:
    """Reads a partition up to an offset, from whichever node leads it.

    The caller sends one request ahead of what it decodes:

    ahead = fetcher.send(start)
    while position < end:
        fetched = fetcher.receive(ahead)
        ...
    """

    def __init__(
        self,
        session: ClusterSession,
        partition: TopicPartition,
        leader: PartitionLeader,
        end: int,
        log: logging.Logger,
    ) -> None:
        self._session, self._partition, self._leader, self._end = session, partition, leader, end
        self._log = log
        self._bytes_per_offset = float(FIRST_BYTES_PER_OFFSET)
        self._most_bytes = FIRST_FETCH
        self._failures = 0
        self._backoff = Backoff(session.config.retry_backoff_ms, LONGEST_PAUSE_MS, lambda: 0.5)
        self._give_up_s = 0.0  # when there has been no progress for too long; 0: nothing is wrong

    def send(self, offset: int) -> PendingFetch:
        """A request for what follows an offset, on its way when this returns."""
        # No more than the rest of the range seems to need: a short range should not bring megabytes.
        needed = int(max(SMALLEST_FETCH, 1.1 * (self._end - offset) * self._bytes_per_offset))
        if needed > LONG_RANGE:
            needed, self._most_bytes = min(needed, self._most_bytes), self._most_bytes * FETCH_GROWTH
        return PendingFetch(offset, self._session._send_fetch(self._leader, self._partition, offset, needed))

    def receive(self, fetch: PendingFetch) -> FetchedRecords | None:
        """What a request has brought; None if it is to be sent again, after a pause that this has made.

        OffsetOutOfRange if the log does not hold the offset, TopicReplaced if it is not the topic's log any more,
        TimedOut if there was no progress for `default.api.timeout.ms`.
        """
        reply = self._session._wait_for_fetch(fetch.operation)
        read = self._session._fetches.read(reply, self._partition, fetch.offset)
        if isinstance(read, Obstacle):
            self._find_leader(read.reason, fetch.offset)
            return None
        if len(read.records):
            after = self._end if read.next_offset is None else max(read.next_offset, fetch.offset)
            self._bytes_per_offset = len(read.records) / max(1, after - fetch.offset)
            self._failures, self._give_up_s = 0, 0.0
        return read

    def has_waited(self, timeout_ms: int) -> bool:
        """Whether there has been no progress for so long. The time counts from the first failure, if there was one."""
        now_s = time.monotonic()
        self._give_up_s = self._give_up_s or now_s + timeout_ms / 1000
        return now_s >= self._give_up_s

    def _find_leader(self, obstacle: str, offset: int) -> None:
        """Makes a pause and asks the cluster who leads the partition now."""
        config = self._session.config
        if self.has_waited(config.default_api_timeout_ms):
            what = f"{self._partition} from offset {offset} to {self._end}"
            raise TimedOut(f"{what} could not be read for {config.default_api_timeout_ms} ms: {obstacle}")
        self._failures += 1
        self._log.info("%s: %s, trying again", self._partition, obstacle)
        time.sleep(self._backoff.after(self._failures) / 1000)
        leader = PartitionLeader.of(self._session.look_up((self._partition.topic,)), self._partition)
        if leader is None:
            raise TopicReplaced("the topic does not exist any more")
        if leader.is_of_another_topic(self._leader):
            raise TopicReplaced("the topic was deleted and made anew")
        self._leader = leader
