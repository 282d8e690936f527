"""Turns the filters that Spark offers to a source into a restriction of what is read. Pure functions.

Every filter that is taken is taken exactly, with SQL's rules for null: Spark does not look at it again. A filter on
another column, or with a literal of an unexpected type, is left to Spark. The classes are PySpark's, since 4.1.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import datasource as ds

from kohort.spark.restriction import (
    EVERYTHING,
    HIGHEST,
    LOWEST,
    NOTHING,
    NumberSet,
    Restriction,
    TopicCondition,
)

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
COLUMNS = ("topic", "partition", "offset", "timestamp")
"""They are never null."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of Spark's filters."""

    restriction: Restriction
    taken: tuple[ds.Filter, ...]
    left: tuple[ds.Filter, ...]
    """Spark evaluates these itself: the same objects that it gave."""


def push(filters: Sequence[ds.Filter], names: Sequence[str] = COLUMNS) -> Pushed:
    """The restriction that all of the filters mean together. Only filters on the named columns are taken."""
    restriction, taken, left = EVERYTHING, [], []
    for each in filters:
        found = restriction_of(each, names)
        if found is None:
            left.append(each)
        else:
            taken.append(each)
            restriction &= found
    return Pushed(restriction, tuple(taken), tuple(left))


def restriction_of(condition: ds.Filter, names: Sequence[str] = COLUMNS) -> Restriction | None:
    """What one filter means; None if Spark has to evaluate it."""
    negated = isinstance(condition, ds.Not)
    inner: Any = condition.child if isinstance(condition, ds.Not) else condition
    path = getattr(inner, "attribute", None)
    if not isinstance(path, tuple) or len(path) != 1 or path[0] not in names or path[0] not in COLUMNS:
        return None
    if isinstance(inner, (ds.IsNull, ds.IsNotNull)):
        return EVERYTHING if isinstance(inner, ds.IsNull) is negated else NOTHING
    if path[0] == "topic":
        return _of_topic(inner, negated)
    return _of_number(inner, negated, path[0])


# --- null ---------------------------------------------------------------------------------------------


def _literals(condition: Any, negated: bool) -> tuple[Any, ...] | Restriction:
    """The literals of a condition; a restriction if a null among them decides already."""
    if isinstance(condition, ds.In):
        values = tuple(value for value in condition.value if value is not None)
        # `x NOT IN (1, NULL)` is null for every x but 1, for which it is false.
        return NOTHING if negated and len(values) < len(condition.value) else values
    if condition.value is not None:
        return (condition.value,)
    # A comparison with null is null, which is not true, and neither is its negation; only `<=>` is false then.
    return EVERYTHING if negated and isinstance(condition, ds.EqualNullSafe) else NOTHING


# --- topics -------------------------------------------------------------------------------------------

_OF_TOPICS: dict[type, str] = {
    ds.EqualTo: "in",
    ds.EqualNullSafe: "in",
    ds.In: "in",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.StringStartsWith: "starts",
    ds.StringEndsWith: "ends",
    ds.StringContains: "contains",
}


def _of_topic(condition: Any, negated: bool) -> Restriction | None:
    relation = _OF_TOPICS.get(type(condition))
    if relation is None:
        return None
    values = _literals(condition, negated)
    if isinstance(values, Restriction):
        return values
    if not all(isinstance(value, str) for value in values):
        return None
    return Restriction(topics=(TopicCondition(relation, values, negated),))


# --- numbers ------------------------------------------------------------------------------------------

_OF_NUMBERS: dict[type, Callable[[int], NumberSet]] = {
    ds.LessThan: lambda value: NumberSet.between(LOWEST, value - 1),
    ds.LessThanOrEqual: lambda value: NumberSet.between(LOWEST, value),
    ds.GreaterThan: lambda value: NumberSet.between(value + 1, HIGHEST),
    ds.GreaterThanOrEqual: lambda value: NumberSet.between(value, HIGHEST),
}


def _of_number(condition: Any, negated: bool, column: str) -> Restriction | None:
    is_set = isinstance(condition, (ds.EqualTo, ds.EqualNullSafe, ds.In))
    if not is_set and type(condition) not in _OF_NUMBERS:
        return None
    values = _literals(condition, negated)
    if isinstance(values, Restriction):
        return values
    numbers = [_microseconds(value) if column == "timestamp" else _integer(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return None
    wanted = NumberSet.of(known) if is_set else _OF_NUMBERS[type(condition)](known[0])
    wanted = wanted.complement() if negated else wanted
    if column == "timestamp":
        # Spark counts microseconds, Kafka milliseconds: those are wanted whose microseconds are.
        return Restriction(times=wanted.scaled_down(1000))
    return Restriction(partitions=wanted) if column == "partition" else Restriction(offsets=wanted)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _microseconds(value: object) -> int | None:
    """Since 1970; None for what is no point in time, such as a date or a time without a zone."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return (value - EPOCH) // MICROSECOND
    return None
