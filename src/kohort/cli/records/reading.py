"""The loop of `consume`: polls, prints, commits what was printed, and knows when to end."""

from __future__ import annotations

import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, BinaryIO

from kohort.cli.records.formats import Rows
from kohort.cli.records.interrupts import Interrupts
from kohort.cli.records.offsets import OffsetSpec
from kohort.cli.records.progress import ProgressLine
from kohort.client.consumer import Consumer
from kohort.client.errors import CommitFailed, RebalanceInProgress
from kohort.client.records import Record, Records
from kohort.client.types import TopicPartition

_AT_ONCE = 20_000
"""Records of one poll: so many are printed by one write."""
_LOOK_S = 0.25
"""How long a poll waits while an end is near, and while progress is drawn."""
_COMMIT_EVERY_S = 1.0
_offset = itemgetter(2)


@dataclass(slots=True)
class Reading:
    """What is read and how it ends. `run` returns when it has ended."""

    consumer: Consumer[bytes, bytes]
    render: Callable[[Rows], bytes]
    out: BinaryIO
    count: int | None = None
    """How many records to print."""
    until: tuple[OffsetSpec, ...] = ()
    """Where each partition ends; the first of them."""
    idle_s: float | None = None
    """How long to wait for another record."""
    pattern: re.Pattern[bytes] | None = None
    """Only records whose key or value matches are printed."""
    commits: bool = False
    progress: ProgressLine | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)
    """A signal ends a poll at once, but it does not come between the printing of records and the note that they are."""
    printed: int = field(default=0, init=False)
    _ends: dict[TopicPartition, int] | None = field(default=None, init=False)
    _next: dict[TopicPartition, int] = field(default_factory=dict, init=False)
    """The offset after the last record that was printed, where it is not committed."""
    _commit_at_s: float = field(default=0.0, init=False)

    # --- partitions come and go -----------------------------------------------------------------------

    def take_up(self, partitions: Collection[TopicPartition]) -> None:
        """Begins with partitions that the group has assigned to this member.

        Where they begin is committed too, as Java's consumer does it: a partition of which nothing is printed now must
        not begin somewhere else next time.
        """
        self.begin(partitions)
        for partition in partitions:
            self.start_at(partition, self.consumer.position(partition))
        self.drop_ended()

    def start_at(self, partition: TopicPartition, offset: int) -> None:
        """Notes where a partition begins."""
        if self.commits:
            self._next[partition] = offset

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        """Looks where partitions end, if they have an end."""
        if not self.until:
            return
        ends = [spec.of(self.consumer, partitions) for spec in self.until]
        self._ends = self._ends or {}
        for partition in partitions:
            self._ends[partition] = min(end[partition] for end in ends)

    def give_back(self, partitions: Collection[TopicPartition]) -> None:
        """Commits what was printed of partitions that go to another member."""
        self.commit()
        self.forget(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Lets partitions go that are lost already."""
        for partition in partitions:
            self._next.pop(partition, None)
            if self._ends is not None:
                self._ends.pop(partition, None)

    # --- the loop -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Prints records until the end, the count or the time is reached, or until a signal."""
        last_s = time.monotonic()
        while not self._is_done():
            try:
                with self.interrupts.at_once():
                    polled = self.consumer.poll(self._wait_s(), max_records=self._limit())
            except KeyboardInterrupt:
                break
            for partition, records in polled.items():
                self._take(partition, records)
            now_s = time.monotonic()
            if polled:
                last_s = now_s
            elif self._ends is not None:
                self.drop_ended()
            elif self.idle_s is not None and now_s - last_s >= self.idle_s:
                break
            self._look_after(now_s)

    def commit(self) -> None:
        """Commits what was printed, if this reader commits."""
        self._commit_at_s = time.monotonic() + _COMMIT_EVERY_S
        if not (self.commits and self._next):
            return
        try:
            self.consumer.commit(dict(self._next))
        except RebalanceInProgress:
            return  # the next poll finishes the rebalance, and the commit after it has these offsets too
        except CommitFailed as error:
            print(f"kohort: another member may print the last records again: {error}", file=sys.stderr)
        self._next.clear()

    def _look_after(self, now_s: float) -> None:
        if now_s >= self._commit_at_s:
            self.commit()
        if self.progress is not None:
            self.progress.show(self.printed)

    def _is_done(self) -> bool:
        return self._ends == {} or (self.count is not None and self.printed >= self.count)

    def _limit(self) -> int:
        if self.count is None or self.pattern is not None:
            return _AT_ONCE
        return min(_AT_ONCE, self.count - self.printed)

    def _wait_s(self) -> float:
        wait_s = _LOOK_S if self._ends is not None or self.progress is not None or self.commits else 1.0
        return wait_s if self.idle_s is None else min(wait_s, self.idle_s)

    def _take(self, partition: TopicPartition, records: Records[bytes, bytes]) -> None:
        """Prints the records of a partition that are before its end and within the count."""
        rows, after = records, records.next_offset
        end = None if self._ends is None else self._ends.get(partition)
        if end is not None and after > end:
            rows, after = records[: bisect_left(records, end, key=_offset)], end
        found: Rows = rows
        if self.pattern is not None:
            found = [row for row in rows if matches(self.pattern, row)]
        if self.count is not None and len(found) > self.count - self.printed:
            found = found[: self.count - self.printed]
            after = found[-1].offset + 1 if len(found) else after
        if len(found):
            self.out.write(self.render(found))
            self.out.flush()
            self.printed += len(found)
        if self.commits:
            self._next[partition] = after
        if end is not None and records.next_offset >= end:
            self._end(partition)

    def _end(self, partition: TopicPartition) -> None:
        assert self._ends is not None
        del self._ends[partition]
        self.consumer.pause(partition)

    def drop_ended(self) -> None:
        """Ends partitions whose position is at the end without a record: they are empty, or only markers follow."""
        for partition, end in list((self._ends or {}).items()):
            if self.consumer.position(partition) >= end:
                self._end(partition)


def matches(pattern: re.Pattern[bytes], row: Record[Any, Any]) -> bool:
    """Whether the value or the key of a record has the pattern in it."""
    return any(pattern.search(data) for data in (row.value, row.key) if data is not None)


def partitions_of(
    consumer: Consumer[Any, Any], topics: Iterable[str], numbers: Collection[int]
) -> list[TopicPartition]:
    """Returns the partitions of these topics, or those of these numbers; an unknown one is an error."""
    from kohort.client.errors import error_for
    from kohort.wire.errors import ErrorCode

    found: list[TopicPartition] = []
    for topic in topics:
        there = consumer.partitions_for(topic)
        if not there:
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}; see kohort topics list"
            )
        missing = set(numbers) - {each.partition for each in there}
        if missing:
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} has the partitions 0 to {len(there) - 1}; there is no partition {min(missing)}",
            )
        found += [each for each in there if not numbers or each.partition in numbers]
    return found
