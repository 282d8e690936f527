"""What a scenario asks of a client library, in one vocabulary; one adapter per library translates.

A method that a library has no call for is missing in its adapter, and `able` leaves that library out of the tests
that need it; WHAT_IS_LEFT_OUT in test_left_out.py names each of these gaps, so that none is silent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kohort.wire.errors import ErrorCode

Partition = tuple[str, int]  # topic, index
Headers = list[tuple[str, bytes | None]]

# As in Kafka: a machine that stands still for a while does not cost a member its place.
SESSION_TIMEOUT_MS = 45_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A record as a client handed it to its user."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Refused(Exception):
    """The broker's error code, by Kafka's name, however the library shows it."""

    def __init__(self, code: int, text: str = "") -> None:
        known = code in ErrorCode._value2member_map_
        self.error = ErrorCode(code).name if known else f"client error {code}"
        super().__init__(f"{self.error}: {text}")


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    group_instance_id: str | None
    assignment: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as DescribeGroups tells it."""

    state: str
    protocol: str
    members: tuple[GroupMember, ...]

    @property
    def owned(self) -> list[Partition]:
        """All assigned partitions, one entry per owner."""
        return sorted(part for member in self.members for part in member.assignment)


def able(clients: Iterable[type[Any]], *methods: str) -> list[type[Any]]:
    """The clients whose library can do all of this."""
    return [client for client in clients if all(hasattr(client, method) for method in methods)]


class Client:
    """The part of an adapter that is the same for all."""

    name: str
    codecs: tuple[str, ...]  # what it can compress and decompress with the packages of our lock
    assignors: tuple[str, ...]
    shows: ClassVar[dict[str, str]] = {}  # error codes that the library shows by another name

    def send(
        self,
        records: Sequence[tuple[Partition, Sent]],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        """Produces and waits for all deliveries; returns their offsets (-1 where acks=0 tells none)."""
        raise NotImplementedError

    def read(
        self,
        offsets: dict[Partition, int],
        count: int,
        *,
        waiting: threading.Event | None = None,
        max_wait_ms: int = 500,
    ) -> list[Received]:
        """Fetches `count` records from these offsets on. With `waiting`: polls once in vain, sets it, and goes on."""
        raise NotImplementedError

    def produce(
        self, topic: str, records: Sequence[Sent], *, partition: int = 0, **options: Any
    ) -> list[int]:
        return self.send([((topic, partition), record) for record in records], **options)

    def fetch(
        self, topic: str, count: int, *, partition: int = 0, offset: int = 0, **options: Any
    ) -> list[Received]:
        return self.read({(topic, partition): offset}, count, **options)


class Member:
    """A consumer in a group on a thread of its own: polls, keeps what it received, commits after each poll.

    Adapters give `run`, which opens the consumer, calls `self.turn(...)` around its polls until `self.leaving`,
    and closes it, which leaves the group.
    """

    def __init__(self, group: str, client_id: str, *, patient: bool = False) -> None:
        self.group, self.client_id = group, client_id
        self.patient = (
            patient  # the broker may be away: commits that fail are made again later, whatever the error
        )
        self.assignment: frozenset[Partition] = frozenset()
        self.turns = 0  # how often it has polled and told what it then had
        self.generation = -1  # of the last assignment that it was told, if the adapter can say that
        self.received: list[Received] = []
        self.committed: dict[Partition, int] = {}  # highest offset that the broker acknowledged
        self._uncommitted: dict[Partition, int] = {}  # refused in a rebalance
        self.failure: BaseException | None = None
        self.leaving = threading.Event()
        self.polling = threading.Event()  # cleared: the application is busy and does not poll
        self.polling.set()
        self._stands_still = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=client_id, daemon=True)

    def start(self) -> Member:
        self._thread.start()
        return self

    def leave(self, timeout_s: float = 90.0) -> None:
        """Closes the consumer; raises what went wrong in it."""
        self.leaving.set()
        self.polling.set()
        self._stands_still = threading.Event()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.client_id} did not close in {timeout_s:.0f} s"
        if self.failure is not None:
            raise self.failure

    def stand_still(self, timeout_s: float = 60.0) -> None:
        """The application is busy: returns when its last poll is over; it polls again after `polling.set()`."""
        self.polling.clear()
        assert self._stands_still.wait(timeout_s), f"{self.client_id} still polls after {timeout_s:.0f} s"

    def may_poll(self) -> None:
        """Before each poll: waits as long as the application is busy."""
        if not self.polling.is_set():
            self._stands_still.set()
            self.polling.wait()
            self._stands_still.clear()

    def run(self) -> None:
        raise NotImplementedError

    def note(self, received: Sequence[Received], assignment: Iterable[Partition]) -> None:
        self.received.extend(received)
        self.assignment = frozenset(assignment)
        self.turns += 1

    def to_commit(self, received: Sequence[Received]) -> dict[Partition, int]:
        """What to commit now: what is behind these records, and what a rebalance refused and is still ours.

        A cooperative member keeps partitions through a rebalance: nobody else commits what it was refused.
        """
        kept = {part: offset for part, offset in self._uncommitted.items() if part in self.assignment}
        self._uncommitted = kept | next_offsets(received)
        return dict(self._uncommitted)

    def note_commit(self, offsets: dict[Partition, int]) -> None:
        self._uncommitted = {}
        for part, offset in offsets.items():
            self.committed[part] = max(offset, self.committed.get(part, -1))

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.failure = error
        finally:
            self.assignment = frozenset()


def request_timeout_ms(max_wait_ms: int) -> int:
    """Of a fetch that may wait so long."""
    return max_wait_ms + 60_000


def next_offsets(received: Sequence[Received]) -> dict[Partition, int]:
    """What to commit after these records."""
    return {(record.topic, record.partition): record.offset + 1 for record in received}


# A commit that meets a rebalance is refused; at-least-once applications poll on and commit later.
COMMIT_LATER = frozenset(
    {"REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"}
)


def may_commit_later(member: Member, refused: Refused) -> bool:
    return member.patient or refused.error in COMMIT_LATER


def protocol_settings(options: dict[str, Any], classic: dict[str, Any]) -> dict[str, Any]:
    """The settings of a member that depend on its group protocol; that of consumers takes none of `classic`."""
    if options.get("group_protocol", "classic") == "classic":
        return classic
    assignor = {"group.remote.assignor": options["assignor"]} if "assignor" in options else {}
    return {"group.protocol": options["group_protocol"], **assignor}
