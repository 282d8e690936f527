"""The strategies of `auto.offset.reset`: where a partition without a position begins."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kohort.settings import SettingError

LATEST_TIMESTAMP, EARLIEST_TIMESTAMP = -1, -2
"""The timestamps of ListOffsets that mean the end and the beginning of a log."""

_DURATION_UNITS = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1_000}


@dataclass(frozen=True, slots=True)
class AutoOffsetResetStrategy:
    """Where to go when there is no position: to a timestamp of ListOffsets; `none` has none and is an error."""

    name: str
    timestamp: int | None
    before_ms: int | None = None
    """How long before now, for `by_duration`."""

    def timestamp_at(self, now_ms: int) -> int | None:
        return max(0, now_ms - self.before_ms) if self.before_ms is not None else self.timestamp


EARLIEST = AutoOffsetResetStrategy("earliest", EARLIEST_TIMESTAMP)
LATEST = AutoOffsetResetStrategy("latest", LATEST_TIMESTAMP)
NO_RESET = AutoOffsetResetStrategy("none", None)


def reset_strategy(text: str) -> AutoOffsetResetStrategy:
    """Reads a value of `auto.offset.reset`; raises SettingError for a duration that is not ISO-8601."""
    fixed = {"earliest": EARLIEST, "latest": LATEST, "none": NO_RESET}.get(text)
    if fixed is not None:
        return fixed
    _, _, duration = text.partition(":")
    return AutoOffsetResetStrategy(text, None, _duration_ms(duration))


def _duration_ms(text: str) -> int:
    """Reads an ISO-8601 duration of days, hours, minutes and seconds."""
    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", text)
    if found is None or not any(found.groups()):
        raise SettingError(
            f"auto.offset.reset=by_duration:{text}: write the duration as ISO-8601, as in by_duration:PT1H"
        )
    parts = zip(found.groups(), _DURATION_UNITS.values(), strict=True)
    return int(sum(float(number) * unit for number, unit in parts if number))
