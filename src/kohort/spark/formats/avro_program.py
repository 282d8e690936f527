"""Makes the program that decodes Avro from the writer's schema, the reader's and the type that Spark expects.

It follows Avro's rules of schema resolution: fields by name or alias, defaults, promotions. `NotCompiled` is raised for
what is left to fastavro: unions that changed, enums with other symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kohort.spark.formats import avro_kernel as vm
from kohort.spark.formats.avro_schema import NO_DEFAULT, AvroField, AvroType, members, widened
from kohort.spark.formats.byte_columns import parts, read_only
from kohort.spark.formats.column_runs import (
    OF_BYTES,
    OF_LISTS,
    OF_NUMBERS,
    ColumnRun,
    Make,
    NotCompiled,
    Plan,
    WrongContent,
    bytes_of,
    lists_of,
    numbers_of,
    struct_of,
    symbols_of,
    validity_of,
)

_PROMOTED = {
    "int": ("int", "long", "float", "double"), "long": ("long", "float", "double"), "float": ("float", "double"),
    "double": ("double",), "string": ("string", "bytes"), "bytes": ("bytes", "string"), "boolean": ("boolean",),
}  # fmt: skip


class Incompatible(ValueError):
    """A record's schema cannot be read as the reader's; the text says why."""


@dataclass(slots=True, eq=False)
class Program:
    operations: list[list[int]] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    nulls: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    has_lists: bool = False


class AvroProgram:
    """Decodes records of one writer's schema to one type."""

    def __init__(self, writer: AvroType, reader: AvroType, target: Any) -> None:
        made = _Compiler()
        plan = made.emit(writer, reader, target)
        made.add(vm.END)
        self._plan = plan
        program = made.program
        self._top = len(plan.columns)
        self._operations = np.array(program.operations, np.int64)
        self._branches = read_only(np.array(program.branches, np.int64))
        self._nulls = read_only(np.array([*program.nulls, *plan.columns], np.int64))
        self._kinds = read_only(np.array(program.kinds, np.int64))
        self._has_lists = program.has_lists

    def decode(self, data: Any, rows: Any, skip: int) -> tuple[Any, dict[int, str]]:
        """The values at these rows, and which of them are bad, counted among these rows."""
        content, ends = parts(data)
        most = len(rows) + (len(content) if self._has_lists else 0) + 1
        capacity = min(most, 2 * len(rows) + 64) if self._has_lists else most
        while True:
            run, bad = self._run(content, ends, rows, skip, capacity, capacity == most)
            if run is not None:
                break
            capacity = min(most, 4 * capacity)
        reasons = {
            int(at): _reason(int(bad[at, 0]), int(bad[at, 1])) for at in np.flatnonzero(bad[:, 0]).tolist()
        }
        return self._plan.make(run, len(rows)), reasons

    def _run(
        self, content: Any, ends: Any, rows: Any, skip: int, capacity: int, last: bool
    ) -> tuple[ColumnRun | None, Any]:
        columns = len(self._kinds)
        cells, valid = np.empty((columns, capacity), np.int64), np.empty((columns, capacity), np.uint8)
        filled, counts = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
        bad = np.empty((len(rows), 2), np.int64)
        settings = read_only(np.array([skip, self._top, last], np.int64))
        done = vm.run(
            self._operations, self._branches, self._nulls, self._kinds, content, ends, read_only(rows), settings, cells,
            valid, filled, counts, bad,
        )  # fmt: skip
        return (None if done == vm.FULL else ColumnRun(content, cells, valid, filled, counts)), bad


def _reason(code: int, detail: int) -> str:
    return {
        vm.TOO_SHORT: "the record ends too early",
        vm.TOO_LONG_NUMBER: "a number has too many bits",
        vm.NO_BRANCH: f"a union has no branch {detail}",
        vm.NO_SYMBOL: f"an enum has no symbol {detail}",
        vm.NO_BOOLEAN: f"a boolean is {detail}, not 0 or 1",
        vm.BELOW_ZERO: f"a length is {detail}",
        vm.LEFT_OVER: f"{detail} bytes are left after the record, so it was written with another schema",
        vm.NULL: "it has null where the reader's schema has no null",
        vm.TOO_MANY: "an array or map has more elements than the record has bytes",
    }[code]


# --- the compiler -----------------------------------------------------------------------------------------


class _Compiler:
    def __init__(self) -> None:
        self.program = Program()

    def add(self, operation: int, a: int = 0, b: int = 0, c: int = 0) -> int:
        self.program.operations.append([operation, a, b, c])
        return len(self.program.operations) - 1

    def column(self, kind: int) -> int:
        self.program.kinds.append(kind)
        if kind == OF_BYTES:
            self.program.kinds.append(OF_NUMBERS)  # its sizes
            return len(self.program.kinds) - 2
        return len(self.program.kinds) - 1

    def emit(self, writer: AvroType, reader: AvroType, target: Any) -> Plan:
        if writer.kind == "union":
            return self._union(writer, reader, target)
        if reader.kind == "union":
            branches = members(reader)
            if len(branches) > 1:
                branches = [each for each in branches if _same(each, writer)] if widened(branches) else []
            if len(branches) != 1:
                raise NotCompiled
            reader = branches[0]
        if writer.kind == "record" and reader.kind == "record":
            return self._record(writer, reader, target)
        if writer.kind in ("array", "map") and writer.kind == reader.kind:
            return self._list(writer, reader, target)
        return self._leaf(writer, reader, target)

    def skip(self, writer: AvroType) -> None:
        """Reads a value and forgets it."""
        if writer.kind == "record":
            for each in writer.fields:
                self.skip(each.type)
        elif writer.kind in ("array", "map"):
            self._loop(writer, lambda: self.skip(writer.inner[0]), skip_key=True)
        elif writer.kind == "union":
            self._branches(len(writer.inner), lambda at: self.skip(writer.inner[at]))
        elif writer.kind != "null":
            self._read(writer, -1)

    def _read(self, writer: AvroType, column: int) -> None:
        operation, number = {
            "int": (vm.NUMBER, 32), "long": (vm.NUMBER, 64), "boolean": (vm.BOOLEAN, 1), "float": (vm.FLOAT, 4),
            "double": (vm.DOUBLE, 8), "bytes": (vm.BYTES, 0), "string": (vm.BYTES, 0), "fixed": (vm.FIXED, writer.size),
            "enum": (vm.ENUM, len(writer.symbols)),
        }[writer.kind]  # fmt: skip
        self.add(operation, column, number)

    def _leaf(self, writer: AvroType, reader: AvroType, target: Any) -> Plan:
        if writer.kind in ("fixed", "enum"):
            if writer.kind != reader.kind or writer.size != reader.size:
                raise Incompatible(f"{_named(writer)} cannot be read as {_named(reader)}")
            if not set(writer.symbols) <= set(reader.symbols):
                raise NotCompiled
        elif reader.kind not in _PROMOTED.get(writer.kind, ()):
            raise Incompatible(f"{_named(writer)} cannot be read as {_named(reader)}")
        of_bytes = writer.kind in ("bytes", "string", "fixed")
        column = self.column(OF_BYTES if of_bytes else OF_NUMBERS)
        self._read(writer, column)
        if writer.kind == "enum":
            make = symbols_of(column, writer.symbols)
        elif of_bytes:
            make = _decimals(column, target) if pa.types.is_decimal(target) else bytes_of(column, target)
        else:
            make = numbers_of(column, writer.kind, reader.logical, target)
        return Plan(make, [column])

    def _record(self, writer: AvroType, reader: AvroType, target: Any) -> Plan:
        if not pa.types.is_struct(target):
            raise Incompatible(f"{_named(writer)} cannot be read as {target}")
        column = self.column(OF_NUMBERS)
        self.add(vm.STRUCT, column)
        wanted = {each.name: each.type for each in target}
        plans: dict[str, Plan] = {}
        for each in writer.fields:
            known = _reader_field(each, reader)
            if known is None or known.name not in wanted:
                self.skip(each.type)
                continue
            try:
                plans[known.name] = self.emit(each.type, known.type, wanted[known.name])
            except Incompatible as error:
                raise Incompatible(f"field {each.name}: {error}") from None
        for name in wanted:
            if name not in plans:
                plans[name] = _default(
                    next(each for each in reader.fields if each.name == name), wanted[name]
                )
        ordered = [plans[name] for name in wanted]
        return Plan(
            struct_of(column, [plan.make for plan in ordered], target),
            [column, *(c for plan in ordered for c in plan.columns)],
        )

    def _list(self, writer: AvroType, reader: AvroType, target: Any) -> Plan:
        inner: list[Plan] = []
        is_map = writer.kind == "map"
        kind = target.item_type if is_map else target.value_type
        keys = self.column(OF_BYTES) if is_map else -1

        def body() -> None:
            if is_map:
                self.add(vm.BYTES, keys)
            inner.append(self.emit(writer.inner[0], reader.inner[0], kind))

        column = self._loop(writer, body)
        children = [bytes_of(keys, pa.string()), inner[0].make] if is_map else [inner[0].make]
        return Plan(lists_of(column, children, target), [column])

    def _loop(self, writer: AvroType, body: Callable[[], None], skip_key: bool = False) -> int:
        self.program.has_lists = True
        column = self.column(OF_LISTS)
        begin = self.add(vm.BEGIN, column)
        if skip_key and writer.kind == "map":
            self.add(vm.BYTES, -1)
        body()
        self.program.operations[begin][2] = self.add(vm.NEXT, column, begin + 1)
        return column

    def _branches(self, count: int, branch: Callable[[int], None]) -> list[int]:
        """A union: what to do for each branch. Returns where the table of each branch is, for its columns of nulls."""
        self.add(vm.UNION, count, len(self.program.branches))
        tables = [len(self.program.branches) + 3 * at for at in range(count)]
        self.program.branches += [0] * (3 * count)
        jumps = []
        for at in range(count):
            self.program.branches[tables[at]] = len(self.program.operations)
            branch(at)
            jumps.append(self.add(vm.JUMP))
        for jump in jumps:
            self.program.operations[jump][1] = len(self.program.operations)
        return tables

    def _set_nulls(self, table: int, columns: list[int]) -> None:
        self.program.branches[table + 1] = len(self.program.nulls)
        self.program.nulls += columns
        self.program.branches[table + 2] = len(self.program.nulls)

    def _union(self, writer: AvroType, reader: AvroType, target: Any) -> Plan:
        branches = members(writer)
        nullable = reader.kind == "union" and any(each.kind == "null" for each in reader.inner)
        if len(branches) > 1:
            return self._wide_union(writer, reader, target)
        if not branches:
            raise NotCompiled
        plans: list[Plan] = []

        def branch(at: int) -> None:
            if writer.inner[at].kind != "null":
                plans.append(self.emit(writer.inner[at], reader, target))
            elif not nullable:
                self.add(vm.FAIL)

        tables = self._branches(len(writer.inner), branch)
        for at, each in enumerate(writer.inner):
            if each.kind == "null" and nullable:
                self._set_nulls(tables[at], plans[0].columns)
        return plans[0]

    def _wide_union(self, writer: AvroType, reader: AvroType, target: Any) -> Plan:
        """A union of several types that the writer and the reader have alike: a struct of members."""
        if not _same(writer, reader):
            raise NotCompiled
        if widened(members(writer)):
            return self._whole_numbers(writer, target)
        column = self.column(OF_NUMBERS)
        wanted = {each.name: each.type for each in target}
        plans: dict[int, Plan] = {}
        names: dict[int, str] = {}
        for at, each in enumerate(writer.inner):
            if each.kind != "null":
                names[at] = f"member{len(names)}"

        def branch(at: int) -> None:
            if at not in names:
                return
            self.add(vm.STRUCT, column)
            if names[at] in wanted:
                plans[at] = self.emit(writer.inner[at], writer.inner[at], wanted[names[at]])
            else:
                self.skip(writer.inner[at])

        tables = self._branches(len(writer.inner), branch)
        for at in range(len(writer.inner)):
            others = [c for other, plan in plans.items() if other != at for c in plan.columns]
            self._set_nulls(tables[at], others if at in names else [column, *others])
        ordered = [plans[at] for name in wanted for at in plans if names[at] == name]
        columns = [column, *(c for plan in ordered for c in plan.columns)]
        return Plan(struct_of(column, [plan.make for plan in ordered], target), columns)

    def _whole_numbers(self, writer: AvroType, target: Any) -> Plan:
        """A union of int and long, which is a long."""
        if widened(members(writer)) != "long":
            raise NotCompiled
        column = self.column(OF_NUMBERS)

        def branch(at: int) -> None:
            if writer.inner[at].kind != "null":
                self._read(writer.inner[at], column)

        tables = self._branches(len(writer.inner), branch)
        for at, each in enumerate(writer.inner):
            if each.kind == "null":
                self._set_nulls(tables[at], [column])
        return Plan(numbers_of(column, "long", "", target), [column])


def _named(kind: AvroType) -> str:
    return f"the Avro type {kind.name or kind.kind}"


def _reader_field(written: AvroField, reader: AvroType) -> AvroField | None:
    for each in reader.fields:
        if each.name == written.name:
            return each
    return next((each for each in reader.fields if written.name in each.aliases), None)


def _same(one: AvroType, other: AvroType) -> bool:
    return (
        _facts(one) == _facts(other)
        and [each.name for each in one.fields] == [each.name for each in other.fields]
        and all(_same(a.type, b.type) for a, b in zip(one.fields, other.fields, strict=True))
        and all(_same(a, b) for a, b in zip(one.inner, other.inner, strict=True))
    )


def _facts(kind: AvroType) -> tuple[object, ...]:
    numbers = (kind.size, kind.precision, kind.scale, len(kind.inner))
    return (kind.kind, kind.name, kind.logical, kind.symbols, *numbers)


def _decimals(column: int, target: Any) -> Make:
    def make(run: ColumnRun, count: int) -> Any:
        out = np.empty((count, 16), np.uint8)
        starts, sizes = (
            read_only(np.ascontiguousarray(run.cells[at, :count])) for at in (column, column + 1)
        )
        valid = validity_of(run, column, count)
        too_large = vm.decimals(run.data, starts, sizes, out)
        array = pa.Array.from_buffers(target, count, [valid, pa.py_buffer(out)])
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            too_large = 1
        if too_large:
            raise WrongContent(f"a number does not fit into decimal({target.precision},{target.scale})")
        return array

    return make


# --- defaults -------------------------------------------------------------------------------------------------


def _default(missing: AvroField, target: Any) -> Plan:
    """A field that the writer does not have: the same value in all rows."""
    if missing.default is NO_DEFAULT:
        raise Incompatible(
            f"the writer has no field {missing.name}, and the reader's schema has no default for it"
        )
    kind = missing.type
    if kind.kind == "union":
        kind = kind.inner[0]  # the default of a union is of its first branch
    scalar = pa.array([_default_value(missing.default, kind)], target)

    def make(run: ColumnRun, count: int) -> Any:
        return scalar.take(pa.array(np.zeros(count, np.int64)))

    return Plan(make, [])


def _default_value(value: Any, kind: AvroType) -> Any:
    """What pyarrow takes for a default as JSON has it."""
    if kind.kind == "union":
        kind = kind.inner[0]
    if value is None or kind.kind in ("boolean", "float", "double", "string", "enum"):
        return value
    if kind.kind in ("int", "long"):
        return value * 1000 if kind.logical.endswith("timestamp-millis") else value
    if kind.kind in ("bytes", "fixed"):
        raw = value.encode("latin-1")
        if not kind.precision:
            return raw
        from decimal import Decimal

        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-kind.scale)
    if kind.kind == "array":
        return [_default_value(each, kind.inner[0]) for each in value]
    if kind.kind == "map":
        return [(name, _default_value(each, kind.inner[0])) for name, each in value.items()]
    if kind.kind == "record":
        given = {each.name: value.get(each.name, each.default) for each in kind.fields}
        return {each.name: _default_value(given[each.name], each.type) for each in kind.fields}
    raise NotCompiled
