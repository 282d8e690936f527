"""Where to begin and where to end: what `-o` and `--until` say, and the offsets that this is in each partition."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import click

from kohort.client.consumer import Consumer
from kohort.client.types import TopicPartition

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAMES = {
    "beginning": "beginning",
    "earliest": "beginning",
    "end": "end",
    "latest": "end",
    "stored": "stored",
}
_HELP = (
    "write beginning, end, stored, an offset (17), the last of each partition (-10), milliseconds since 1970 "
    "(@1700000000000), an ISO time (2026-11-16T20:00, UTC unless it has a zone), or a time ago (@-15m)"
)


class OffsetKind(Enum):
    """What kind of place in a partition a text names."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A place in every partition: an offset, a time, or a number of records before the end."""

    kind: OffsetKind
    number: int = 0

    def of(
        self, consumer: Consumer[Any, Any], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Returns the offset in each partition; one that the log does not have becomes the nearest that it has."""
        if not partitions:
            return {}
        if self.kind is OffsetKind.STORED:
            return self._stored(consumer, partitions)
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        if self.kind is OffsetKind.BEGINNING:
            return begins
        if self.kind is OffsetKind.END:
            return ends
        if self.kind is OffsetKind.LAST:
            return {each: max(begins[each], ends[each] - self.number) for each in partitions}
        if self.kind is OffsetKind.OFFSET:
            return {each: min(max(self.number, begins[each]), ends[each]) for each in partitions}
        found = consumer.offsets_for_times(dict.fromkeys(partitions, self.number))
        return {each: ends[each] if at is None else at.offset for each, at in found.items()}

    def _stored(
        self, consumer: Consumer[Any, Any], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Returns what the group has committed; where that is nothing, the end, as `auto.offset.reset` would."""
        committed = consumer.committed(partitions)
        missing = [each for each in partitions if committed.get(each) is None]
        ends = consumer.end_offsets(missing) if missing else {}
        return ends | {each: at.offset for each, at in committed.items() if at is not None}


def parsed_offset(text: str, now_ms: int) -> OffsetSpec:
    """Reads what `-o` or `--until` says."""
    said = text.strip()
    if said in _NAMES:
        return OffsetSpec(OffsetKind(_NAMES[said]))
    if re.fullmatch(r"\d{1,18}", said):
        return OffsetSpec(OffsetKind.OFFSET, int(said))
    if re.fullmatch(r"-\d{1,18}", said):
        return OffsetSpec(OffsetKind.LAST, int(said[1:]))
    if at := re.fullmatch(r"@(\d{1,18})", said):
        return OffsetSpec(OffsetKind.TIME, int(at[1]))
    if ago := re.fullmatch(r"@-(\d{1,12})(ms|s|m|h|d)", said):
        return OffsetSpec(OffsetKind.TIME, max(0, now_ms - int(ago[1]) * _UNITS_MS[ago[2]]))
    try:
        when = datetime.fromisoformat(said.removeprefix("@"))
    except ValueError:
        raise click.UsageError(f"{text!r} is no offset and no time: {_HELP}") from None
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return OffsetSpec(OffsetKind.TIME, max(0, int(aware.timestamp() * 1000)))
