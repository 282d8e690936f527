"""The history of each group: what rebalances it had and why, for people.

There is one entry per rebalance, that is per move into PreparingRebalance of a classic group, and per rise of the epoch
of a consumer group (KIP-848), where it ends when the group is Stable. Whoever runs the shard keeps the entries
across restarts: each `HistoryChanged` carries a whole entry, and `Rebalance.slot` is a number below the length kept.
Entries that are written to a compacted topic under (group, slot) stay bounded without any clean-up, and `restore`
takes them back. They are not derived from the records of the group, because those hold no reasons and no times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

HISTORY_TOPIC: Final = "__kohort_group_history"
"""Where Kohort's broker keeps the entries: a record's key is the group and a slot, its value an entry as JSON."""
CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
RUNNING: Final = "running"
STABLE: Final = "Stable"
EMPTY: Final = "Empty"
INTERRUPTED: Final = "interrupted by the next"
LOST: Final = "cut off by a restart"
SHOWN: Final = 50
"""Lists of members are cut at this length; a group of 5,000 must not fill the memory with its history."""
LONGEST_REASON: Final = 4_000
"""In characters: a reason may name all members that left at once, or hold the words of a client."""


_SEPARATOR: Final = b"\0"


def key_of(group_id: str, slot: int) -> bytes:
    """Returns the key of an entry in HISTORY_TOPIC."""
    return group_id.encode() + _SEPARATOR + b"%d" % slot


def group_of(key: bytes) -> str:
    """Returns the group of a key in HISTORY_TOPIC."""
    return key.rpartition(_SEPARATOR)[0].decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Rebalance:
    number: int
    began_ms: int
    generation_before: int
    member_id: str
    """The member that caused it; empty if no single member did."""
    reason: str
    outcome: str = RUNNING
    generation_after: int | None = None
    join_ms: int | None = None
    """The time from the beginning until all had joined or were given up."""
    sync_ms: int | None = None
    """The time from there until the assignment was durable."""
    last_to_join: str = ""
    last_to_sync: str = ""
    size: int = 0
    came: tuple[str, ...] = ()
    went: tuple[tuple[str, str], ...] = ()
    """The members that went, each with the reason."""
    moved: tuple[str, ...] = ()
    """Members whose assignment has changed."""
    protocol: str = CLASSIC
    """Of a consumer or share group the generations are epochs of the group, `join_ms` is the time until the target was
    computed, and `sync_ms` the time from there until all members had it."""
    holding: tuple[tuple[str, str, int], ...] = ()
    """Members of a consumer group that have yet to give up partitions: these, and since when."""

    def slot(self, length: int) -> int:
        return self.number % length

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["went"] = dict(self.went)
        fields["came"], fields["moved"] = list(self.came), list(self.moved)
        fields["holding"] = [list(each) for each in self.holding]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Rebalance:
        known = {name: fields[name] for name in cls.__slots__ if name in fields}
        known["went"] = tuple(fields.get("went", {}).items())
        known["came"], known["moved"] = tuple(fields.get("came", ())), tuple(fields.get("moved", ()))
        known["holding"] = tuple((who, what, since) for who, what, since in fields.get("holding", ()))
        return cls(**known)

    @property
    def words(self) -> tuple[str, str, str]:
        """What the protocol calls a generation, and what has happened when `join_ms` and `sync_ms` are known."""
        is_classic = self.protocol == CLASSIC
        return ("generation", "joined", "synced") if is_classic else ("epoch", "assigned", "reconciled")

    def sentence(self) -> str:
        """Describes the rebalance in one line, for `kohort groups why`."""
        count, joined, synced = self.words
        text = f"{count} {self.generation_before} to {self.generation_after or '?'}: {self.reason}"
        if self.join_ms is not None:
            text += f"; {joined} in {self.join_ms} ms"
            text += f", last {self.last_to_join}" if self.last_to_join else ""
        if self.sync_ms is not None:
            text += f"; {synced} in {self.sync_ms} ms"
            text += f", last {self.last_to_sync}" if self.last_to_sync else ""
        for who, what, _ in self.holding:
            text += f"; {who} has yet to give up {what}"
        return f"{text}; {self.outcome}"


def _cut(names: Iterable[str]) -> tuple[str, ...]:
    every = tuple(names)
    return every if len(every) <= SHOWN else every[:SHOWN] + (f"and {len(every) - SHOWN} more",)


class GroupHistory:
    """The last rebalances of one group."""

    __slots__ = ("_assignments", "_last_to_join", "_last_to_sync", "_members", "_went", "entries", "total")

    def __init__(self, length: int) -> None:
        self.entries: deque[Rebalance] = deque(maxlen=length)
        self.total = 0
        self._members: frozenset[str] = frozenset()
        self._assignments: dict[str, bytes] = {}
        self._went: dict[str, str] = {}
        self._last_to_join = self._last_to_sync = ""

    @property
    def latest(self) -> Rebalance | None:
        return self.entries[-1] if self.entries else None

    def restore(self, entries: Iterable[Rebalance]) -> None:
        """Takes back entries from before a restart, in any order; what was running then is marked as cut off."""
        for entry in sorted(entries, key=lambda e: e.number):
            self.entries.append(replace(entry, outcome=LOST) if entry.outcome == RUNNING else entry)
            self.total = entry.number + 1

    def loaded(self, assignments: dict[str, bytes]) -> None:
        self._assignments = assignments
        self._members = frozenset(assignments)

    def began(
        self, now_ms: int, generation_id: int, member_id: str, reason: str, protocol: str = CLASSIC
    ) -> None:
        if len(reason) > LONGEST_REASON:
            reason = reason[:LONGEST_REASON] + " …"
        self.entries.append(
            Rebalance(self.total, now_ms, generation_id, member_id, reason, protocol=protocol)
        )
        self.total += 1
        self._last_to_sync = ""

    def waits_for(self, holding: Iterable[tuple[str, str]], now_ms: int) -> bool:
        """Notes who has yet to give up what; False if that is known already."""
        current = self.latest
        if current is None or current.outcome != RUNNING:
            return False
        since = {(who, what): since_ms for who, what, since_ms in current.holding}
        now = tuple((*each, since.get(each, now_ms)) for each in sorted(holding)[:SHOWN])
        if now == current.holding:
            return False
        self.entries[-1] = replace(current, holding=now)
        return True

    def interrupted(self) -> bool:
        """Marks the running rebalance as interrupted by the next one; False if none was running."""
        current = self.latest
        if current is None or current.outcome != RUNNING:
            return False
        self.entries[-1] = replace(current, outcome=INTERRUPTED)
        return True

    def joined(self, member_id: str) -> None:
        self._last_to_join = member_id

    def synced(self, member_id: str) -> None:
        self._last_to_sync = member_id

    def gone(self, member_id: str, why: str) -> None:
        if len(self._went) < SHOWN:
            self._went[member_id] = why

    def join_completed(self, now_ms: int, generation_id: int, members: Iterable[str]) -> None:
        current = self.latest
        if current is None or current.outcome != RUNNING:
            return
        now = frozenset(members)
        self.entries[-1] = replace(
            current,
            generation_after=generation_id,
            join_ms=now_ms - current.began_ms,
            last_to_join=self._last_to_join,
            size=len(now),
            came=_cut(sorted(now - self._members)),
            went=tuple(self._went.items()),
            outcome=RUNNING if now else EMPTY,
        )
        self._members = now
        self._went = {}
        self._last_to_join = ""

    def stable(self, now_ms: int, assignments: dict[str, bytes]) -> None:
        """Ends the running rebalance; `assignments` are by instance id where there is one, else by member id."""
        current = self.latest
        if current is not None and current.outcome == RUNNING and current.join_ms is not None:
            moved = (m for m, a in assignments.items() if self._assignments.get(m) != a)
            self.entries[-1] = replace(
                current,
                outcome=STABLE,
                sync_ms=now_ms - current.began_ms - current.join_ms,
                last_to_sync=self._last_to_sync,
                moved=_cut(sorted(moved)),
                holding=(),
            )
        self._assignments = assignments
