"""Send and Answer: what the sans-IO parts of a client ask for, and what they are told.

A part never waits: it puts `Send`s into its `Outbox`. Later the `on_answer` of each is called once, with an `Answer`
that holds the response or the reason why there is none. Whoever drives the part (a front with real sockets, or the
simulator) carries them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Protocol

from kohort.wire.struct import Message

ANY_NODE = -1
"""The node id that means the node with the least load."""


class Lane(IntEnum):
    """Which connection to a node a request takes. Answers come in order: a heartbeat must not wait for a long poll."""

    DATA = 0
    GROUP = 1


class FailureKind(Enum):
    """Why a request has no response."""

    DISCONNECTED = "disconnected"  # or never connected; the request may have been carried out
    TIMED_OUT = "timed out"  # the connection is closed as well
    UNSUPPORTED_VERSION = (
        "unsupported version"  # the node serves no version that we have or that `make` can use
    )
    AUTHENTICATION = "authentication failed"
    UNENCODABLE = "cannot be encoded"  # it was never sent: its content fits no request
    BAD_ANSWER = "bad answer"  # the bytes are not the response; the connection is closed


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no response, with details for people."""

    kind: FailureKind
    message: str = ""

    @property
    def is_retriable(self) -> bool:
        return self.kind in (FailureKind.DISCONNECTED, FailureKind.TIMED_OUT)


class Rejected(Exception):
    """The node cannot be used; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """A request to a node; exactly one `Answer` follows."""

    node_id: int
    api_key: int
    make: Callable[[int], Message]
    """The request in the version that is negotiated with the node."""
    purpose: str
    """For people: who asks, and for what, as in "membership.join". The tests and the errors print it."""
    timeout_ms: int
    lane: Lane = Lane.DATA
    max_version: int | None = None
    answered: bool = True
    """False: the broker sends no response (Produce with acks=0); the Answer comes when the bytes are handed over."""
    on_answer: Callable[[Answer, int], None] = field(kw_only=True)
    """Takes the Answer and the time. The part binds to it what it must know then: the attempt, the partitions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a Send: a response or a failure."""

    send: Send
    version: int = -1
    response: Any = None
    """The response message; None if there is a failure."""
    failure: Failure | None = None


Outbox = list[Send]


def ignore_answer(answer: Answer, now_ms: int) -> None:
    """The `on_answer` of a Send whose outcome changes nothing."""


class Part(Protocol):
    """What an engine or the simulator calls of a part."""

    def tick(self, now_ms: int) -> None:
        """Does what is due. Calling it again at once does nothing more."""

    def next_deadline_ms(self) -> int | None:
        """When to tick again at the latest; None: only after an answer or a command."""
