"""The serializers and deserializers that Kafka's Java client has built in, with the same bytes."""

from __future__ import annotations

from struct import Struct
from typing import Generic, TypeVar
from uuid import UUID

from kohort.serde.errors import DataMismatch
from kohort.settings import SettingError

Number = TypeVar("Number", int, float)


class StringSerializer:
    """Writes text; UTF-8, unless another encoding is given."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = _known(encoding)

    def __call__(self, topic: str, text: str | None) -> bytes | None:
        if text is None:
            return None
        if not isinstance(text, str):
            raise DataMismatch(f"a StringSerializer takes a str, not {_described(text)}")
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise DataMismatch(f"the text cannot be written in {self.encoding}: {error}") from error


class StringDeserializer:
    """Reads text; UTF-8, unless another encoding is given."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = _known(encoding)

    def __call__(self, topic: str, data: bytes) -> str:
        try:
            return data.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise DataMismatch(f"the data is no text in {self.encoding}: {error}") from error


class BytesSerializer:
    """Writes bytes as they are."""

    def __call__(self, topic: str, data: bytes | None) -> bytes | None:
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):
            raise DataMismatch(f"a BytesSerializer takes bytes, not {_described(data)}")
        return data


class BytesDeserializer:
    """Reads bytes as they are."""

    def __call__(self, topic: str, data: bytes) -> bytes:
        return data


class _NumberSerializer(Generic[Number]):
    """Writes a number in a fixed number of bytes, big-endian."""

    _layout: Struct
    _types: tuple[type, ...]

    def __call__(self, topic: str, number: Number | None) -> bytes | None:
        if number is None:
            return None
        if not isinstance(number, self._types) or isinstance(number, bool):
            raise DataMismatch(
                f"{_article(type(self).__name__)} takes {_article(self._types[0].__name__)}, not {_described(number)}"
            )
        try:
            return self._layout.pack(number)
        except Exception as error:  # struct.error is an Exception, OverflowError another one
            size = self._layout.size
            raise DataMismatch(
                f"{number!r} does not fit into the {size} bytes of {type(self).__name__}"
            ) from error


class _NumberDeserializer(Generic[Number]):
    """Reads a number from a fixed number of bytes, big-endian."""

    _layout: Struct

    def __call__(self, topic: str, data: bytes) -> Number:
        if len(data) != self._layout.size:
            raise DataMismatch(
                f"{_article(type(self).__name__)} reads {self._layout.size} bytes, and the data has {len(data)}"
            )
        number: Number = self._layout.unpack(data)[0]
        return number


class ShortSerializer(_NumberSerializer[int]):
    """Writes an int in 2 bytes."""

    _layout, _types = Struct(">h"), (int,)


class ShortDeserializer(_NumberDeserializer[int]):
    """Reads an int from 2 bytes."""

    _layout = Struct(">h")


class IntegerSerializer(_NumberSerializer[int]):
    """Writes an int in 4 bytes."""

    _layout, _types = Struct(">i"), (int,)


class IntegerDeserializer(_NumberDeserializer[int]):
    """Reads an int from 4 bytes."""

    _layout = Struct(">i")


class LongSerializer(_NumberSerializer[int]):
    """Writes an int in 8 bytes."""

    _layout, _types = Struct(">q"), (int,)


class LongDeserializer(_NumberDeserializer[int]):
    """Reads an int from 8 bytes."""

    _layout = Struct(">q")


class FloatSerializer(_NumberSerializer[float]):
    """Writes a float in 4 bytes, with the precision that these have."""

    _layout, _types = Struct(">f"), (float, int)


class FloatDeserializer(_NumberDeserializer[float]):
    """Reads a float from 4 bytes."""

    _layout = Struct(">f")


class DoubleSerializer(_NumberSerializer[float]):
    """Writes a float in 8 bytes."""

    _layout, _types = Struct(">d"), (float, int)


class DoubleDeserializer(_NumberDeserializer[float]):
    """Reads a float from 8 bytes."""

    _layout = Struct(">d")


class UUIDSerializer:
    """Writes a UUID as text: `123e4567-e89b-12d3-a456-426614174000`."""

    def __call__(self, topic: str, uuid: UUID | None) -> bytes | None:
        if uuid is None:
            return None
        if not isinstance(uuid, UUID):
            raise DataMismatch(f"a UUIDSerializer takes a uuid.UUID, not {_described(uuid)}")
        return str(uuid).encode()


class UUIDDeserializer:
    """Reads a UUID from text."""

    def __call__(self, topic: str, data: bytes) -> UUID:
        try:
            return UUID(data.decode())
        except ValueError as error:  # UnicodeDecodeError is one
            raise DataMismatch(f"the data is no UUID: {data[:40]!r}") from error


def _known(encoding: str) -> str:
    try:
        "".encode(encoding)
    except LookupError as error:
        raise SettingError(f"{encoding} is no encoding that Python knows") from error
    return encoding


def _described(thing: object) -> str:
    return _article(type(thing).__name__)


def _article(name: str) -> str:
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
