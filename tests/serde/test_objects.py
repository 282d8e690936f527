"""Plain data into objects and back: what fits, and what is said where it does not."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID

import pytest

from kohort import SettingError
from kohort.serde import DataMismatch
from kohort.serde.objects import maker_of, plain
from tests.serde.orders import ORDER, Line, Order

Name = NewType("Name", str)


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Color(enum.Enum):
    RED = "red"


class Place(NamedTuple):
    x: int
    y: int = 0


class Person(TypedDict):
    name: str
    born: NotRequired[date]


@dataclass
class Tree:
    name: Name
    children: list[Tree] = field(default_factory=list)
    kept: int = field(default=5, init=False)


@dataclass
class Everything:
    size: Size = Size.SMALL
    color: Color = Color.RED
    place: Place | None = None
    person: Person | None = None
    pair: tuple[int, str] | None = None
    numbers: tuple[int, ...] = ()
    words: frozenset[str] = frozenset()
    lines: Sequence[Line] = ()
    by_name: Mapping[str, list[float]] = field(default_factory=dict)
    kind: Literal["a", "b"] = "a"
    either: int | str | Line | None = None
    noon: time | None = None
    noted: Annotated[Decimal, "money"] = Decimal(0)
    anything: Any = None
    raw: dict[Any, Any] = field(default_factory=dict)


def test_an_order() -> None:
    data = {
        "id": 7,
        "total": "12.50",
        "placed": "2026-11-16T17:00:00.123Z",
        "due": "2026-12-01",
        "number": "123e4567-e89b-12d3-a456-426614174000",
        "lines": [{"article": "apple", "count": 2}, {"article": "pear"}],
        "state": "PAID",
        "tags": {"a": 1},
        "unknown to this version": 1,
    }
    assert maker_of(Order)(data) == ORDER


def test_plain_data_of_objects_makes_the_same_objects() -> None:
    assert maker_of(Order)(plain(ORDER)) == ORDER
    whole = Everything(
        Size.LARGE, Color.RED, Place(1), {"name": "Ada"}, (1, "a"), (1, 2), frozenset({"x"}), [Line("a")],
        {"a": [1.0]}, "b", Line("b"), time(12), Decimal("1.5"), [1], {"k": 1},
    )  # fmt: skip
    assert plain(whole)["size"] == "LARGE"
    assert maker_of(Everything)(plain(whole)) == whole


def test_a_class_may_hold_itself() -> None:
    made = maker_of(Tree)({"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]})
    assert made == Tree(Name("a"), [Tree(Name("b"), [Tree(Name("c"))])])


def test_pydantic_models_validate_themselves() -> None:
    class Model:  # what pydantic.BaseModel has
        def __init__(self, x: int) -> None:
            self.x = x

        @classmethod
        def model_validate(cls, data: Any) -> Model:
            if "x" not in data:
                raise ValueError("1 validation error for Model\nx\n  Field required")
            return cls(data["x"])

        def model_dump(self) -> dict[str, Any]:
            return {"x": self.x}

    assert maker_of(Model)({"x": 3}).x == 3
    assert plain(Model(4)) == {"x": 4}
    with pytest.raises(DataMismatch, match="1 validation error for Model; x; Field required"):
        maker_of(Model)({})


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (int, True, "True is no int"),
        (int, "5", "'5' is no int"),
        (float, "5", "'5' is no float"),
        (Line, ["apple"], r"\['apple'\] is no object with the fields of Line"),
        (Line, {}, "field article: is missing, and Line needs it"),
        (Line, {"article": 5}, "field article: 5 is no str"),
        (list[Line], [{"article": "a"}, {}], r"\[1\].article: is missing"),
        (Order, {**plain(ORDER), "lines": [{"article": None}]}, r"field lines\[0\].article: None is no str"),
        (Order, {**plain(ORDER), "placed": "yesterday"}, "field placed: 'yesterday' is no datetime"),
        (Order, {**plain(ORDER), "total": "much"}, "field total: 'much' is no Decimal"),
        (Order, {**plain(ORDER), "number": 5}, "field number: 5 is no UUID"),
        (Order, {**plain(ORDER), "state": "LOST"}, r"field state: 'LOST' is no State \('OPEN', 'PAID'\)"),
        (Order, {**plain(ORDER), "tags": {"a": "b"}}, r"field tags\['a'\]: 'b' is no int"),
        (Order, {**plain(ORDER), "note": 5}, "field note: 5 is no str"),
        (Everything, {"pair": [1]}, r"field pair: \[1\] is no list of 2"),
        (Everything, {"kind": "c"}, "field kind: 'c' is none of 'a', 'b'"),
        (Everything, {"either": 1.5}, "field either: 1.5 is none of int | str | Line"),
        (Everything, {"person": {}}, "field person.name: is missing, and Person needs it"),
        (Everything, {"words": "x"}, "field words: 'x' is no list"),
        (Place, {"x": "a"}, "field x: 'a' is no int"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_told_with_its_place(kind: Any, data: Any, words: str) -> None:
    with pytest.raises(DataMismatch, match=words):
        maker_of(kind)(data)


def test_a_class_that_refuses_its_data() -> None:
    @dataclass
    class Positive:
        count: Any

        def __post_init__(self) -> None:
            if self.count < 0:
                raise ValueError("count is negative")

    with pytest.raises(DataMismatch, match="Positive refused the data: count is negative"):
        maker_of(Positive)({"count": -1})


def test_what_no_plain_data_can_be_made_into_is_told_at_once() -> None:
    with pytest.raises(SettingError, match="is no type that plain data can be made into"):
        maker_of(type[int])

    class Here: ...

    @dataclass
    class Local:
        here: Here

    with pytest.raises(SettingError, match="define the class and its types at the top of a module"):
        maker_of(Local)


def test_dates_and_the_like_may_be_there_already() -> None:
    assert maker_of(datetime)(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 1, tzinfo=UTC)
    assert maker_of(Decimal)(5) == Decimal(5)
    assert maker_of(Decimal)(0.1) == Decimal("0.1")
    assert maker_of(UUID)(UUID(int=1)) == UUID(int=1)
