"""Writes the report at the end of the demo: tables on the terminal, and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from kohort.cli.demo.processes import GROUP, PARTITIONS
from kohort.cli.demo.sums import OrdersByOffset, Sums, wrong
from kohort.cli.frame.output import print_table, short_ids
from kohort.coordinator.history import Rebalance


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the demo at one moment."""

    at_s: float
    written: int
    worked: int
    """Orders processed by the members that are plain consumers."""
    lag: int
    state: str
    members: int
    summed: int | None
    """Orders summed up by Spark; None without Spark."""
    batch: int | None
    batch_rows_per_s: float


class DemoWorker(Protocol):
    """A member of the group as the report needs it: a plain consumer or Spark."""

    began_s: float
    ended_s: float
    killed: bool
    owned: list[tuple[float, list[int]]]
    worked: list[tuple[int, int, int]]
    records: int


# --- tables -------------------------------------------------------------------------------------------


def print_report(
    samples: Sequence[Sample],
    workers: Mapping[str, DemoWorker],
    sent: int,
    rebalances: Sequence[Rebalance],
    sums: Sequence[Sums] = (),
    orders: OrdersByOffset | None = None,
) -> bool:
    """Prints what happened; returns whether it is what should have happened."""
    print(f"\nThe group, and why it rebalanced (kohort groups why {GROUP}):")
    print_table(("REBALANCE", "TOOK", "MEMBERS", "WHY"), [_rebalance_row(each) for each in rebalances])
    print("\nIts members:")
    print_table(
        ("MEMBER", "FROM", "TO", "ORDERS", "END"),
        [
            (
                name,
                f"{w.began_s:.1f} s",
                f"{w.ended_s:.1f} s",
                f"{w.records:,}",
                "killed" if w.killed else "left",
            )
            for name, w in workers.items()
        ],
    )
    distinct, total = worked_on(workers.values())
    checks = [
        (
            distinct == sent,
            f"{distinct:,} of {sent:,} orders were worked on by the group; {total - distinct:,} of them twice, "
            "because the member that had them was gone before it committed",
        )
    ]
    if orders is not None:
        print("\nWhat Spark has summed up, of the partitions that it had:")
        print_table(("ITEM", "ORDERS", "REVENUE"), _revenue(sums))
        summed = sum(each.after - each.first for each in sums)
        bad = wrong(sums, orders)
        checks.append(
            (
                bool(sums) and not bad,
                f"{summed:,} orders are in Spark's sums, in each batch every one once and with its price"
                + "".join(f"; not so in batch {each.batch}, partition {each.partition}" for each in bad[:5]),
            )
        )
    print("\nHow fast, and how far behind:")
    print_table(("", "ORDERS/S", "MOST BEHIND", "BEHIND AT THE END"), _speeds(samples))
    print()
    for good, text in checks:
        print(f"{'ok' if good else 'FAILED'}: {text}")
    return all(good for good, _ in checks)


def _revenue(sums: Sequence[Sums]) -> list[tuple[str, str, str]]:
    items = sorted({item for each in sums for item in each.orders})
    rows = []
    for item in items:
        orders = sum(each.orders.get(item, 0) for each in sums)
        cents = sum(each.cents.get(item, 0) for each in sums)
        rows.append((item, f"{orders:,}", f"{cents / 100:,.2f}"))
    return rows


def _rebalance_row(each: Rebalance) -> tuple[Any, ...]:
    took = "–" if each.join_ms is None else f"{each.join_ms + (each.sync_ms or 0)} ms"
    after = "…" if each.generation_after is None else each.generation_after
    why = short_ids(each.reason)
    for member_id, how in each.went:
        if member_id not in each.reason:
            why += f"; went: {short_ids(member_id)} ({how})"
    return f"{each.generation_before} → {after}", took, each.size, why


def worked_on(workers: Iterable[DemoWorker]) -> tuple[int, int]:
    """How many different offsets were processed, and how many in total, with repetitions."""
    pieces = [piece for worker in workers for piece in worker.worked]
    distinct = total = 0
    for partition in range(PARTITIONS):
        ranges = sorted((first, after) for p, first, after in pieces if p == partition)
        reached = 0
        for first, after in ranges:
            total += after - first
            distinct += max(0, after - max(first, reached))
            reached = max(reached, after)
    return distinct, total


def _speeds(samples: Sequence[Sample]) -> list[tuple[Any, ...]]:
    writing = [s for s in samples if s.written < samples[-1].written] or list(samples)
    written_per_s = writing[-1].written / max(0.1, writing[-1].at_s)
    rows: list[tuple[Any, ...]] = [("written", f"{written_per_s:,.0f}", "", "")]
    last = samples[-1]
    worked_per_s = (last.worked + (last.summed or 0)) / max(0.1, last.at_s)
    rows.append(
        (f"group {GROUP}", f"{worked_per_s:,.0f}", f"{max(s.lag for s in samples):,}", f"{last.lag:,}")
    )
    if last.summed is not None:
        best = max(s.batch_rows_per_s for s in samples)
        rows.append(("Spark, best batch", f"{best:,.0f}", "", ""))
    return rows


# --- the picture --------------------------------------------------------------------------------------


def draw(
    samples: Sequence[Sample],
    workers: Mapping[str, DemoWorker],
    rebalances: Sequence[Rebalance],
    began_ms: float,
    path: Path,
) -> str | None:
    """Draws the picture; returns why not if it cannot be drawn."""
    try:
        import matplotlib
    except ImportError:
        return "the picture, because matplotlib is not installed: pip install matplotlib"
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        3, 1, figsize=(11, 9.5), dpi=120, sharex=True, height_ratios=[3, 3, 2.2 + 0.35 * len(workers)]
    )
    _draw_rates(panels[0], samples)
    _draw_lag(panels[1], samples)
    _draw_members(panels[2], workers)
    when = [(each.began_ms - began_ms) / 1000 for each in rebalances]
    for panel in panels:
        for at_s in when:
            panel.axvline(at_s, color="#c1443c", linewidth=0.8, alpha=0.6, zorder=0)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    notes = [f"{at_s:5.1f} s  {short_ids(each.reason)}" for at_s, each in zip(when, rebalances, strict=True)]
    panels[2].set_xlabel("seconds; red lines are rebalances", fontsize=8)
    panels[2].set_xlim(0, max(samples[-1].at_s, *when) if when else samples[-1].at_s)
    panels[0].set_title(
        "kohort demo: orders, and a group whose members come and go, one of them a pipeline on Spark",
        fontsize=10,
    )
    figure.tight_layout(rect=(0, 0.0125 * len(notes) + 0.02, 1, 1))
    figure.text(0.06, 0.012, "\n".join(notes), fontsize=7, family="monospace", va="bottom")
    figure.savefig(path)
    pyplot.close(figure)
    return None


def _draw_rates(panel: Any, samples: Sequence[Sample]) -> None:
    """Draws rates over about two seconds each, so that one poll more or less does not make a peak."""
    pairs = [(a, b) for a, b in zip(samples, samples[4:], strict=False) if b.at_s > a.at_s]
    lines: list[tuple[str, str, list[int]]] = [
        ("written", "#8a94a0", [b.written - a.written for a, b in pairs]),
        ("worked on by consumers", "#2a7f62", [b.worked - a.worked for a, b in pairs]),
    ]
    if samples[-1].summed is not None:
        lines.append(("summed up by Spark", "#3b6fb5", [(b.summed or 0) - (a.summed or 0) for a, b in pairs]))
    at = [(a.at_s + b.at_s) / 2 for a, b in pairs]
    for label, colour, counts in lines:
        rates = [count / (b.at_s - a.at_s) for count, (a, b) in zip(counts, pairs, strict=True)]
        panel.plot(at, rates, color=colour, label=label, linewidth=1.6)
    panel.set_ylabel("orders a second", fontsize=8)
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8, frameon=False, loc="upper right")


def _draw_lag(panel: Any, samples: Sequence[Sample]) -> None:
    at = [s.at_s for s in samples]
    panel.fill_between(at, [s.lag for s in samples], color="#2a7f62", alpha=0.35, label=f"group {GROUP}")
    panel.set_ylabel("lag: orders not committed", fontsize=8)
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8, frameon=False, loc="upper right")


def _draw_members(panel: Any, workers: Mapping[str, DemoWorker]) -> None:
    """Draws which member had which partition when, and a cross where a member was killed."""
    colours = ("#3b6fb5", "#2a7f62", "#d08c2e", "#7a4fa3", "#c1443c")
    for number, (name, member) in enumerate(workers.items()):
        colour = colours[number % len(colours)]
        panel.barh(PARTITIONS + 0.6 + number * 0.8, member.ended_s - member.began_s, left=member.began_s, height=0.6,
                   color=colour, alpha=0.35)  # fmt: skip
        panel.text(member.began_s + 0.2, PARTITIONS + 0.6 + number * 0.8, name, va="center", fontsize=8)
        if member.killed:
            panel.plot([member.ended_s], [PARTITIONS + 0.6 + number * 0.8], "x", color="black", markersize=8)
        changes = [*member.owned, (member.ended_s, [])]
        for (at_s, owned), (until_s, _) in pairwise(changes):
            for partition in owned:
                panel.barh(partition, until_s - at_s, left=at_s, height=0.8, color=colour)
    panel.set_yticks(
        range(PARTITIONS), [f"orders-{partition}" for partition in range(PARTITIONS)], fontsize=7
    )
    panel.invert_yaxis()
    panel.set_ylabel("who owned what", fontsize=8)
