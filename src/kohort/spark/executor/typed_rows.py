"""Makes Arrow batches whose keys or values are decoded, and decides what becomes of records that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.client.types import TopicPartition
from kohort.errors import KohortError
from kohort.spark.executor.rows import MAKERS, TYPES, Rows
from kohort.spark.formats.decoding import (
    DecodedColumn,
    Decoder,
    RecordDecoding,
    RecordDoesNotFit,
    UndecidedRecord,
    decoder_for,
    missing_package,
)
from kohort.spark.formats.format_options import CORRUPT, ParseMode
from kohort.wire.records.columns import Columns

CORRUPT_TYPE = pa.struct([("reason", pa.string()), ("key", pa.binary()), ("value", pa.binary())])
_COLUMNS = ("key", "value")


class TypedRows(Rows):
    """Makes batches of one partition's records with decoded keys or values."""

    def __init__(self, partition: TopicPartition, names: Sequence[str], decoding: RecordDecoding) -> None:
        types = {**TYPES, CORRUPT: CORRUPT_TYPE}
        types |= {name: each.target for name, each in decoding.columns.items()}
        super().__init__(partition, names, types)
        self._names, self._mode = tuple(names), decoding.mode
        self._decoders: dict[str, Decoder] = {
            name: decoder_for(each) for name, each in decoding.columns.items()
        }
        self._formats = {name: each.format for name, each in decoding.columns.items()}

    def batch(self, columns: Columns) -> pa.RecordBatch:
        raw = {name: MAKERS[name](self, columns) for name in self._decoders}
        decoded = {name: self._decode(name, data, columns) for name, data in raw.items()}
        bad = sorted({row for each in decoded.values() for row in each.bad})
        if bad and self._mode is ParseMode.FAILFAST:
            self._fail(bad, decoded, columns)
        arrays = []
        for name in self._names:
            if name in decoded:
                arrays.append(decoded[name].array)
            elif name == CORRUPT:
                arrays.append(_corrupt(bad, raw, decoded, len(columns)))
            else:
                arrays.append(MAKERS[name](self, columns))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if bad and self._mode is ParseMode.DROPMALFORMED:
            kept = np.ones(len(columns), np.bool_)
            kept[bad] = False
            batch = batch.filter(pa.array(kept))
        return batch

    def _decode(self, name: str, data: Any, columns: Columns) -> DecodedColumn:
        try:
            return self._decoders[name].decode(data)
        except UndecidedRecord as undecided:
            raise KohortError(f"{self._place(undecided.row, columns)}: {undecided}") from undecided.__cause__
        except ImportError as error:
            raise missing_package(self._formats[name], error) from error

    def _place(self, row: int, columns: Columns) -> str:
        return f"{self.partition}@{int(columns.offsets[row])}"

    def _fail(self, bad: list[int], decoded: dict[str, DecodedColumn], columns: Columns) -> None:
        row = bad[0]
        name, reason = next((name, each.bad[row]) for name, each in decoded.items() if row in each.bad)
        more = (
            f" ({len(bad) - 1} more of the {len(columns)} records after it do not fit either)"
            if len(bad) > 1
            else ""
        )
        raise RecordDoesNotFit(
            f"{self._place(row, columns)}: the {name} does not fit {name}Format={self._formats[name]}: {reason}{more}. "
            "mode=PERMISSIVE keeps such records in the column _corrupt, mode=DROPMALFORMED leaves them out"
        )


def _corrupt(bad: list[int], raw: dict[str, Any], decoded: dict[str, DecodedColumn], count: int) -> Any:
    """The column of bad records: why, and the bytes of what could not be decoded; null for the others."""
    if not bad:
        return pa.nulls(count, CORRUPT_TYPE)
    found: list[dict[str, Any]] = []
    for row in bad:
        wrong = [name for name in _COLUMNS if name in decoded and row in decoded[name].bad]
        reason = "; ".join(f"{name}: {decoded[name].bad[row]}" for name in wrong)
        found.append({"reason": reason, **{name: raw[name][row].as_py() for name in wrong}})
    index = np.full(count, -1, np.int64)
    index[bad] = np.arange(len(bad))
    return pa.array(found, CORRUPT_TYPE).take(pa.array(index, mask=index < 0))
