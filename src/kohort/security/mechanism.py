"""What the server's side of a SASL mechanism takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on: what the client is to be told."""

    told: bytes


@dataclass(frozen=True, slots=True)
class LoginAccepted:
    """The client is who it says."""

    principal: str
    told: bytes = b""
    expires_ms: int | None = None
    """When its token expires, since 1970; None: never."""


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The client is not who it says, or said nonsense."""

    message: str | None = None
    """What it is told; None: only that its credentials are invalid."""
    reason: str | None = None
    """What the log says instead of the message; it holds no secret."""


Outcome = Challenge | LoginAccepted | LoginRefused


@dataclass(frozen=True, slots=True)
class SlowStep:
    """An outcome that takes long to find: `work` runs on another thread, and `then` makes the outcome of its result.

    Steps with the same key have the same work, so that it need be done only once for all that wait for it.
    """

    work: Callable[[], Any]
    then: Callable[[Any, int], Outcome]
    """Takes what the work returned and the time in milliseconds."""
    key: bytes
    waits_for_network: bool = False
    """Whether the work waits for another machine, rather than needing a processor."""

    def __repr__(self) -> str:
        return "SlowStep()"


class ServerExchange(Protocol):
    """One login by one mechanism."""

    def step(self, said: bytes, now_ms: int) -> Outcome | SlowStep:
        """Takes what the client said."""
