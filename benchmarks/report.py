"""From figures to tables, benchmarks/RESULTS.md and its pictures.

`python -m benchmarks.report` draws the pictures of the brokers again from the tables that are in RESULTS.md.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import Run

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: a figure of Kohort (`subject`) against the same figure of Kafka."""

    key: str
    subject: str
    label: str
    unit: str
    goal: float | None = None  # of the ratio, or of the value where Kafka is not measured
    at_least: bool = False
    absolute: bool = False


FIGURES = (
    Figure("start", "kohort", "start to first produce", "s", 1 / 8),
    Figure("recovery", "kohort", "ready after SIGKILL with 1 GB", "s", 1.0, absolute=True),
    Figure("memory_idle", "kohort", "resident memory, idle", "MB", 1 / 6),
    Figure("memory_loaded", "kohort-os", "resident memory, after load", "MB", 1 / 6),
    *(
        figure
        for size in (16, 128)
        for subject, goals in (("kohort-os", (1.0, 0.6)), ("kohort-disk", (None, None)))
        for figure in (
            Figure(
                f"produce{size}_mb_per_s",
                subject,
                f"produce {size} KB, {subject[7:]}",
                "MB/s",
                goals[0],
                True,
            ),
            Figure(
                f"produce{size}_cpu_s_per_gb",
                subject,
                f"produce {size} KB, {subject[7:]}",
                "CPU s/GB",
                goals[1],
            ),
        )
    ),
    Figure("fetch_mb_per_s", "kohort-os", "fetch", "MB/s", 1.0, True),
    Figure("fetch_cpu_s_per_gb", "kohort-os", "fetch", "CPU s/GB", 1.2),
    Figure("partitions_each_kb", "kohort", "one of 10,000 partitions, idle", "KB", 2.0, absolute=True),
    Figure("partitions_written_each_kb", "kohort", "… just written, before it is unloaded", "KB"),
    Figure("partitions_made", "kohort", "resident with 10,000 partitions", "MB"),
    Figure("partitions_written", "kohort", "… with a record in each", "MB"),
    Figure("partitions_restarted", "kohort", "… after clean stop and start", "MB"),
    Figure("partitions_start", "kohort", "start to produce with 10,000 partitions", "s", 3.0, absolute=True),
)

GROUP_FIGURES = (
    Figure("heartbeat_per_s", "kohort-os", "heartbeats", "1/s", 1.2, True),
    Figure("heartbeat_cpu_us", "kohort-os", "heartbeats", "CPU µs each", 0.6),
    Figure("consumer_heartbeat_per_s", "kohort-os", "heartbeats of KIP-848", "1/s", 1.2, True),
    Figure("consumer_heartbeat_cpu_us", "kohort-os", "heartbeats of KIP-848", "CPU µs each", 0.6),
    Figure("commit_per_s", "kohort-os", "commits of 10 partitions, os", "1/s", 1.2, True),
    Figure("commit_cpu_us", "kohort-os", "commits of 10 partitions, os", "CPU µs each"),
    Figure("commit_per_s", "kohort-disk", "commits of 10 partitions, disk", "1/s", 0.7, True),
    Figure("commit_cpu_us", "kohort-disk", "commits of 10 partitions, disk", "CPU µs each"),
    Figure("rebalance_s", "kohort-os", "500 members rejoin, os", "s", 1.2),
    Figure("rebalance_s", "kohort-disk", "500 members rejoin, disk", "s", 1.2),
    Figure("big_group_first_s", "kohort-os", "5,000 members settle, from nothing", "s"),
    Figure("big_group_rejoin_s", "kohort-os", "5,000 members rejoin", "s"),
    Figure("idle_group_kb", "kohort", "one of 10,000 idle groups", "KB", 20.0, absolute=True),
    Figure("idle_cpu_percent", "kohort", "10,000 idle groups", "% of a core", 1.0, absolute=True),
    Figure("reload_full_s", "kohort", "start with 1,000,000 commits", "s"),
    Figure("reload_full_mb", "kohort", "… which are in the log", "MB"),
    Figure("reload_compacted_s", "kohort", "start after compaction", "s"),
    Figure("reload_compacted_mb", "kohort", "… and what it left", "MB"),
    Figure("reload_crashed_s", "kohort", "start after compaction and SIGKILL", "s"),
)


@dataclass(frozen=True, slots=True)
class Line:
    figure: Figure
    kafka: list[float]
    kohort: list[float]

    @property
    def ratio(self) -> float | None:
        if not self.kafka or not self.kohort:
            return None
        return statistics.median(self.kohort) / statistics.median(self.kafka)

    @property
    def times_better(self) -> float | None:
        """The ratio so that more is better: of times, memory and CPU it is turned over."""
        return self.ratio if self.ratio is None or self.figure.at_least else 1 / self.ratio

    @property
    def goal_times_better(self) -> float | None:
        goal = None if self.figure.absolute else self.figure.goal
        return goal if goal is None or self.figure.at_least else 1 / goal

    @property
    def met(self) -> bool | None:
        measured = statistics.median(self.kohort) if self.figure.absolute and self.kohort else self.ratio
        if self.figure.goal is None or measured is None:
            return None
        return measured >= self.figure.goal if self.figure.at_least else measured <= self.figure.goal

    @property
    def goal(self) -> str:
        goal, sign = self.figure.goal, "≥" if self.figure.at_least else "≤"
        if goal is None:
            return ""
        if self.figure.absolute:
            return f"{sign} {goal:g} {self.figure.unit}"
        return f"{sign} 1/{1 / goal:.0f}" if goal < 0.5 else f"{sign} {goal:g}×"

    def cells(self) -> list[str]:
        ratio = "" if self.ratio is None else f"{self.ratio:.3g}×"
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        unit = self.figure.unit
        return [self.figure.label, unit, _middle(self.kafka), _middle(self.kohort), ratio, self.goal, verdict]


_GROUP_NOTES = (
    "- Both brokers with group.initial.rebalance.delay.ms=0; Kafka's `__consumer_offsets` is not synced, so `disk` "
    "does more than it.",
    "- heartbeats: Heartbeat v3, 16 groups of one member, each on its own connection with one request in flight.",
    "- heartbeats of KIP-848: ConsumerGroupHeartbeat v0 of members that have settled, otherwise as heartbeats.",
    "- commits: OffsetCommit v7 of 10 partitions, generation −1, 16 groups and connections, one in flight on each.",
    "- 500 members rejoin: one group, each member on its own connection, JoinGroup v5 with changed metadata until all "
    "have a SyncGroup v3 answer; each figure a median of 5. 5,000 members once; from nothing means no member ids yet.",
    "- idle groups: RSS over that of a broker with one group; CPU of the whole broker over 5 s.",
    "- start with commits: from the start of the process until OffsetFetch answers with the last offset committed. "
    "One group, 10 partitions, 1,000,000 commits of one partition each, so all are in one partition of "
    "`__consumer_offsets`. Compaction leaves the segment that is written to alone: what is loaded per partition is "
    "bounded by offsets.topic.segment.bytes (100 MB) of tail, what became dirty since the last pass (as much as is "
    "clean, at least a segment), and the last commit of each key.",
)

PICTURE_NOTE = (
    "In the pictures to the right is better in every row: where less is better (time, memory, CPU) the ratio is turned "
    "over, and so is its goal."
)
HEADINGS = ["row", "unit", "Apache Kafka", "Kohort", "Kohort/Kafka", "goal", ""]


def lines(run: Run, figures: tuple[Figure, ...] = FIGURES + GROUP_FIGURES) -> list[Line]:
    found = (
        Line(f, run.figures.get((f.key, "kafka"), []), run.figures.get((f.key, f.subject), []))
        for f in figures
    )
    return [line for line in found if line.kafka or line.kohort]


def _middle(values: list[float]) -> str:
    """Median, and the range it comes from."""
    if not values:
        return "–"
    low, high, middle = min(values), max(values), statistics.median(values)
    return f"{_short(middle)}" + (f" ({_short(low)}–{_short(high)})" if len(values) > 1 else "")


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(found: list[Line]) -> str:
    rows = [HEADINGS, *(line.cells() for line in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def machine() -> str:
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({model[0] if model else platform.machine()}), {memory:.0f} GB, "
        f"Linux {platform.release()}, Python {platform.python_version()}"
    )


def write(run: Run, command: str, took_s: float) -> None:
    found, of_groups = lines(run, FIGURES), lines(run, GROUP_FIGURES)
    body = [
        "# Kohort beside Apache Kafka 4.3.1",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {took_s:.0f} s, "
        f"{run.rounds} rounds ({min(run.rounds, 3)} of start and recovery); medians, with the range in brackets.",
        f"Machine: {machine()}; load average before the run {run.busy:.1f}. "
        "The load runs on the same cores as the brokers: only ratios from one run mean much.",
        "",
        "## The log",
        "",
        *_markdown(found),
        "",
        "- produce: Produce v7 with acks=all, 8 connections, 8 partitions, 5 in flight, values of 1 KB. "
        "`os` answers when the bytes are with the kernel, as Kafka does; `disk` answers after an fdatasync, "
        "and is set against the same Kafka.",
        "- fetch: Fetch v11, 8 connections, 1 MB a partition, from the page cache.",
        "- CPU is the broker's own (user and system, from /proc), without the load's.",
        "- start and recovery: from the start of the process until an acks=all produce is answered; "
        "Kohort with its default, `disk`.",
        "- 10,000 partitions: Kohort alone, with an open-files limit of 1,024. A partition that was written gives its "
        "memory back in the round of housekeeping after its last write (tests/log/test_unload.py).",
        "",
        "![how many times better Kohort is](results.png)",
        "",
        PICTURE_NOTE,
        "",
        "## Groups",
        "",
        *_markdown(of_groups),
        "",
        *_GROUP_NOTES,
        "",
        "![how many times better Kohort is, groups](results-groups.png)",
        "",
        *(f"- FAILED: {trouble}" for trouble in run.trouble),
    ]
    replace_section("brokers", body)
    draw(found, HERE / "results.png")
    draw(of_groups, HERE / "results-groups.png")


def replace_section(name: str, body: list[str]) -> None:
    """RESULTS.md has one section per command; each run replaces its own and leaves the others."""
    file = HERE / "RESULTS.md"
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = (file.read_text() if file.exists() else "").partition(start)
    after = rest.partition(end)[2] if found else ""
    section = "\n".join([start, *body, end])
    file.write_text("\n\n".join(part for part in (before.strip(), section, after.strip()) if part) + "\n")


def _markdown(found: list[Line]) -> list[str]:
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(line.cells() for line in found)]
    return ["| " + " | ".join(row) + " |" for row in rows]


def written(figures: tuple[Figure, ...]) -> list[Line]:
    """The medians that RESULTS.md holds."""
    named = {(figure.label, figure.unit): figure for figure in figures}
    found = []
    for row in (HERE / "RESULTS.md").read_text().splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        figure = named.get((cells[0], cells[1])) if len(cells) == len(HEADINGS) else None
        if figure is not None:
            kafka, kohort = ([float(cell.split()[0])] if cell != "–" else [] for cell in cells[2:4])
            found.append(Line(figure, kafka, kohort))
    return found


def draw(measured: list[Line], path: Path) -> None:
    """How many times better Kohort is: bars on a logarithmic scale, to the right is better, each with its goal."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found = [line for line in measured if line.ratio]
    colours = {True: "#2a7f62", False: "#c1443c", None: "#8a94a0"}
    picture, axes = pyplot.subplots(figsize=(9.5, 0.42 * len(found) + 1.9), dpi=130)
    for at, line in enumerate(found):
        better, goal = line.times_better, line.goal_times_better
        assert better is not None
        axes.barh(at, better - 1, left=1, height=0.62, color=colours[line.met])
        if goal is not None:
            axes.plot([goal] * 2, [at - 0.42, at + 0.42], color="black", linewidth=2)
        kohort, kafka = (_short(statistics.median(each)) for each in (line.kohort, line.kafka))
        text = f"{better:.2g}×  ({kohort}, Kafka {kafka})"
        axes.text(max(better, goal or 1, 1) * 1.06, at, text, va="center", fontsize=7.5)
    axes.set_yticks(range(len(found)), [f"{x.figure.label}  [{x.figure.unit}]" for x in found], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    betters = [line.times_better or 1.0 for line in found]
    axes.set_xlim(min([0.7, *betters]) / 1.1, max([2.0, *betters]) * (4 if max(betters) > 5 else 2))
    left, right = axes.get_xlim()
    marks = [m for m in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if left <= m <= right]
    axes.set_xticks(marks, [f"{m:g}×" for m in marks], fontsize=8)
    axes.minorticks_off()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.grid(axis="x", alpha=0.25)
    axes.set_title(
        "How many times better Kohort is than Apache Kafka 4.3.1 (same machine, same run)\n"
        "to the right is better in every row: more a second, less time, less memory, less CPU",
        fontsize=9,
    )
    key = [
        Patch(color=colours[True], label="goal met"),
        Patch(color=colours[False], label="goal missed"),
        Patch(color=colours[None], label="no goal"),
        Line2D([], [], color="black", linewidth=2, label="goal"),
    ]
    axes.legend(
        handles=key, fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.4, -0.05), frameon=False
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    picture.tight_layout()
    picture.savefig(path)
    pyplot.close(picture)


if __name__ == "__main__":
    draw(written(FIGURES), HERE / "results.png")
    draw(written(GROUP_FIGURES), HERE / "results-groups.png")
