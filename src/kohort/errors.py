"""KohortError, the root of all exceptions of Kohort; the module imports nothing, so any package can import it."""

from __future__ import annotations


class KohortError(Exception):
    """The base class of all exceptions that Kohort raises on purpose."""
