"""Draws the state machine of a classic group as SVG, from the table that the coordinator runs on.

The states and the words on the arrows come from `kohort.coordinator.classic.state.TRANSITIONS`. Only the places are
given here; a transition without a place is drawn as a straight line, so the picture always shows the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from textwrap import wrap
from typing import Final, NamedTuple

from kohort.coordinator.classic.state import TRANSITIONS, GroupState

WIDTH, HEIGHT = 1120, 560
BOX_WIDTH, BOX_HEIGHT = 172, 52
LINE_HEIGHT = 15
E, P, C, S, D = GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE, GroupState.DEAD  # fmt: skip
_START = E

_CENTERS: Final[dict[GroupState, tuple[int, int]]] = {
    E: (136, 236),
    P: (416, 236),
    C: (712, 236),
    S: (1000, 236),
    D: (564, 490),
}


class _Route(NamedTuple):
    """The way of an arrow, and where its words stand: the middle of the first line, or its beginning."""

    path: str
    x: int
    y: int
    width: int
    """In characters."""
    anchor: str = "middle"


_ROUTES: Final[dict[tuple[GroupState, GroupState], _Route]] = {
    (E, P): _Route("M222,224 H326", 276, 212, 14),
    (P, E): _Route("M330,250 H226", 276, 270, 14),
    (P, C): _Route("M502,224 H622", 564, 164, 18),
    (C, P): _Route("M626,250 H506", 564, 270, 18),
    (C, S): _Route("M798,236 H910", 856, 198, 15),
    (S, P): _Route("M1000,210 V112 Q1000,80 968,80 H448 Q416,80 416,112 V206", 708, 68, 80),
    (E, D): _Route("M116,262 V474 Q116,506 148,506 H474", 132, 440, 24, "start"),
    (D, E): _Route("M478,474 H200 Q164,474 164,438 V266", 300, 440, 18, "start"),
    (P, D): _Route("M416,262 V392 Q416,424 448,424 H470 Q502,424 508,460", 426, 386, 16, "start"),
    (C, D): _Route("M712,262 V392 Q712,424 680,424 H658 Q626,424 620,460", 722, 386, 16, "start"),
    (S, D): _Route("M1000,262 V458 Q1000,490 968,490 H654", 848, 478, 30),
}

_STYLE = """
.kohort-states { color: inherit; font: 13px system-ui, sans-serif; max-width: 100%; height: auto; }
.kohort-states .state rect { fill: none; stroke: currentColor; stroke-width: 1.5; }
.kohort-states .state text { fill: currentColor; font-size: 14px; font-weight: 600; text-anchor: middle; }
.kohort-states .current rect { fill: var(--kohort-lit, #2563eb); stroke: var(--kohort-lit, #2563eb); }
.kohort-states .current text { fill: var(--kohort-lit-text, #ffffff); }
.kohort-states .edge path { fill: none; stroke: currentColor; stroke-width: 1.5; }
.kohort-states .edge text { fill: currentColor; font-size: 12px; }
.kohort-states .arrow, .kohort-states .start { fill: currentColor; }
.kohort-states.has-current .edge { opacity: 0.6; }
.kohort-states.has-current .edge.leaving { opacity: 1; }
.kohort-states.has-current .edge.leaving path { stroke-width: 2.5; }
"""


def state_diagram_svg(current: str | None = None) -> str:
    """Returns an `svg` element; the state named `current` ("Stable") is lit, and the arrows that leave it.

    Lines and words have the colour of the text around it, in dark and light; `--kohort-lit` and `--kohort-lit-text` are
    the colours of the lit state. A name that is no state of a classic group lights nothing.
    """
    lit = next((state for state in GroupState if state.value == current), None)
    known = "" if lit is None else f" The group is {lit.value} now."
    said = ". ".join(f"{a.value} to {b.value}: {why}" for (a, b), why in TRANSITIONS.items())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kohort-states{" has-current" if lit else ""}" role="img"'
        f' viewBox="0 0 {WIDTH} {HEIGHT}" aria-labelledby="kohort-states-title kohort-states-desc">',
        '<title id="kohort-states-title">The states of a consumer group</title>',
        f'<desc id="kohort-states-desc">{escape(said)}.{known}</desc>',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="kohort-states-arrow" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="9" markerHeight="9"'
        ' markerUnits="userSpaceOnUse" orient="auto"><path class="arrow" d="M0,0 L10,5 L0,10 z"/></marker></defs>',
        *_start(),
        *(_edge(a, b, why, is_leaving=a is lit) for (a, b), why in TRANSITIONS.items()),
        *(_box(state, is_lit=state is lit) for state in GroupState),
        "</svg>",
    ]
    return "\n".join(parts)


def _start() -> Iterator[str]:
    x, y = _CENTERS[_START]
    left = x - BOX_WIDTH // 2
    yield f'<g class="edge"><title>A new group is {_START.value}</title>'
    yield f'<circle class="start" cx="{left - 36}" cy="{y}" r="6"/>'
    yield f'<path d="M{left - 30},{y} H{left - 4}" marker-end="url(#kohort-states-arrow)"/></g>'


def _edge(a: GroupState, b: GroupState, why: str, *, is_leaving: bool) -> str:
    route = _ROUTES.get((a, b)) or _straight(a, b)
    lines = wrap(why, route.width)
    words = "".join(
        f'<tspan x="{route.x}" y="{route.y + LINE_HEIGHT * n}">{escape(line)}</tspan>' for n, line in enumerate(lines)
    )
    return (
        f'<g class="edge{" leaving" if is_leaving else ""}"><title>{a.value} → {b.value}: {escape(why)}</title>'
        f'<path d="{route.path}" marker-end="url(#kohort-states-arrow)"/>'
        f'<text text-anchor="{route.anchor}">{words}</text></g>'
    )


def _straight(a: GroupState, b: GroupState) -> _Route:
    (x1, y1), (x2, y2) = _CENTERS[a], _CENTERS[b]
    return _Route(f"M{x1},{y1} L{x2},{y2}", (x1 + x2) // 2, (y1 + y2) // 2, 24)


def _box(state: GroupState, *, is_lit: bool) -> str:
    x, y = _CENTERS[state]
    left, top = x - BOX_WIDTH // 2, y - BOX_HEIGHT // 2
    mark = ' aria-current="true"' if is_lit else ""
    return (
        f'<g class="state{" current" if is_lit else ""}" data-state="{state.value}"{mark}>'
        f'<rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="10"/>'
        f'<text x="{x}" y="{y + 5}">{state.value}</text></g>'
    )
