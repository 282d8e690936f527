"""The token for changes. It is made where the console is started, before the packages of the console are loaded."""

from __future__ import annotations

import hmac
import secrets


def new_token() -> str:
    """Makes a token: 128 bits of chance, in characters that survive a terminal and a URL."""
    return secrets.token_urlsafe(16)


def is_token(given: str | None, token: str) -> bool:
    """Says whether a header `Authorization` carries the token; how long that takes tells nothing about the token."""
    kind, _, credentials = (given or "").partition(" ")
    same = hmac.compare_digest(credentials.strip().encode("utf-8", "replace"), token.encode())
    return same and kind.lower() == "bearer"
