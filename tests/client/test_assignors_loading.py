"""partition.assignment.strategy: assignors by name, class, instance and entry point; the protocol that all support."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from kohort.client.group.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
    TopicPartitions,
    common_protocol,
    load_assignors,
)
from kohort.settings import SettingError


class FirstTakesAll(Assignor):
    name = "first-takes-all"

    def assign(self, cluster: TopicPartitions, members: Mapping[str, Subscription]) -> dict[str, Assignment]:
        return {member_id: Assignment() for member_id in members}


class OnlyCooperative(FirstTakesAll):
    name = "only-cooperative"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.COOPERATIVE,)


class Nameless(FirstTakesAll):
    name = ""


def kinds(*spec: str | type[Assignor] | Assignor) -> list[type[Assignor]]:
    return [type(assignor) for assignor in load_assignors(spec)]


def test_by_kafkas_names() -> None:
    found = kinds("range", "roundrobin", "sticky", "cooperative-sticky")
    assert found == [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]


@pytest.mark.parametrize(
    "kind", [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor]
)
def test_by_the_name_of_javas_class(kind: type[Assignor]) -> None:
    assert kinds(f"org.apache.kafka.clients.consumer.{kind.__name__}") == [kind]


def test_one_string_is_a_list_with_commas() -> None:
    assert [assignor.name for assignor in load_assignors("range, sticky")] == ["range", "sticky"]


def test_by_class_and_by_instance() -> None:
    mine = FirstTakesAll()
    first, second = load_assignors([StickyAssignor, mine])
    assert isinstance(first, StickyAssignor)
    assert second is mine


def test_each_consumer_has_its_own_instance() -> None:
    assert load_assignors(["sticky"])[0] is not load_assignors(["sticky"])[0]


def test_by_module_and_class() -> None:
    (assignor,) = load_assignors([f"{__name__}:FirstTakesAll"])
    assert assignor.name == "first-takes-all"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with the entry points `mine` and `broken`."""
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[kohort.assignors]\nmine = {__name__}:FirstTakesAll\nbroken = no_such_module:Assignor\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_by_entry_point() -> None:
    assert [assignor.name for assignor in load_assignors(["mine", "range"])] == ["first-takes-all", "range"]
    with pytest.raises(SettingError, match="entry point 'broken' cannot be loaded: No module named"):
        load_assignors(["broken"])


@pytest.mark.usefixtures("installed")
def test_an_unknown_name_lists_the_known_ones() -> None:
    known = "unknown assignor 'rang'; known are range, roundrobin, sticky, cooperative-sticky, broken, mine"
    with pytest.raises(SettingError, match=f"partition.assignment.strategy: {known}"):
        load_assignors(["rang"])


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (["range", RangeAssignor], "'range' is given twice; leave one out"),
        ([], "is empty; name at least one of range"),
        (["no.such.module:Assignor"], "'no.such.module:Assignor' cannot be loaded: No module named 'no'"),
        ([f"{__name__}:NotThere"], "cannot be loaded: .* has no attribute 'NotThere'"),
        (["builtins:dict"], "is not an assignor; subclass kohort.client.group.assignors.Assignor"),
        ([dict], "is not an assignor"),
        ([Nameless], "Nameless has no name; give the class a `name`"),
    ],
)
def test_refused_with_what_to_do(spec: list[str | type[Assignor]], complaint: str) -> None:
    with pytest.raises(SettingError, match=f"^partition.assignment.strategy.*{complaint}"):
        load_assignors(spec)


@pytest.mark.parametrize(
    ("spec", "protocol"),
    [
        (["range"], RebalanceProtocol.EAGER),
        (["cooperative-sticky"], RebalanceProtocol.COOPERATIVE),
        (["range", "cooperative-sticky"], RebalanceProtocol.EAGER),
        ([OnlyCooperative, "cooperative-sticky"], RebalanceProtocol.COOPERATIVE),
    ],
)
def test_the_protocol_used_is_one_that_every_configured_assignor_supports(
    spec: list[str | type[Assignor]], protocol: RebalanceProtocol
) -> None:
    assert common_protocol(load_assignors(spec)) is protocol


def test_a_mix_that_has_no_common_protocol_fails() -> None:
    with pytest.raises(SettingError, match=r"range: EAGER; only-cooperative: COOPERATIVE.*leave one out"):
        common_protocol(load_assignors(["range", OnlyCooperative]))


def test_an_assignor_without_assign_says_so() -> None:
    class Forgetful(Assignor):
        name = "forgetful"

    with pytest.raises(NotImplementedError, match="Forgetful must define assign"):
        Forgetful().assign(TopicPartitions({}), {})
