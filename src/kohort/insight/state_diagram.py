"""Draws the state machine of a classic group as SVG, from the table that the coordinator runs on.

The states and the words on the arrows come from `kohort.coordinator.classic.state.TRANSITIONS`. Only the places are
given here; a transition without a place is drawn as a straight line, so the picture always shows the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import atan2, degrees
from textwrap import wrap
from typing import Final, NamedTuple

from kohort.coordinator.classic.state import TRANSITIONS, GroupState

LEFT, TOP, WIDTH, HEIGHT = -6, 14, 1116, 510
BOX_WIDTH, BOX_HEIGHT = 190, 52
LINE_HEIGHT = 15
E, P, C, S, D = GroupState
_START = E

_CENTERS: Final[dict[GroupState, tuple[int, int]]] = {
    E: (136, 236),
    P: (416, 236),
    C: (712, 236),
    S: (1000, 236),
    D: (564, 482),
}


class _Route(NamedTuple):
    """The way of an arrow, where it ends and in which direction, and where its words begin."""

    path: str
    tip: tuple[int, int, int]
    """x, y, and the angle: 0 points to the right, 90 down."""
    x: int
    y: int
    width: int
    """Of the words, in characters."""
    anchor: str = "middle"


_ROUTES: Final[dict[tuple[GroupState, GroupState], _Route]] = {
    (E, P): _Route("M231,224 H317", (321, 224, 0), 276, 198, 9),
    (P, E): _Route("M321,250 H235", (231, 250, 180), 276, 270, 14),
    (P, C): _Route("M511,224 H613", (617, 224, 0), 564, 166, 18),
    (C, P): _Route("M617,250 H515", (511, 250, 180), 564, 270, 18),
    (C, S): _Route("M807,236 H901", (905, 236, 0), 856, 196, 15),
    (S, P): _Route("M1000,210 V82 Q1000,50 968,50 H448 Q416,50 416,82 V206", (416, 210, 90), 708, 38, 80),
    (E, D): _Route("M112,262 V464 Q112,496 144,496 H465", (469, 496, 0), 102, 330, 15, "end"),
    (D, E): _Route("M469,468 H188 Q160,468 160,440 V266", (160, 262, 270), 172, 330, 16, "start"),
    (P, D): _Route(
        "M416,262 V378 Q416,410 448,410 H490 Q522,410 522,430 V452", (522, 456, 90), 426, 340, 16, "start"
    ),
    (C, D): _Route(
        "M712,262 V378 Q712,410 680,410 H638 Q606,410 606,430 V452", (606, 456, 90), 722, 340, 16, "start"
    ),
    (S, D): _Route("M1000,262 V450 Q1000,482 968,482 H663", (659, 482, 180), 832, 472, 30),
}

_STYLE = """
.kohort-states { color: inherit; font: 13px system-ui, sans-serif; max-width: 100%; height: auto; }
.kohort-states .state rect { fill: none; stroke: currentColor; stroke-width: 1.5; }
.kohort-states .state text { fill: currentColor; font-size: 14px; font-weight: 600; text-anchor: middle; }
.kohort-states .current rect { fill: var(--kohort-lit, #2563eb); stroke: var(--kohort-lit, #2563eb); }
.kohort-states .current text { fill: var(--kohort-lit-text, #ffffff); }
.kohort-states .edge path { fill: none; stroke: currentColor; stroke-width: 1.5; }
.kohort-states .edge text { fill: currentColor; font-size: 12px; }
.kohort-states .edge path.arrow, .kohort-states .start { fill: currentColor; stroke: none; }
.kohort-states.has-current .edge { opacity: 0.75; }
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
        # There are no ids in it: a page may hold several, in different colours.
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kohort-states{" has-current" if lit else ""}" role="img"'
        f' viewBox="{LEFT} {TOP} {WIDTH} {HEIGHT}" aria-label="The states of a consumer group.{known}">',
        f"<title>The states of a consumer group.{known}</title>",
        f"<desc>{escape(said)}.</desc>",
        f"<style>{_STYLE}</style>",
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
    yield f'<path d="M{left - 30},{y} H{left - 4}"/>{_arrow((left, y, 0))}</g>'


def _edge(a: GroupState, b: GroupState, why: str, *, is_leaving: bool) -> str:
    route = _ROUTES.get((a, b)) or _straight(a, b)
    lines = wrap(why, route.width)
    words = "".join(
        f'<tspan x="{route.x}" y="{route.y + LINE_HEIGHT * n}">{escape(line)}</tspan>'
        for n, line in enumerate(lines)
    )
    return (
        f'<g class="edge{" leaving" if is_leaving else ""}"><title>{a.value} → {b.value}: {escape(why)}</title>'
        f'<path d="{route.path}"/>{_arrow(route.tip)}'
        f'<text text-anchor="{route.anchor}">{words}</text></g>'
    )


def _straight(a: GroupState, b: GroupState) -> _Route:
    (x1, y1), (x2, y2) = _CENTERS[a], _CENTERS[b]
    angle = round(degrees(atan2(y2 - y1, x2 - x1)))
    x, y = (x1 + x2) // 2, (y1 + y2) // 2
    return _Route(f"M{x1},{y1} L{x2},{y2}", (x, y, angle), x, y, 24)


def _arrow(tip: tuple[int, int, int]) -> str:
    x, y, angle = tip
    return f'<path class="arrow" d="M0,0 L-10,-5 L-10,5 z" transform="translate({x},{y}) rotate({angle})"/>'


def _box(state: GroupState, *, is_lit: bool) -> str:
    x, y = _CENTERS[state]
    left, top = x - BOX_WIDTH // 2, y - BOX_HEIGHT // 2
    mark = ' aria-current="true"' if is_lit else ""
    return (
        f'<g class="state{" current" if is_lit else ""}" data-state="{state.value}"{mark}>'
        f'<rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="10"/>'
        f'<text x="{x}" y="{y + 5}">{state.value}</text></g>'
    )
