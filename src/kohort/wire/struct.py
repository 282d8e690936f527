"""The base classes of all messages and of the structs in them."""

from __future__ import annotations

from collections.abc import Sized
from typing import ClassVar, TypeAlias

# What a `records` field may hold: bytes, a view of a receive buffer, or a slice of a file.
Records: TypeAlias = bytes | bytearray | memoryview | Sized

ZERO_UUID = bytes(16)


class Struct:
    """A struct of the protocol. Two structs are equal if all their fields are."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{self.__class__.__name__}({values})"


class Message(Struct):
    """A whole request or response."""

    __slots__ = ()
    API_KEY: ClassVar[int]
