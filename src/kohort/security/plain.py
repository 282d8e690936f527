"""SASL PLAIN (RFC 4616), the server's side."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from kohort.security.mechanism import Challenge, LoginAccepted, LoginRefused

_REFUSED = "Authentication failed: Invalid username or password"
_MODULE = "PlainLoginModule"
_USER = "user_"


class PlainExchange:
    """One login: `[authzid] NUL user NUL password`."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, said: bytes, now_ms: int) -> Challenge | LoginAccepted | LoginRefused:
        """Takes the one message of the client."""
        try:
            parts = said.decode().split("\0")
        except UnicodeDecodeError:
            return LoginRefused()
        if len(parts) != 3:
            return LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            return LoginRefused("Authentication failed: username not specified")
        if not password:
            return LoginRefused("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # An unknown user takes as long as a wrong password.
        is_right = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not is_right:
            return LoginRefused(_REFUSED)
        if authorization_id not in ("", user):
            return LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return LoginAccepted(f"User:{user}")


def passwords_of(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the users of a JAAS entry: `user_alice="secret"`."""
    return {name.removeprefix(_USER): value for name, value in options.items() if name.startswith(_USER)}
