"""Calls a consumer's interceptors: objects of the user that see what is polled and what is committed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kohort.settings import SettingError

log = logging.getLogger("kohort.client.consumer")


class Interceptors:
    """The interceptors of one consumer, in their order.

    Their three methods are optional: `on_consume(records)`, `on_commit(offsets)`, `close()`. What they raise is logged
    and stops nothing.
    """

    def __init__(self, given: Sequence[Any]) -> None:
        if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
            raise SettingError(
                "interceptors takes a list of objects with on_consume, on_commit or close, "
                f"not {type(given).__name__}"
            )
        self._on_consume = [each.on_consume for each in given if hasattr(each, "on_consume")]
        self._on_commit = [each.on_commit for each in given if hasattr(each, "on_commit")]
        self._on_close = [each.close for each in given if hasattr(each, "close")]

    @property
    def see_records(self) -> bool:
        return bool(self._on_consume)

    def consumed(self, taken: Any) -> Any:
        """Returns what `poll` shall return: each interceptor gets what the one before it made of the records."""
        for on_consume in self._on_consume:
            try:
                taken = on_consume(taken)
            except Exception:
                log.exception("an interceptor's on_consume failed; the records go on as they were")
        return taken

    def committed(self, offsets: Any) -> None:
        for on_commit in self._on_commit:
            try:
                on_commit(offsets)
            except Exception:
                log.exception("an interceptor's on_commit failed")

    def close(self) -> None:
        """Closes them, once, when the consumer has nothing more to tell them."""
        for close in self._on_close:
            try:
                close()
            except Exception:
                log.exception("an interceptor's close failed")
