"""Writes the report of `group-history`: pictures of each group, and one HTML file that has them all in it.

Pictures need matplotlib; without it the report has its tables and says what to install.
"""

from __future__ import annotations

import base64
import html
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

MOST_GROUPS = 20
MOST_LINES = 12
MOST_BARS = 60
MOST_OWNED = 40
MOST_ROWS = 30


@dataclass(slots=True)
class GroupPart:
    """What the report shows of one group, in rows as the tables have them."""

    group_id: str
    lag: list[dict[str, Any]] = field(default_factory=list)
    rebalances: list[dict[str, Any]] = field(default_factory=list)
    memberships: list[dict[str, Any]] = field(default_factory=list)

    @property
    def weight(self) -> int:
        return len(self.rebalances) * 100 + len(self.memberships) * 10 + len(self.lag)


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    file: str
    data: bytes


def write_report(out: Path) -> Path:
    """Pictures and index.html in OUT/report, from the tables in OUT; returns the HTML file."""
    groups = read_groups(out)
    ordered = sorted(groups.values(), key=lambda each: (-each.weight, each.group_id))
    shown, left_out = ordered[:MOST_GROUPS], [each.group_id for each in ordered[MOST_GROUPS:]]
    folder = out / "report"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    pictures = {each.group_id: draw(each) for each in shown}
    for of_group in pictures.values():
        for picture in of_group or ():
            (folder / picture.file).write_bytes(picture.data)
    page = folder / "index.html"
    page.write_text(_page(shown, pictures, left_out, count_rows(out, "commits"), problems(out)), "utf-8")
    return page


# --- the tables ---------------------------------------------------------------------------------------


def read_groups(out: Path) -> dict[str, GroupPart]:
    """Reads the derived tables, by group."""
    groups: dict[str, GroupPart] = {}
    for name in ("lag", "rebalances", "memberships"):
        for row in _rows(out, name):
            part = groups.setdefault(row["group_id"], GroupPart(row["group_id"]))
            getattr(part, name).append(row)
    for part in groups.values():
        part.lag.sort(key=lambda row: (row["topic"], row["partition"], row["at"]))
        part.rebalances.sort(key=lambda row: row["completed_at"])
        part.memberships.sort(key=lambda row: (row["topic"] or "", row["partition"] or 0, row["from_at"]))
    return groups


def count_rows(out: Path, name: str) -> int:
    table = _dataset(out, name)
    return 0 if table is None else int(table.count_rows())


def problems(out: Path) -> Counter[str]:
    """Counts the records that were kept aside, by what is wrong with them or what they are."""
    table = _dataset(out, "aside")
    if table is None:
        return Counter()
    rows = table.to_table(columns=["kind", "problem"]).to_pylist()
    return Counter(f"{row['kind']}: {row['problem']}" for row in rows)


def _rows(out: Path, name: str) -> list[dict[str, Any]]:
    table = _dataset(out, name)
    return [] if table is None else _in_utc(table.to_table().to_pylist())


def _in_utc(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        for name, value in row.items():
            if isinstance(value, datetime):
                row[name] = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return rows


def _dataset(out: Path, name: str) -> Any:
    import pyarrow.dataset

    folder = out / name
    if not any(folder.rglob("*.parquet")):
        return None
    return pyarrow.dataset.dataset(str(folder), format="parquet")


# --- pictures -----------------------------------------------------------------------------------------


def draw(part: GroupPart) -> list[Picture] | None:
    """The pictures of one group; None if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    makers: tuple[tuple[str, str, list[dict[str, Any]], Callable[[Any, GroupPart], None]], ...] = (
        ("Lag per partition", "lag", part.lag, _draw_lag),
        ("How long rebalances took", "rebalances", part.rebalances, _draw_rebalances),
        ("Who owned what when", "owners", part.memberships, _draw_owners),
    )
    made = []
    for title, kind, rows, maker in makers:
        if not rows:
            continue
        figure = Figure(figsize=(10, 3.6), dpi=110, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(f"{part.group_id}: {title.lower()}", fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        maker(axes, part)
        if kind == "owners":
            figure.set_size_inches(10, max(2.2, 1.4 + 0.22 * len(axes.get_yticks())))
        made.append(Picture(title, f"{kind}-{file_name(part.group_id)}.png", _png(figure)))
    return made


def _png(figure: Any) -> bytes:
    import io

    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()


def _draw_lag(axes: Any, part: GroupPart) -> None:
    lines: dict[str, tuple[list[datetime], list[int]]] = {}
    for row in part.lag:
        at, behind = lines.setdefault(f"{row['topic']}-{row['partition']}", ([], []))
        at.append(row["at"])
        behind.append(row["lag"])
    most = sorted(lines.items(), key=lambda line: -max(line[1][1]))
    for name, (at, behind) in most[:MOST_LINES]:
        axes.plot(at, behind, label=name, linewidth=1.4, marker="." if len(at) < 10 else None)
    if len(most) > MOST_LINES:
        axes.set_xlabel(f"the {MOST_LINES} of {len(most)} partitions that were furthest behind", fontsize=8)
    axes.set_ylabel("records behind", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    _time_axis(axes)


def _draw_rebalances(axes: Any, part: GroupPart) -> None:
    rows = part.rebalances[-MOST_BARS:]
    places = range(len(rows))
    join = [row["join_ms"] or 0 for row in rows]
    sync = [row["sync_ms"] or 0 for row in rows]
    axes.bar(places, join, color="#4c78a8", label="join")
    axes.bar(places, sync, bottom=join, color="#f58518", label="sync")
    for place, row in zip(places, rows, strict=True):
        if row["join_ms"] is None and row["sync_ms"] is None:
            axes.annotate("?", (place, 0), ha="center", va="bottom", fontsize=8, color="#888888")
    step = max(1, len(rows) // 20)
    axes.set_xticks(list(places)[::step], [str(row["generation"]) for row in rows[::step]])
    axes.set_xlabel("generation (? : the log does not say how long it took)", fontsize=8)
    axes.set_ylabel("ms", fontsize=8)
    axes.legend(fontsize=7, frameon=False)


def _draw_owners(axes: Any, part: GroupPart) -> None:
    owned = [row for row in part.memberships if row["topic"] is not None]
    names = sorted({(row["topic"], row["partition"]) for row in owned})[:MOST_OWNED]
    places = {name: place for place, name in enumerate(names)}
    known = [
        row[edge] for row in part.memberships for edge in ("from_at", "until_at") if row[edge] is not None
    ]
    first, last = min(known), max(known)
    # A partition that is still owned has no end: it is drawn a little beyond the last change.
    end = last + max((last - first) / 20, timedelta(seconds=1))
    colours: dict[str, Any] = {}
    for row in owned:
        place = places.get((row["topic"], row["partition"]))
        if place is None:
            continue
        who = row["group_instance_id"] or row["member_id"]
        colour = colours.setdefault(who, f"C{len(colours) % 10}")
        until = row["until_at"] or end
        span = until - row["from_at"]
        axes.barh(place, span, left=row["from_at"], height=0.7, color=colour, label=_short(who), alpha=0.85)
    axes.set_yticks(range(len(names)), [f"{topic}-{partition}" for topic, partition in names])
    axes.invert_yaxis()
    if colours:
        _legend_once(axes)
    _time_axis(axes)


def _legend_once(axes: Any) -> None:
    """Draws a legend with one line for each member, which has many bars."""
    handles: dict[str, Any] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        handles.setdefault(label, handle)
    shown = list(handles.items())[:MOST_LINES]
    axes.legend(
        [handle for _, handle in shown], [label for label, _ in shown], fontsize=7, loc="upper left",
        bbox_to_anchor=(1.0, 1.0), frameon=False,
    )  # fmt: skip


def _time_axis(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def _short(member_id: str) -> str:
    """Shortens the uuid at the end of member ids: eight characters of it tell two apart."""
    return re.sub(r"([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", r"\1…", member_id)


def file_name(group_id: str) -> str:
    """A name for files from that of a group, which may hold any character."""
    plain = re.sub(r"[^\w.-]", "_", group_id)[:60]
    return plain if plain == group_id else f"{plain}-{zlib.crc32(group_id.encode()):08x}"


# --- the page -----------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
img { max-width: 100%; background: #fff; border-radius: 6px; margin: .5rem 0; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; border-bottom: 1px solid #8884; }
h2 { margin-top: 2.5rem; }
"""


def _page(
    groups: list[GroupPart],
    pictures: dict[str, list[Picture] | None],
    left_out: list[str],
    commits: int,
    aside: Counter[str],
) -> str:
    body = [
        "<h1>Consumer groups</h1>",
        f"<p>{len(groups) + len(left_out)} groups, {commits:,} commits. Times are UTC. What compaction took from "
        "<code>__consumer_offsets</code> before it was read is not here.</p>",
    ]
    if any(made is None for made in pictures.values()):
        body.append("<p>There are no pictures: <code>pip install matplotlib</code>, and run it again.</p>")
    if left_out:
        names = ", ".join(map(html.escape, left_out))
        body.append(f"<p>{len(left_out)} groups with less to tell are only in the tables: {names}.</p>")
    body += [_section(part, pictures[part.group_id] or []) for part in groups]
    body.append(
        f"<h2>Kept aside</h2><p>{sum(aside.values()):,} records that are not commits or classic groups.</p>"
    )
    if aside:
        body.append(
            _table(
                ("RECORDS", "WHAT"), [(f"{count:,}", what) for what, count in aside.most_common(MOST_ROWS)]
            )
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Consumer groups</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _section(part: GroupPart, pictures: list[Picture]) -> str:
    text = [f"<h2>{html.escape(part.group_id)}</h2>"]
    for picture in pictures:
        data = base64.b64encode(picture.data).decode()
        name = html.escape(f"{picture.title} of {part.group_id}")
        text.append(f'<img alt="{name}" src="data:image/png;base64,{data}">')
    if part.rebalances:
        last = part.rebalances[-MOST_ROWS:]
        title = "Rebalances" if len(last) == len(part.rebalances) else f"The last {len(last)} rebalances"
        text.append(f"<h3>{title}</h3>")
        titles = ("WHEN", "GENERATION", "MEMBERS", "JOIN MS", "SYNC MS", "CAME", "WENT", "MOVED", "REASON")
        text.append(_table(titles, [_rebalance_row(row) for row in last]))
    return "".join(text)


def _rebalance_row(row: dict[str, Any]) -> tuple[str, ...]:
    def number(value: int | None) -> str:
        return "–" if value is None else f"{value:,}"

    def some(names: list[str] | None) -> str:
        shown = [_short(name) for name in (names or [])[:5]]
        return ", ".join(shown) + (f" and {len(names or []) - 5} more" if len(names or []) > 5 else "")

    return (
        f"{row['completed_at']:%Y-%m-%d %H:%M:%S}",
        f"{number(row['generation_before'])} → {row['generation']}",
        number(row["members"]), number(row["join_ms"]), number(row["sync_ms"]), some(row["came"]), some(row["went"]),
        number(len(row["moved"] or [])), _short(row["reason"] or ""),
    )  # fmt: skip


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{lines}</table>"
