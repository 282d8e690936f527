"""Builds one Arrow batch of columns of records, part by part, as they are decoded.

If they were compressed, keys and values are copied when a part comes, while its bytes are still in the processor's
cache, and the memory that they were decompressed to is free for the next part. `arrow.to_arrow`, which gets all parts
at once, makes the same batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import pyarrow as pa

from kohort.wire.records.arrow import PartitionColumns, arrow_schema, batch_of, bytes_array, extent
from kohort.wire.records.columns import Columns, loops_for


class ArrowRows:
    """An Arrow batch under construction: `add` the parts in their order, then `finish`.

    `expected` is about how many bytes of values will come. With `early`, parts are copied when they come and not at the
    end. Raises ValueError for a column that records do not have.
    """

    __slots__ = ("_expected", "_gathered", "_loops", "_parts", "_schema", "count", "size")

    def __init__(
        self,
        columns: Sequence[str] | None,
        *,
        binary_view: bool = False,
        early: bool = True,
        expected: int = 0,
    ) -> None:
        self._schema = arrow_schema(columns, binary_view=binary_view)
        self._gathered: dict[str, Any] | None = {} if early and not binary_view else None
        self._expected = expected
        self._loops: Any = None
        self._parts: list[PartitionColumns] = []
        self.count = 0
        """Rows so far."""
        self.size = 0
        """An upper bound of the bytes of keys and values so far."""

    def add(self, topic: str, partition: int, columns: Columns) -> None:
        if not len(columns):
            return
        self.size += extent(columns)
        if self._loops is None:
            self._loops = loops_for(len(columns.data))
            if not self._loops.COMPILED:
                self._gathered = None
        if self._gathered is not None:
            if "value" in self._schema.names:
                self._gather_values(self._gathered, columns)
            if "key" in self._schema.names:
                self._gather_keys(self._gathered, columns)
            if not (columns.has_headers and "headers" in self._schema.names):
                columns = copy(columns)
                columns.data = b""
        self._parts.append(PartitionColumns(topic, partition, columns))
        self.count += len(columns)

    def _gather_values(self, gathered: dict[str, Any], columns: Columns) -> None:
        if "value" not in gathered:
            gathered["value"] = self._loops.gathering(self._expected)
        gathered["value"].add(columns.data, columns.value_start, columns.value_size, columns.has_null_values)

    def _gather_keys(self, gathered: dict[str, Any], columns: Columns) -> None:
        if "key" not in gathered:
            if not columns.has_keys:
                return
            gathered["key"] = self._loops.gathering(0)
            gathered["key"].add_nulls(self.count)
        gathered["key"].add(columns.data, columns.key_start, columns.key_size, True)

    def finish(self) -> pa.RecordBatch | None:
        """The batch of all parts; None if they have no rows. This object cannot be used afterwards."""
        if not self._parts:
            return None
        made = {
            name: bytes_array(pa.binary(), self.count, *gathering.finish())
            for name, gathering in (self._gathered or {}).items()
        }
        return batch_of(self._parts, self._schema, made)
