"""KohortError, the root of all exceptions of Kohort; the module imports nothing, so any package can import it."""

from __future__ import annotations

from typing import ClassVar


class KohortError(Exception):
    """The base class of all exceptions that Kohort raises on purpose."""

    what_to_do: ClassVar[str] = "Read the text of the error: it says what happened, and to what."
    """Advice for all errors of a class; docs/errors.md is written from it."""

    @property
    def advice(self) -> str:
        """What to do about this error, in a sentence or two."""
        return type(self).what_to_do
