"""The root of whatever Kohort raises on purpose. It imports nothing, so that every room can have it."""

from __future__ import annotations


class KohortError(Exception):
    """Whatever Kohort raises on purpose."""
