"""Checks topic names: which are allowed, which collide, which are internal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kohort.coordinator.history import HISTORY_TOPIC

MAX_LENGTH = 249
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
METADATA_TOPIC = "__cluster_metadata"  # Kafka keeps its own state there; it cannot be created
INTERNAL = frozenset({OFFSETS_TOPIC, HISTORY_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC})
# Shown only when asked for by name: Kafka has no such topic, and lists of topics should not change because of it.
HIDDEN = frozenset({HISTORY_TOPIC})
# What lives in a topic: deleting it or adding partitions would lose that.
LIVES_IN = {
    OFFSETS_TOPIC: "groups",
    HISTORY_TOPIC: "groups",
    TRANSACTIONS_TOPIC: "transactional ids",
    SHARE_TOPIC: "share groups",
}

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")


def what_is_wrong(name: str) -> str | None:
    """Returns why this cannot be a topic's name, in Kafka's words; None if it can."""
    reason = _reason(name)
    return None if reason is None else f"Topic name is invalid: {reason}"


def _reason(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if not _ALLOWED.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


class Collisions:
    """Finds existing topics whose names differ only in '.' and '_': both would share a metric's name.

    The table is made when it is first needed, once for all topics of a request.
    """

    __slots__ = ("_names", "_unified")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self._unified: dict[str, str] | None = None

    def with_existing(self, name: str) -> str | None:
        if "." not in name and "_" not in name:
            return None
        if self._unified is None:
            self._unified = {_unify(other): other for other in self._names}
        return self._unified.get(_unify(name))


def _unify(name: str) -> str:
    return name.replace(".", "_")
