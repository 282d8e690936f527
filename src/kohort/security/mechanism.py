"""What the server's side of a SASL mechanism takes and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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


class ServerExchange(Protocol):
    """One login by one mechanism."""

    def step(self, said: bytes, now_ms: int) -> Challenge | LoginAccepted | LoginRefused:
        """Takes what the client said."""
