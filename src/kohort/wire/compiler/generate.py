"""Writes `messages/` and `codecs/` from `schema/`: `python -m kohort.wire.compiler.generate` (or `make messages`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from kohort.wire.compiler.decoder import decoder_source
from kohort.wire.compiler.encoder import encoder_source
from kohort.wire.compiler.notation import (
    ApiSpec,
    DataSpec,
    FieldSpec,
    Spec,
    StructSpec,
    all_apis,
    all_data,
    all_schemas,
)
from kohort.wire.compiler.source import default_expression

_PYTHON = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "Records",
    "uuid": "bytes",
}


def default_of(spec: FieldSpec) -> str:
    """The Python expression of a field's default; structs and arrays are made in `__init__`."""
    return "None" if spec.is_array or spec.type[0].isupper() else default_expression(spec)


def annotation_of(spec: FieldSpec, *, immutable: bool = False) -> str:
    """The Python type of a field."""
    kind = _PYTHON.get(spec.type, spec.type if spec.type[0].isupper() else "int")
    if spec.is_array:
        kind = f"tuple[{kind}, ...]" if immutable else f"list[{kind}]"
    can_be_null = spec.nullable.first <= spec.nullable.last or spec.default == "null"
    return f"{kind} | None" if can_be_null else kind


def _struct_source(struct: StructSpec, api: ApiSpec) -> list[str]:
    is_message = struct in (api.request, api.response)
    lines = ["", "", f"class {struct.name}({'Message' if is_message else 'Struct'}):"]
    if is_message:
        lines += [f"    API_KEY = {api.key}"]
    if not struct.fields:
        return lines + ["    __slots__ = ()"]
    names = ", ".join(f'"{spec.name}"' for spec in struct.fields)
    lines += [f"    __slots__ = ({names},)", "    FIELDS = __slots__", ""]
    lines += ["    def __init__(", "        self,"]
    body = []
    for spec in struct.fields:
        kind, default = annotation_of(spec), default_of(spec)
        made = not kind.endswith("None") and (spec.is_array or spec.type[0].isupper())
        if made:
            fresh = "[]" if spec.is_array else f"{spec.type}()"
            lines.append(f"        {spec.name}: {kind} | None = None,")
            body.append(f"        self.{spec.name}: {kind} = {fresh} if {spec.name} is None else {spec.name}")
        else:
            lines.append(f"        {spec.name}: {kind} = {default},")
            body.append(f"        self.{spec.name} = {spec.name}")
    return lines + ["    ) -> None:"] + body


def _named_tuple_source(struct: StructSpec) -> list[str]:
    """A struct of a format of its own: immutable, so that it can be kept as state and used as a key."""
    lines = ["", "", f"class {struct.name}(NamedTuple):"]
    for spec in struct.fields:
        default = default_expression(spec, immutable=True)
        if spec.type[0].isupper() and not spec.is_array and spec.default != "null":
            default = f"{spec.type}()"
        lines.append(f"    {spec.name}: {annotation_of(spec, immutable=True)} = {default}")
    return lines


def module_source(schema: Spec) -> str:
    """The module in `messages/` with the classes of a schema."""
    # Structs that a later one refers to come first, so that the file reads without forward references.
    order: list[StructSpec] = []

    def visit(struct: StructSpec) -> None:
        for spec in struct.fields:
            if spec.type[0].isupper():
                visit(schema.structs[spec.type])
        if struct not in order:
            order.append(struct)

    for message in schema.messages:
        visit(message)
    kinds = {spec.type for struct in order for spec in struct.fields}
    names = (["Records"] if "records" in kinds else []) + (["ZERO_UUID"] if "uuid" in kinds else [])
    if isinstance(schema, ApiSpec):
        names += ["Message"] + (["Struct"] if len(order) > 2 else [])
    lines = [
        f'"""{schema.purpose}',
        "",
        f"Generated from schema/{schema.module}.txt by `make messages`; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
    ]
    if isinstance(schema, DataSpec):
        lines += ["from typing import NamedTuple", *([""] if names else [])]
    if names:
        lines.append(
            f"from kohort.wire.struct import {', '.join(sorted(names, key=lambda n: (not n.isupper(), n)))}"
        )
    for struct in order:
        lines += (
            _struct_source(struct, schema) if isinstance(schema, ApiSpec) else _named_tuple_source(struct)
        )
    return "\n".join(lines) + "\n"


def init_source() -> str:
    """The `__init__` of `messages/`."""
    lines = [
        '"""The classes of all messages and records, one module per schema, and a table of the APIs.',
        "",
        "Generated from schema/ by `make messages`; do not edit.",
        '"""',
        "",
        "from typing import NamedTuple",
        "",
        "",
        "class Api(NamedTuple):",
        "    module: str",
        "    name: str",
        "    first: int",
        "    last: int",
        "",
        "",
        "APIS = {",
    ]
    for api in all_apis().values():
        row = f'Api("{api.module}", "{api.name}", {api.versions.first}, {api.versions.last})'
        lines.append(f"    {api.key}: {row},")
    return "\n".join([*lines, "}"]) + "\n"


# --- codecs ---------------------------------------------------------------------------------------

# What every client sends before its first record is read or written, and from then on.
READY = (
    "api_versions", "fetch", "find_coordinator", "heartbeat", "init_producer_id", "join_group", "leave_group",
    "list_offsets", "metadata", "offset_commit", "offset_fetch", "produce", "sync_group",
)  # fmt: skip

# Formats of their own, in the versions that are written here; and the first version of a subscription: the coordinator
# reads no more of any.
READY_DATA = (
    ("consumer_protocol_assignment", 3), ("consumer_protocol_subscription", 0), ("consumer_protocol_subscription", 3),
    ("group_metadata_key", 0), ("group_metadata_value", 3), ("offset_commit_key", 0), ("offset_commit_value", 4),
)  # fmt: skip

_IMPORTS = {
    "bad": "from kohort.wire.errors import BadFrame as bad",
    "uvarint": "from kohort.wire.varint import read_uvarint as uvarint",
    "uv": "from kohort.wire.varint import uvarint_bytes as uv",
    "skip_tags": "from kohort.wire.varint import skip_tags",
    "ZERO_UUID": "from kohort.wire.struct import ZERO_UUID",
    "struct_error": "from struct import error as struct_error",
    "unpack_from": "from struct import unpack_from",
    "pack": "from struct import pack",
}


def codec_source(api: ApiSpec) -> str:
    """A module with the two functions that a client needs of the newest version, as `compile` would make them."""
    version = api.versions.last
    encode, known = encoder_source(api, version, api.request)
    decode, more = decoder_source(api, version, api.response)
    encode = encode.replace("def encode(", "def encode_request(", 1)
    decode = decode.replace("def decode(", "def decode_response(", 1)
    title = f"{api.name} v{version}, the client's half."
    constants = f"VERSION, FLEXIBLE = {version}, {version in api.flexible}"
    return _codec_module(title, api, [encode, decode], known | more, [constants])


def data_codec_source(data: DataSpec, version: int) -> str:
    """A module with both functions of a format of its own in one version, as `compile` would make them."""
    encode, known = encoder_source(data, version, data.struct)
    decode, more = decoder_source(data, version, data.struct)
    return _codec_module(f"{data.name} v{version}.", data, [encode, decode], known | more, [])


def _codec_module(
    title: str, schema: Spec, functions: list[str], known: dict[str, Any], constants: list[str]
) -> str:
    used = [name for name in sorted(known) if re.search(rf"\b{name}\b", "".join(functions))]
    classes = [name for name in used if isinstance(known[name], type) and name not in _IMPORTS]
    structs = [
        f'{name} = Struct("{known[name].__self__.format}").{known[name].__name__}'
        for name in used
        if name not in _IMPORTS and name not in classes
    ]
    lines = [
        f'"""{title} Generated by `make messages`; do not edit."""',
        "# mypy: ignore-errors",
        "# ruff: noqa",
        "# fmt: off",
        "",
        "from struct import Struct",
        *(_IMPORTS[name] for name in used if name in _IMPORTS),
        f"from kohort.wire.messages.{schema.module} import {', '.join(classes)}",
        "",
        *constants,
        *structs,
    ]
    for function in functions:
        lines += ["", "", function]
    return "\n".join(lines) + "\n"


def codecs_source() -> str:
    """The `__init__` of `codecs/`."""
    lines = [
        '"""Codecs as source, made ahead: what clients need at once, so that a start does not wait for the compiler.',
        "",
        "Generated by `make messages`; do not edit.",
        '"""',
        "",
        "READY = frozenset(",
        "    {",
        *(f'        "{module}",' for module in READY),
        "    }",
        ")",
        "READY_DATA = frozenset(",
        "    {",
        *(f'        ("{module}", {version}),' for module, version in READY_DATA),
        "    }",
        ")",
    ]
    return "\n".join(lines) + "\n"


def write_all(target: Path, wanted: dict[str, str]) -> None:
    """Writes the wanted files, and deletes all other modules in the folder."""
    target.mkdir(exist_ok=True)
    for name, source in wanted.items():
        (target / name).write_text(source, "utf-8")
    for path in target.glob("*.py"):
        if path.name not in wanted:
            path.unlink()


def main() -> int:
    wire = Path(__file__).parent.parent
    messages = {f"{module}.py": module_source(spec) for module, spec in all_schemas().items()}
    write_all(wire / "messages", {"__init__.py": init_source(), **messages})
    # The codecs come second: their source is made with the classes at hand.
    codecs = {f"{api.module}.py": codec_source(api) for api in all_apis().values() if api.module in READY}
    codecs |= {
        f"{module}_v{version}.py": data_codec_source(all_data()[module], version)
        for module, version in READY_DATA
    }
    write_all(wire / "codecs", {"__init__.py": codecs_source(), **codecs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
