"""Draws the state machine of a classic group as SVG, from the table that the coordinator runs on."""

from __future__ import annotations


def state_diagram_svg(current: str | None = None) -> str:
    """Returns an `svg` element; the state named `current` ("Stable") is lit. Colours come from the page's CSS."""
    raise NotImplementedError
