"""Writes the pictures in docs/images that are drawn from data: `python -m docs.site.pictures`, in `make supported`.

`group-states.svg` is drawn from the table that the coordinator runs on, `join-group.svg` from STEPS below. Colours are
those of the text around them, so both fit a light and a dark page; the hook pages.py puts them into pages as they are.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from kohort.coordinator.classic.state import COMPLETING, PREPARING, STABLE, GroupState
from kohort.insight.state_diagram import state_diagram_svg

IMAGES = Path(__file__).parents[1] / "images"
# A file that stands alone has no text around it; this rule does not hold for an SVG within a page.
_ALONE = "<style>@media (prefers-color-scheme: dark) { svg:root { color: #e4e4e7; } }</style>"


class Step(NamedTuple):
    """An arrow from one to another (a request, or a reply if `dashed`), or a note at one of them."""

    who: str
    to: str
    words: str
    dashed: bool = False


class NewState(NamedTuple):
    """The group goes from one state to another."""

    before: GroupState
    after: GroupState
    why: str


OLD, NEW, COORDINATOR, LOG = "member A", "member B", "coordinator", "__consumer_offsets"
WHO = (OLD, NEW, COORDINATOR, LOG)

STEPS: tuple[Step | NewState, ...] = (
    Step(NEW, COORDINATOR, "JoinGroup: topics, assignors, no member id"),
    Step(COORDINATOR, NEW, "MEMBER_ID_REQUIRED: your id is B-7f3a…", dashed=True),
    Step(NEW, COORDINATOR, "JoinGroup: with that id; the answer waits"),
    NewState(STABLE, PREPARING, "B joins"),
    Step(OLD, COORDINATOR, "Heartbeat, as every 3 s"),
    Step(COORDINATOR, OLD, "REBALANCE_IN_PROGRESS", dashed=True),
    Step(OLD, OLD, "on_revoked: finish the work"),
    Step(OLD, COORDINATOR, "OffsetCommit: what is done"),
    Step(OLD, COORDINATOR, "JoinGroup: topics, assignors"),
    NewState(PREPARING, COMPLETING, "all members have joined"),
    Step(COORDINATOR, OLD, "you lead generation 2: A and B want …", dashed=True),
    Step(COORDINATOR, NEW, "you are in generation 2", dashed=True),
    Step(NEW, COORDINATOR, "SyncGroup: the answer waits"),
    Step(OLD, OLD, "the assignor divides the partitions"),
    Step(OLD, COORDINATOR, "SyncGroup: who gets which partitions"),
    Step(COORDINATOR, LOG, "the group with its members, synced to disk"),
    NewState(COMPLETING, STABLE, "the assignment is durable"),
    Step(COORDINATOR, OLD, "your partitions: orders-0", dashed=True),
    Step(COORDINATOR, NEW, "your partitions: orders-1", dashed=True),
    Step(NEW, COORDINATOR, "OffsetFetch: where does the group stand?"),
    Step(COORDINATOR, NEW, "orders-1: 4711", dashed=True),
    Step(NEW, NEW, "on_assigned; then it fetches"),
)

_LEFT, _APART, _TOP, _ROW = 95, 275, 58, 44
_WIDTH = 2 * _LEFT + (len(WHO) - 1) * _APART


def join_group_svg() -> str:
    """Draws STEPS as a sequence, from top to bottom."""
    height = _TOP + len(STEPS) * _ROW + 30
    title = "The life of a JoinGroup: a second member joins a group."
    told = " ".join(_told(step) for step in STEPS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kohort-sequence" role="img" viewBox="0 0 {_WIDTH} {height}" '
        f'aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>",
        "<style>",
        ".kohort-sequence { color: inherit; font: 13px system-ui, sans-serif; max-width: 100%; height: auto; }",
        ".kohort-sequence text { fill: currentColor; text-anchor: middle; }",
        ".kohort-sequence .who { font-weight: 600; font-size: 14px; }",
        ".kohort-sequence rect { fill: none; stroke: currentColor; stroke-width: 1.5; }",
        ".kohort-sequence line, .kohort-sequence path { stroke: currentColor; stroke-width: 1.5; fill: none; }",
        ".kohort-sequence .life { opacity: 0.25; }",
        ".kohort-sequence .tip { fill: currentColor; stroke: none; }",
        ".kohort-sequence .reply { stroke-dasharray: 5 4; }",
        ".kohort-sequence .state rect { fill: var(--kohort-lit, #2563eb); stroke: none; }",
        ".kohort-sequence .state text { fill: var(--kohort-lit-text, #ffffff); font-weight: 600; }",
        "</style>",
    ]
    for number, who in enumerate(WHO):
        x = _LEFT + number * _APART
        lines.append(f'<line class="life" x1="{x}" y1="{_TOP - 16}" x2="{x}" y2="{height - 10}"/>')
        lines.append(f'<rect x="{x - 82}" y="10" width="164" height="32" rx="6"/>')
        lines.append(f'<text class="who" x="{x}" y="31">{escape(who)}</text>')
    for number, step in enumerate(STEPS):
        lines += _drawn(step, _TOP + number * _ROW + 26)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _told(step: Step | NewState) -> str:
    if isinstance(step, NewState):
        return f"The group goes from {step.before.value} to {step.after.value}: {step.why}."
    return f"{step.who}: {step.words}." if step.who == step.to else f"{step.who} to {step.to}: {step.words}."


def _x(who: str) -> int:
    return _LEFT + WHO.index(who) * _APART


def _drawn(step: Step | NewState, y: int) -> list[str]:
    if isinstance(step, NewState):
        x = _x(COORDINATOR)
        text = f"{step.before.value} → {step.after.value}: {step.why}"
        half = 10 + len(text) * 3.9
        x = round(min(x, _WIDTH - half - 6))
        return [
            f'<g class="state"><rect x="{x - half:g}" y="{y - 20}" width="{2 * half:g}" height="26" rx="13"/>'
            f'<text x="{x}" y="{y - 2}">{escape(text)}</text></g>'
        ]
    start, end = _x(step.who), _x(step.to)
    if start == end:
        return [
            f'<text x="{start}" y="{y + 14 * n - 7 * (len(rows) - 1)}" font-style="italic">{escape(row)}</text>'
            for rows in [wrap(step.words, 24)]
            for n, row in enumerate(rows)
        ]
    toward = 1 if end > start else -1
    kind = ' class="reply"' if step.dashed else ""
    return [
        f'<line{kind} x1="{start}" y1="{y}" x2="{end - 8 * toward}" y2="{y}"/>'
        f'<path class="tip" d="M{end},{y} l{-10 * toward},-5 v10 z"/>'
        f'<text x="{(start + end) // 2}" y="{y - 7}">{escape(step.words)}</text>'
    ]


def pictures() -> dict[str, str]:
    """The text of each picture, by the name of its file."""
    drawn = {"group-states.svg": state_diagram_svg(), "join-group.svg": join_group_svg()}
    return {
        name: text.strip().replace("<style>", f"{_ALONE}\n<style>", 1) + "\n" for name, text in drawn.items()
    }


if __name__ == "__main__":
    for file, content in pictures().items():
        (IMAGES / file).write_text(content, "utf-8")
