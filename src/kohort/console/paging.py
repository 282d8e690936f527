"""Pages of lists: how large they may be, and which part of a list a page is."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

from fastapi import Query

T = TypeVar("T")

LARGEST_PAGE = 1_000
LAST_PAGE = 1_000_000

PageNumber = Annotated[int, Query(ge=1, le=LAST_PAGE, description="Which page, from 1 on.")]
PageSize = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="How many a page has.")]
Search = Annotated[
    str, Query(max_length=1_000, description="A part of the name; upper and lower case are the same.")
]


class Order(StrEnum):
    """The direction in which a list is sorted."""

    ASC = "asc"
    DESC = "desc"


def part_of(rows: Sequence[T], page: int, size: int) -> Sequence[T]:
    """Returns the rows of a page; none if there are not so many pages."""
    return rows[(page - 1) * size : page * size]


def pages_of(total: int, size: int) -> int:
    """Returns how many pages there are; an empty list has one."""
    return max(1, -(-total // size))
