"""What the demo shows at its end: tables on the terminal, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kohort.cli.demo_cast import PARTITIONS, Member, Orders
from kohort.cli.groups import print_table, short_ids
from kohort.coordinator.history import Rebalance


@dataclass(frozen=True, slots=True)
class Sample:
    """How things were at one moment."""

    at_s: float
    written: int
    worked: int
    group_lag: int
    state: str
    members: int
    spark_lag: int | None
    batch: int | None
    batch_rows_per_s: float


# --- tables -------------------------------------------------------------------------------------------


def print_report(
    samples: Sequence[Sample],
    members: Mapping[str, Member],
    orders: Orders,
    rebalances: Sequence[Rebalance],
    revenue: Mapping[str, tuple[int, int]] | None,
) -> bool:
    """Prints what happened, and says whether it is what should have happened."""
    print("\nThe group, and why it rebalanced (kohort groups why shop):")
    print_table(("REBALANCE", "TOOK", "MEMBERS", "WHY"), [_rebalance_row(each) for each in rebalances])
    print("\nIts members:")
    print_table(
        ("MEMBER", "FROM", "TO", "ORDERS", "END"),
        [
            (
                name,
                f"{m.began_s:.1f} s",
                f"{m.ended_s:.1f} s",
                f"{m.records:,}",
                "killed" if m.killed else "left",
            )
            for name, m in members.items()
        ],
    )
    distinct, total = worked_on(members.values())
    checks = [
        (
            distinct == orders.sent,
            f"{distinct:,} of {orders.sent:,} orders were worked on by the group; {total - distinct:,} of them twice, "
            "because the member that had them was gone before it committed",
        )
    ]
    if revenue is not None:
        print("\nWhat Spark has summed up:")
        rows = [(item, f"{n:,}", f"{cents / 100:,.2f}") for item, (n, cents) in sorted(revenue.items())]
        print_table(("ITEM", "ORDERS", "REVENUE"), rows)
        expected = {item: (orders.orders[item], orders.cents[item]) for item in orders.orders}
        said = sum(n for n, _ in revenue.values())
        checks.append(
            (revenue == expected, f"{said:,} of {orders.sent:,} orders are in Spark's sums, each once")
        )
    print("\nHow fast, and how far behind:")
    print_table(("", "ORDERS/S", "MOST BEHIND", "BEHIND AT THE END"), _speeds(samples))
    print()
    for good, text in checks:
        print(f"{'ok' if good else 'FAILED'}: {text}")
    return all(good for good, _ in checks)


def _rebalance_row(each: Rebalance) -> tuple[Any, ...]:
    took = "–" if each.join_ms is None else f"{each.join_ms + (each.sync_ms or 0)} ms"
    after = "…" if each.generation_after is None else each.generation_after
    why = short_ids(each.reason)
    for member_id, how in each.went:
        if member_id not in each.reason:
            why += f"; went: {short_ids(member_id)} ({how})"
    return f"{each.generation_before} → {after}", took, each.size, why


def worked_on(members: Any) -> tuple[int, int]:
    """How many offsets were worked on at all, and how often together."""
    distinct = total = 0
    for partition in range(PARTITIONS):
        ranges = sorted((first, after) for m in members for p, first, after in m.worked if p == partition)
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
    worked_per_s = samples[-1].worked / max(0.1, samples[-1].at_s)
    most = max(s.group_lag for s in samples)
    rows.append(("group shop", f"{worked_per_s:,.0f}", f"{most:,}", f"{samples[-1].group_lag:,}"))
    behind = [s.spark_lag for s in samples if s.spark_lag is not None]
    if behind:
        best = max(s.batch_rows_per_s for s in samples)
        rows.append(("Spark, best batch", f"{best:,.0f}", f"{max(behind):,}", f"{behind[-1]:,}"))
    return rows


# --- the picture --------------------------------------------------------------------------------------


def draw(
    samples: Sequence[Sample],
    members: Mapping[str, Member],
    events: Sequence[tuple[float, str]],
    rebalances: Sequence[Rebalance],
    began_ms: float,
    path: Path,
) -> str | None:
    """Draws it, or says why not."""
    try:
        import matplotlib
    except ImportError:
        return "the picture, because matplotlib is not installed: pip install matplotlib"
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        3, 1, figsize=(11, 9.5), dpi=120, sharex=True, height_ratios=[3, 3, 2.2 + 0.35 * len(members)]
    )
    _draw_rates(panels[0], samples)
    _draw_lag(panels[1], samples)
    _draw_members(panels[2], members)
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
        "kohort demo: orders, a group whose members come and go, a pipeline on Spark", fontsize=10
    )
    figure.tight_layout(rect=(0, 0.0125 * len(notes) + 0.02, 1, 1))
    figure.text(0.06, 0.012, "\n".join(notes), fontsize=7, family="monospace", va="bottom")
    figure.savefig(path)
    pyplot.close(figure)
    return None


def _draw_rates(panel: Any, samples: Sequence[Sample]) -> None:
    """Over about two seconds each, so that one poll more or less does not make a peak."""
    pairs = [(a, b) for a, b in zip(samples, samples[4:], strict=False) if b.at_s > a.at_s]
    lines: list[tuple[str, str, list[int]]] = [
        ("written", "#8a94a0", [b.written - a.written for a, b in pairs]),
        ("worked on by group shop", "#2a7f62", [b.worked - a.worked for a, b in pairs]),
    ]
    if samples[-1].spark_lag is not None:
        lines.append(("summed up by Spark", "#3b6fb5", [_summed(b) - _summed(a) for a, b in pairs]))
    at = [(a.at_s + b.at_s) / 2 for a, b in pairs]
    for label, colour, counts in lines:
        rates = [count / (b.at_s - a.at_s) for count, (a, b) in zip(counts, pairs, strict=True)]
        panel.plot(at, rates, color=colour, label=label, linewidth=1.6)
    panel.set_ylabel("orders a second", fontsize=8)
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8, frameon=False, loc="upper right")


def _summed(sample: Sample) -> int:
    return sample.written - (sample.spark_lag or 0)


def _draw_lag(panel: Any, samples: Sequence[Sample]) -> None:
    at = [s.at_s for s in samples]
    panel.fill_between(at, [s.group_lag for s in samples], color="#2a7f62", alpha=0.35, label="group shop")
    if samples[-1].spark_lag is not None:
        panel.plot(
            at, [s.spark_lag for s in samples], color="#3b6fb5", linewidth=1.6, label="group revenue (Spark)"
        )
    panel.set_ylabel("lag: orders not committed", fontsize=8)
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8, frameon=False, loc="upper right")


def _draw_members(panel: Any, members: Mapping[str, Member]) -> None:
    """Who had which partitions when, one line for each partition; a cross where a member was killed."""
    colours = ("#2a7f62", "#d08c2e", "#7a4fa3", "#3b6fb5", "#c1443c")
    for number, (name, member) in enumerate(members.items()):
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
