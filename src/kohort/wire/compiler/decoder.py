"""Writes the source of a decode function: straight-line code for one message in one version."""

from __future__ import annotations

import struct
from typing import Any

from kohort.wire.compiler.notation import DataSpec, FieldSpec, Spec, StructSpec
from kohort.wire.compiler.source import BLOBS, FORMAT, CodecSource, default_expression, is_fixed


def decoder_source(schema: Spec, version: int, message: StructSpec) -> tuple[str, dict[str, Any]]:
    """The source of `decode`, and the names that it uses.

    A request or response is a whole frame: `slack` says how many bytes may follow it. A format of its own begins
    behind its int16; whatever follows is ignored, as Kafka does, because later versions may add fields at the end.
    """
    src = CodecSource(schema, version, keeps_views=_has_records(schema, version, message))
    if isinstance(schema, DataSpec):
        src.add(0, f"def decode(buf, pos={2 if schema.prefix else 0}):")
    else:
        src.add(0, "def decode(buf, pos=0, slack=0):")
    if not src.keeps_views:
        # One copy of the frame halves the cost of all that is cut from it: a slice of a view is a view first.
        src.add(1, "buf = bytes(buf)")
    src.add(1, "end = len(buf)", "try:")
    built = _decode_struct(src, message, 2)
    src.add(2, f"message = {built}")
    src.add(1, f"except (IndexError, struct_error): raise bad('{src.whole} ends too early') from None")
    src.add(1, "except UnicodeDecodeError: raise bad('a string is not UTF-8') from None")
    if not isinstance(schema, DataSpec):
        src.add(1, "if end - pos > slack: raise bad(f'{end - pos} bytes follow the message')")
    src.add(1, "return message")
    src.names["struct_error"] = struct.error
    return "\n".join(src.lines), src.names


def _has_records(schema: Spec, version: int, struct: StructSpec) -> bool:
    return any(
        spec.type == "records"
        or (spec.type in schema.structs and _has_records(schema, version, schema.structs[spec.type]))
        for spec in struct.fields
        if version in spec.versions
    )


def _decode_struct(src: CodecSource, struct: StructSpec, depth: int) -> str:
    """Adds lines that read a struct; returns the expression that builds it."""
    plain, tagged = src.fields(struct)
    values: dict[str, str] = {}
    for spec in plain:
        if is_fixed(spec):
            values[spec.name] = src.read_later(FORMAT[spec.type])
        else:
            values[spec.name] = _decode_value(src, spec, depth)
    if src.flexible:
        _decode_tags(src, tagged, values, depth)
    src.read_now(depth)
    arguments = [
        values.get(spec.name, default_expression(spec, immutable=src.immutable)) for spec in struct.fields
    ]
    return f"{src.struct_class(struct)}({', '.join(arguments)})"


def _decode_tags(src: CodecSource, tagged: list[FieldSpec], values: dict[str, str], depth: int) -> None:
    count = src.read_later("B", "n")
    src.read_now(depth)
    src.add(depth, f"if {count} > 127: {count}, pos = uvarint(buf, pos - 1)")
    if not tagged:
        src.add(depth, f"if {count}: pos = skip_tags(buf, pos, {count})")
        return
    for spec in tagged:
        values[spec.name] = src.temporary()
        if spec.type in src.schema.structs:
            src.struct_class(src.schema.structs[spec.type])
        src.add(depth, f"{values[spec.name]} = {default_expression(spec, immutable=src.immutable)}")
    tag, size, end = src.temporary("t"), src.temporary("s"), src.temporary("e")
    src.add(depth, f"for _ in range({count}):")
    src.add(
        depth + 1,
        f"{tag}, pos = uvarint(buf, pos)",
        f"{size}, pos = uvarint(buf, pos)",
        f"{end} = pos + {size}",
    )
    src.add(depth + 1, f"if {end} > end: raise bad('a tagged field is longer than {src.whole}')")
    for number, spec in enumerate(tagged):
        src.add(depth + 1, f"{'if' if number == 0 else 'elif'} {tag} == {spec.tag}:")
        if is_fixed(spec):
            value = src.read_later(FORMAT[spec.type])
            src.read_now(depth + 2)
        else:
            value = _decode_value(src, spec, depth + 2)
        src.add(depth + 2, f"{values[spec.name]} = {value}")
        src.add(depth + 2, f"if pos != {end}: raise bad('tagged field {spec.name} has a wrong length')")
    src.add(depth + 1, f"else: pos = {end}")


def _decode_value(src: CodecSource, spec: FieldSpec, depth: int) -> str:
    if spec.is_array:
        return _decode_array(src, spec, depth)
    if spec.type in BLOBS:
        nullable = src.version in spec.nullable
        return _decode_blob(src, spec.name, spec.type, nullable, depth)
    src.read_now(depth)
    value = src.temporary()
    struct = src.schema.structs[spec.type]
    if src.version in spec.nullable:
        there = ">= 0" if spec.tag is None else "!= 0"  # an int8, in a tagged field a varint
        src.add(depth, f"{value} = None", "pos += 1", f"if {src.unpack('b')}(buf, pos - 1)[0] {there}:")
        src.add(depth + 1, f"{value} = {_decode_struct(src, struct, depth + 1)}")
    else:
        src.add(depth, f"{value} = {_decode_struct(src, struct, depth)}")
    return value


def _decode_length(src: CodecSource, name: str, classic: str, depth: int) -> str:
    """Adds lines that read a length or count, with the fields of fixed size before it; a null is -1."""
    size = src.read_later("B" if src.flexible else classic, "n")
    src.read_now(depth)
    if src.flexible:
        src.add(depth, f"if {size} > 127:", f"    {size}, pos = uvarint(buf, pos - 1)")
        if classic == "h":
            # Kafka's own limit. With it, every string can be sent to a peer that speaks a classic version.
            src.add(depth + 1, f"if {size} > 32768: raise bad('{name} is longer than 32767 bytes')")
        src.add(depth, f"{size} -= 1")
    return size


def _decode_null(src: CodecSource, name: str, size: str, value: str, nullable: bool, depth: int) -> None:
    """Adds lines for a negative length; the lines for any other length go behind them."""
    src.add(depth, f"if {size} < 0:")
    if not src.flexible:
        src.add(depth + 1, f"if {size} < -1: raise bad('{name} has a negative length')")
    src.add(depth + 1, f"{value} = None" if nullable else f"raise bad('{name} is null')")
    src.add(depth, "else:")


def _decode_blob(src: CodecSource, name: str, kind: str, nullable: bool, depth: int) -> str:
    value = src.temporary()
    size = _decode_length(src, name, "h" if kind == "string" else "i", depth)
    _decode_null(src, name, size, value, nullable, depth)
    stop = src.temporary("e")
    src.add(depth + 1, f"{stop} = pos + {size}")
    src.add(depth + 1, f"if {stop} > end: raise bad('{name} is longer than {src.whole}')")
    view = f"buf[pos:{stop}]"
    if kind == "string":
        view = f"str({view}, 'utf-8') if {size} else ''" if src.keeps_views else f"{view}.decode()"
    elif kind == "bytes" and src.keeps_views:
        view = f"bytes({view})"
    src.add(depth + 1, f"{value} = {view}", f"pos = {stop}")
    return value


def _decode_array(src: CodecSource, spec: FieldSpec, depth: int) -> str:
    value, count = src.temporary(), _decode_length(src, spec.name, "i", depth)
    _decode_null(src, spec.name, count, value, src.version in spec.nullable, depth)
    least = src.least_size(spec, element=True)
    src.add(
        depth + 1, f"if {count} * {least} > end - pos: raise bad('{spec.name} has more elements than bytes')"
    )
    if spec.type in FORMAT and spec.type != "uuid":
        src.names["unpack_from"] = struct.unpack_from
        numbers = f"unpack_from(f'>{{{count}}}{FORMAT[spec.type]}', buf, pos)"
        src.add(depth + 1, f"{value} = {numbers if src.immutable else f'list({numbers})'}")
        src.add(depth + 1, f"pos += {count} * {least}")
        return value
    add = src.temporary("a")
    src.add(depth + 1, f"{value} = []", f"{add} = {value}.append", f"for _ in range({count}):")
    inner = depth + 2
    if spec.type == "uuid":
        src.add(inner, f"{add}(bytes(buf[pos:pos + 16]))", "pos += 16")
    elif spec.type in BLOBS:
        src.add(inner, f"{add}({_decode_blob(src, spec.name, spec.type, False, inner)})")
    else:
        src.add(inner, f"{add}({_decode_struct(src, src.schema.structs[spec.type], inner)})")
    if src.immutable:
        src.add(depth + 1, f"{value} = tuple({value})")
    return value
