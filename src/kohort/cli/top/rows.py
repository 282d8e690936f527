"""The rows of `kohort top`: what each group shows, in which order, and how numbers are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kohort.insight.health import Health
from kohort.insight.trends import Trends

_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
_SEVERITY = [Health.OK, Health.NOTFOUND, Health.WARN, Health.REWIND, Health.STALL, Health.STOP, Health.ERR]
TITLES = ("GROUP", "STATE", "HEALTH", "MEMBERS", "LAG", "LAG AGE", "READ/S", "WRITTEN/S", "CAUGHT UP IN")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the table; the names of the fields are those of `--json`."""

    group: str
    state: str
    health: str
    members: int
    lag: int
    lag_seconds: float | None
    consume_rate: float | None
    produce_rate: float | None
    caught_up_in_s: float | None
    lag_series: list[tuple[int, int]]

    def cells(self) -> tuple[str, ...]:
        """The cells under TITLES."""
        return (
            self.group,
            self.state,
            self.health,
            str(self.members),
            f"{self.lag:,}",
            shown_duration(self.lag_seconds),
            shown_rate(self.consume_rate),
            shown_rate(self.produce_rate),
            self.shown_eta(),
        )

    def shown_eta(self) -> str:
        if self.caught_up_in_s is None:
            is_known = self.lag > 0 and self.consume_rate is not None and self.produce_rate is not None
            return "never" if is_known else "-"
        return "caught up" if self.caught_up_in_s == 0 else shown_duration(self.caught_up_in_s)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Key = Callable[[GroupRow], Any]
SORTS: dict[str, Key] = {
    "lag": lambda row: -row.lag,
    "age": lambda row: -(row.lag_seconds or 0.0),
    "health": lambda row: (-_SEVERITY.index(Health(row.health)), -row.lag),
    "members": lambda row: -row.members,
    "read": lambda row: -(row.consume_rate or 0.0),
    "written": lambda row: -(row.produce_rate or 0.0),
    "state": lambda row: row.state,
    "group": lambda row: row.group,
}
"""What rows can be sorted by; numbers put the largest first."""


@dataclass(frozen=True, slots=True)
class RowChoice:
    """Which groups are shown, and in which order."""

    search: str = ""
    states: tuple[str, ...] = ()
    healths: tuple[str, ...] = ()
    sort: str = "lag"
    reverse: bool = False

    def rows(self, trends: Trends) -> list[GroupRow]:
        """The rows of the latest sample."""
        if trends.latest is None:
            return []
        rows = []
        for group_id, trend in trends.groups().items():
            sample = trends.latest.groups[group_id]
            row = GroupRow(
                group_id, sample.state, trend.health.value, len(sample.members), trend.lag, trend.lag_seconds,
                trend.consume_rate, trend.produce_rate, trend.caught_up_in_s, trend.lag_series,
            )  # fmt: skip
            if self._is_chosen(row):
                rows.append(row)
        rows.sort(key=lambda row: row.group)
        rows.sort(key=SORTS[self.sort], reverse=self.reverse)
        return rows

    def _is_chosen(self, row: GroupRow) -> bool:
        return (
            self.search.lower() in row.group.lower()
            and (not self.states or row.state.lower() in self.states)
            and (not self.healths or row.health.lower() in self.healths)
        )


def shown_duration(seconds: float | None) -> str:
    """A time for people: `0 s`, `1 m 15 s`, `2 d 3 h`."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    for size, name, smaller, of in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size:,} {name} {rest} {of}" if rest else f"{whole // size:,} {name}"
    return f"{whole} s"


def shown_rate(rate: float | None) -> str:
    """Records in a second for people: `0.5`, `12`, `1.2k`."""
    if rate is None:
        return "-"
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= 0.9995 * size:
            return f"{rate / size:.3g}{name}" if rate < 999.5 * size else f"{rate / size:,.0f}{name}"
    return f"{rate:.0f}" if rate >= 9.95 or rate == 0 else f"{rate:.1f}"


def sparkline(series: Sequence[tuple[int, int]], width: int, *, plain: bool = False) -> str:
    """Draws points over time: each character stands for the same time, and the largest value is a full bar."""
    if not series or width <= 0:
        return ""
    bars = _PLAIN_BARS if plain else _BARS
    first_ms, last_ms = series[0][0], series[-1][0]
    step_ms = max(1.0, (last_ms - first_ms) / width)
    values: list[int] = []
    position = 0
    for column in range(width if last_ms > first_ms else 1):
        until_ms = first_ms + (column + 1) * step_ms
        while position + 1 < len(series) and series[position + 1][0] <= until_ms:
            position += 1
        values.append(series[position][1])
    top = max(*values, 1) if values else 1
    return "".join(bars[min(len(bars) - 1, value * len(bars) // (top + 1))] for value in values)
