"""The picture of the state machine shows the whole table, lights the current state, and is well-formed XML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kohort.coordinator.classic.state import TRANSITIONS, GroupState
from kohort.insight import state_diagram
from kohort.insight.state_diagram import state_diagram_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(current: str | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(state_diagram_svg(current))


def groups(picture: ElementTree.Element, word: str) -> list[ElementTree.Element]:
    return [each for each in picture.iter(f"{SVG}g") if word in each.get("class", "").split()]


def test_every_state_and_every_transition_of_the_table_is_drawn_with_its_words() -> None:
    picture = drawn()
    assert [state.get("data-state") for state in groups(picture, "state")] == [s.value for s in GroupState]
    edges = groups(picture, "edge")
    assert len(edges) == len(TRANSITIONS) + 1  # and the birth of a group
    titles = [edge.findtext(f"{SVG}title") for edge in edges]
    for (a, b), why in TRANSITIONS.items():
        assert f"{a.value} → {b.value}: {why}" in titles
    words = {" ".join(t.text or "" for t in edge.iter(f"{SVG}tspan")) for edge in edges}
    assert words >= set(TRANSITIONS.values())


@pytest.mark.parametrize("state", list(GroupState))
def test_the_current_state_is_lit_with_the_arrows_that_leave_it(state: GroupState) -> None:
    picture = drawn(state.value)
    (lit,) = groups(picture, "current")
    assert lit.get("data-state") == state.value
    leaving = [edge.findtext(f"{SVG}title", "") for edge in groups(picture, "leaving")]
    assert len(leaving) == sum(a is state for a, _ in TRANSITIONS)
    assert all(title.startswith(f"{state.value} → ") for title in leaving)
    assert state.value in picture.get("aria-label", "")


@pytest.mark.parametrize("name", [None, "Assigning", "<script>"])
def test_a_name_that_is_no_state_lights_nothing(name: str | None) -> None:
    assert state_diagram_svg(name) == state_diagram_svg()
    assert not groups(drawn(name), "current")


def test_it_says_what_it_is_without_being_seen_and_has_no_ids_and_no_colours_of_text() -> None:
    picture = drawn()
    assert picture.get("role") == "img"
    assert picture.findtext(f"{SVG}title") == "The states of a consumer group."
    assert "Empty to PreparingRebalance: a member joins" in (picture.findtext(f"{SVG}desc") or "")
    assert not [each for each in picture.iter() if each.get("id")]
    assert not [each for each in picture.iter() if each.get("fill") or each.get("stroke")]


def test_a_transition_without_a_place_is_drawn_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_diagram, "_ROUTES", {})
    assert len(groups(drawn(), "edge")) == len(TRANSITIONS) + 1
