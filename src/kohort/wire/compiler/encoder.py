"""Writes the source of an encode function: straight-line code for one message in one version."""

from __future__ import annotations

import struct
from typing import Any

from kohort.wire.compiler.notation import DataSpec, FieldSpec, Spec, StructSpec
from kohort.wire.compiler.source import (
    BLOBS,
    FORMAT,
    ZERO,
    CodecSource,
    default_expression,
    is_fixed,
    writes_null,
)


def encoder_source(schema: Spec, version: int, message: StructSpec) -> tuple[str, dict[str, Any]]:
    """The source of `encode`, and the names that it uses.

    A request or response becomes a list of chunks, a format of its own one `bytes` with its int16 before it.
    """
    src = CodecSource(schema, version)
    src.add(0, "def encode(message):")
    src.add(1, "out = []", "add = out.append")
    if isinstance(schema, DataSpec):
        prefix = {"version": version, "type": schema.record_type}.get(schema.prefix)
        _encode_struct(src, message, "message", 1, prefix)
        src.add(1, "return b''.join(out)")
    else:
        _encode_struct(src, message, "message", 1)
        src.add(1, "return out")
    return "\n".join(src.lines), src.names


def _encode_struct(
    src: CodecSource, struct: StructSpec, obj: str, depth: int, prefix: int | None = None
) -> None:
    """Adds lines that write a struct, behind an int16 if `prefix` is given."""
    if src.immutable:
        # One unpacking of a named tuple takes less time than its attributes one by one.
        names = {spec.name: src.temporary("f") for spec in struct.fields}
        src.add(depth, f"{', '.join(names.values())}, = {obj}")
    else:
        names = {spec.name: f"{obj}.{spec.name}" for spec in struct.fields}
    plain, tagged = src.fields(struct)
    layout, values = ("", []) if prefix is None else ("h", [str(prefix)])

    def flush() -> None:
        nonlocal layout
        if layout:
            src.add(depth, f"add({src.pack(layout)}({', '.join(values)}))")
            layout = ""
            values.clear()

    for spec in plain:
        if is_fixed(spec):
            layout += FORMAT[spec.type]
            values.append(names[spec.name])
        else:
            flush()
            _encode_value(src, spec, names[spec.name], depth)
    flush()
    if src.flexible:
        _encode_tags(src, tagged, names, depth)


def _encode_tags(src: CodecSource, tagged: list[FieldSpec], names: dict[str, str], depth: int) -> None:
    if not tagged:
        src.add(depth, "add(b'\\0')")
        return
    tags = src.temporary("t")
    src.add(depth, f"{tags} = []")
    for spec in tagged:
        value = src.temporary()
        src.add(depth, f"{value} = {names[spec.name]}")
        if spec.is_array and spec.default != "null":
            present = f"{value} is None or {value}" if writes_null(spec) else value
        elif spec.type[0].isupper():
            src.struct_class(src.schema.structs[spec.type])
            null = f"{value} is None or" if writes_null(spec) else f"{value} is not None and"
            present = f"{null} {value} != {spec.type}()"
        else:
            present = f"{value} != {default_expression(spec)}"
        src.add(depth, f"if {present}:")
        outer, chunks = src.temporary("o"), src.temporary("c")
        # A tagged field carries its own length: it is written to a list of its own first.
        src.add(depth + 1, f"{outer} = add", f"{chunks} = []", f"add = {chunks}.append")
        if is_fixed(spec):
            src.add(depth + 1, f"add({src.pack(FORMAT[spec.type])}({value}))")
        else:
            _encode_value(src, spec, value, depth + 1)
        src.add(depth + 1, f"add = {outer}", f"{tags}.append(({spec.tag}, b''.join({chunks})))")
    tag, body = src.temporary("k"), src.temporary("b")
    src.add(depth, f"add(uv(len({tags})))", f"for {tag}, {body} in {tags}:")
    src.add(depth + 1, f"add(uv({tag}))", f"add(uv(len({body})))", f"add({body})")


def _encode_length(src: CodecSource, size: str, classic: str, depth: int) -> None:
    src.add(depth, f"add(uv({size} + 1))" if src.flexible else f"add({src.pack(classic)}({size}))")


def _encode_null(src: CodecSource, classic: str) -> str:
    return "add(b'\\0')" if src.flexible else f"add({struct.pack('>' + classic, -1)!r})"


def _encode_value(src: CodecSource, spec: FieldSpec, value: str, depth: int) -> None:
    nullable = src.version in spec.nullable
    name = src.temporary()
    src.add(depth, f"{name} = {value}")
    if not spec.is_array and spec.type[0].isupper():
        if nullable:
            null = "\\xff" if spec.tag is None else "\\0"  # an int8, in a tagged field a varint
            src.add(depth, f"if {name} is None:", f"    add(b'{null}')", "else:", "    add(b'\\1')")
            depth += 1
        _encode_struct(src, src.schema.structs[spec.type], name, depth)
        return
    classic = "h" if spec.type == "string" and not spec.is_array else "i"
    if nullable:
        src.add(depth, f"if {name} is None:", "    " + _encode_null(src, classic), "else:")
        depth += 1
    elif spec.nullable.first <= spec.nullable.last:
        # This version has no null: an empty value is nearest to it.
        src.add(depth, f"if {name} is None: {name} = {'()' if spec.is_array else ZERO[spec.type]}")
    if spec.is_array:
        _encode_array(src, spec, name, depth)
    else:
        _encode_blob(src, spec.type, name, depth)


def _encode_blob(src: CodecSource, kind: str, value: str, depth: int) -> None:
    raw = value
    if kind == "string":
        raw = src.temporary()
        src.add(depth, f"{raw} = {value}.encode()")
    _encode_length(src, f"len({raw})", "h" if kind == "string" else "i", depth)
    src.add(depth, f"add({raw})")


def _encode_array(src: CodecSource, spec: FieldSpec, value: str, depth: int) -> None:
    _encode_length(src, f"len({value})", "i", depth)
    if spec.type in FORMAT and spec.type != "uuid":
        src.names["pack"] = struct.pack
        src.add(depth, f"add(pack(f'>{{len({value})}}{FORMAT[spec.type]}', *{value}))")
        return
    item = src.temporary("i")
    src.add(depth, f"for {item} in {value}:")
    if spec.type == "uuid":
        src.add(depth + 1, f"add({src.pack('16s')}({item}))")
    elif spec.type in BLOBS:
        _encode_blob(src, spec.type, item, depth + 1)
    else:
        _encode_struct(src, src.schema.structs[spec.type], item, depth + 1)
