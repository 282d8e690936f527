"""Regular expressions that clients send, in RE2's syntax as Kafka reads them: matching takes linear time.

The library is loaded with the first pattern. Its own log of bad patterns is switched off: a peer could fill ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType


class BadPattern(ValueError):
    """The text is not a regular expression; the message is RE2's."""


class TopicPattern:
    """A compiled pattern, which matches whole names."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str, compiled: Any) -> None:
        self.text = text
        self._compiled = compiled

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None

    def matching(self, names: Iterable[str]) -> list[str]:
        """Returns the names that match from their first to their last character, in the order given."""
        fullmatch = self._compiled.fullmatch
        return [name for name in names if fullmatch(name) is not None]


def compile_pattern(text: str) -> TopicPattern:
    """Returns the pattern; raises BadPattern if RE2 does not accept it."""
    re2 = _library()
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return TopicPattern(text, re2.compile(text, options))
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise BadPattern(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from None
    except UnicodeEncodeError:
        raise BadPattern("invalid UTF-8") from None


def _library() -> ModuleType:
    try:
        import re2
    except ImportError:
        # The wheels cover Linux, macOS and Windows on the usual processors; elsewhere it has to be built.
        raise BadPattern(
            "the broker has no library for regular expressions: run `pip install google-re2` where it is installed"
        ) from None
    module: ModuleType = re2
    return module
