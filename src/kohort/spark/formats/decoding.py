"""What decoders of records have in common: what travels to executors, and how a bad record is told.

A decoder takes a column of bytes as Arrow has them and gives a column of the type that Spark expects. A record that
does not fit is null in it, and is among the bad ones with the reason; it does not spoil its neighbours.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from kohort.errors import KohortError
from kohort.spark.formats.format_options import ParseMode

if TYPE_CHECKING:
    from kohort.serde.registry_settings import RegistrySettings


class RecordDoesNotFit(KohortError):
    """A record cannot be decoded as the options say; the text names it and says why."""

    what_to_do = (
        "Correct the schema, or choose mode=PERMISSIVE (keeps such records in `_corrupt`) or "
        "mode=DROPMALFORMED."
    )


class UndecidedRecord(KohortError):
    """A record of which it is not known whether it fits, because the registry did not answer; `row` says which."""

    what_to_do = "Bring the schema registry back and start the query again; nothing is skipped meanwhile."

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


class Misfit(ValueError):
    """A part of a record that does not fit; the text says which and why."""


@dataclass(slots=True)
class DecodedColumn:
    array: Any
    """As long as what was decoded; null where there was null, and where a record was bad."""
    bad: dict[int, str] = field(default_factory=dict)
    """Row and reason."""


class Decoder(Protocol):
    """Decodes columns of bytes; it is used by one thread at a time."""

    def decode(self, data: Any) -> DecodedColumn:
        """Decodes a pyarrow array of the type binary."""
        ...


@dataclass(frozen=True, slots=True)
class ColumnDecoding:
    """How the keys or the values are decoded; made by the driver, pickled for executors."""

    format: str
    target: Any
    """The Arrow type that Spark expects."""
    schema: str = ""
    """Avro: the reader's schema as JSON, with references resolved. Protobuf: the name of the message."""
    descriptors: bytes = b""
    """Protobuf: a FileDescriptorSet with the message and all that it needs."""
    registry: RegistrySettings | None = None
    """If it is given, records begin with the id of the schema that they were written with."""
    schema_id: int | None = None
    """The id of `schema` in the registry, where it comes from there."""
    emit_default_values: bool = False


@dataclass(frozen=True, slots=True)
class RecordDecoding:
    """How records become typed columns; made by the driver, pickled for executors."""

    columns: dict[str, ColumnDecoding]
    """`key` and `value`, as far as they are decoded."""
    mode: ParseMode = ParseMode.FAILFAST


class Unframed:
    """Decodes what follows the magic byte and the schema id, where it does not depend on that schema."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, data: Any) -> DecodedColumn:
        from kohort.spark.formats.frames import unframed

        framed = unframed(data)
        decoded = self._decoder.decode(framed.payloads)
        return DecodedColumn(decoded.array, decoded.bad | framed.bad)


@lru_cache(maxsize=64)
def decoder_for(decoding: ColumnDecoding) -> Decoder:
    """Makes a decoder, which this process keeps: it has compiled schemas, and those that the registry gave."""
    try:
        return _made(decoding)
    except ImportError as error:
        raise missing_package(decoding.format, error) from error


def _made(decoding: ColumnDecoding) -> Decoder:
    if decoding.format == "string":
        from kohort.spark.formats.strings import StringDecoder

        return StringDecoder()
    if decoding.format == "json":
        from kohort.spark.formats.json_decoder import JsonDecoder

        json_decoder = JsonDecoder(decoding.target)
        return json_decoder if decoding.registry is None else Unframed(json_decoder)
    if decoding.format == "avro":
        from kohort.spark.formats.avro_decoder import AvroDecoder

        return AvroDecoder(decoding)
    if decoding.format == "protobuf":
        from kohort.spark.formats.protobuf_decoder import ProtobufDecoder

        return ProtobufDecoder(decoding)
    raise AssertionError(decoding.format)


def missing_package(format_name: str, error: ImportError) -> KohortError:
    """Names the package that a format needs, and the Python that lacks it."""
    if isinstance(error, KohortError):  # kohort.serde has said it already, but for the Python
        return KohortError(f"{error} (for the Python of this process, {sys.executable})")
    return KohortError(
        f"{format_name} needs the package {error.name}, which the Python of this process lacks ({sys.executable}): "
        'install it there with pip install "kohort[spark,serde]"'
    )
