"""The decorator of events and effects: dataclasses that are immutable for the type checker alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Makes a dataclass that the type checker, and not the interpreter, keeps from being changed.

    Every request makes three of these. If the interpreter checked, an event of five fields would take 0.7 µs to make
    instead of 0.14.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
