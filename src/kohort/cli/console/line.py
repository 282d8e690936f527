"""The line that says where the console is."""

from __future__ import annotations


def console_line(address: str, token: str, read_only: bool = False) -> str:
    """Returns the line, with the token that changes need."""
    return f"console: {address} (read only)" if read_only else f"console: {address} (token {token})"
