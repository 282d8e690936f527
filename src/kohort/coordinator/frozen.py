"""Values that travel between the core and whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """A dataclass that nobody changes: the type checker sees to that, not the interpreter.

    Every request makes three of these; checked at run time an event of five fields takes 0.7 µs to make, not 0.14.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
