"""Writes `messages/` and `codecs/` from `schema/`: `python -m kohort.wire.compiler.generate` (or `make messages`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kohort.wire.compiler.decoder import decoder_source
from kohort.wire.compiler.encoder import encoder_source
from kohort.wire.compiler.notation import ApiSpec, FieldSpec, StructSpec, all_apis
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


def annotation_of(spec: FieldSpec) -> str:
    kind = _PYTHON.get(spec.type, spec.type if spec.type[0].isupper() else "int")
    kind = f"list[{kind}]" if spec.is_array else kind
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


def module_source(api: ApiSpec) -> str:
    # Structs that a later one refers to come first, so that the file reads without forward references.
    order: list[StructSpec] = []

    def visit(struct: StructSpec) -> None:
        for spec in struct.fields:
            if spec.type[0].isupper():
                visit(api.structs[spec.type])
        if struct not in order:
            order.append(struct)

    visit(api.request)
    visit(api.response)
    kinds = {spec.type for struct in order for spec in struct.fields}
    names = ["Message"] + (["Struct"] if len(order) > 2 else [])
    names += (["Records"] if "records" in kinds else []) + (["ZERO_UUID"] if "uuid" in kinds else [])
    lines = [
        f'"""{api.purpose}',
        "",
        f"Generated from schema/{api.module}.txt by `make messages`; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        f"from kohort.wire.struct import {', '.join(sorted(names, key=lambda n: (not n.isupper(), n)))}",
    ]
    for struct in order:
        lines += _struct_source(struct, api)
    return "\n".join(lines) + "\n"


def init_source() -> str:
    lines = [
        '"""The classes of all messages, one module per API; and a table of them, so that nobody has to read',
        "all of schema/ to learn about one.",
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

# What every client says before its first record is read or written, and from then on.
READY = (
    "api_versions", "fetch", "find_coordinator", "heartbeat", "init_producer_id", "join_group", "leave_group",
    "list_offsets", "metadata", "offset_commit", "offset_fetch", "produce", "sync_group",
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
    known = known | more
    encode = encode.replace("def encode(", "def encode_request(", 1)
    decode = decode.replace("def decode(", "def decode_response(", 1)
    used = [name for name in sorted(known) if re.search(rf"\b{name}\b", encode + decode)]
    classes = [name for name in used if isinstance(known[name], type) and name not in _IMPORTS]
    structs = [
        f'{name} = Struct("{known[name].__self__.format}").{known[name].__name__}'
        for name in used
        if name not in _IMPORTS and name not in classes
    ]
    lines = [
        f'"""{api.name} v{version}, the client\'s half. Generated by `make messages`; do not edit."""',
        "# mypy: ignore-errors",
        "# ruff: noqa",
        "# fmt: off",
        "",
        "from struct import Struct",
        *(_IMPORTS[name] for name in used if name in _IMPORTS),
        f"from kohort.wire.messages.{api.module} import {', '.join(classes)}",
        "",
        f"VERSION, FLEXIBLE = {version}, {version in api.flexible}",
        *structs,
    ]
    return "\n".join([*lines, "", "", encode, "", "", decode]) + "\n"


def codecs_source() -> str:
    lines = [
        '"""Codecs that are ready: what clients need at once, as source; a start does not wait for the compiler.',
        "",
        "Generated by `make messages`; do not edit.",
        '"""',
        "",
        "READY = frozenset(",
        "    {",
        *(f'        "{module}",' for module in READY),
        "    }",
        ")",
    ]
    return "\n".join(lines) + "\n"


def write_all(target: Path, wanted: dict[str, str]) -> None:
    target.mkdir(exist_ok=True)
    for name, source in wanted.items():
        (target / name).write_text(source, "utf-8")
    for path in target.glob("*.py"):
        if path.name not in wanted:
            path.unlink()


def main() -> int:
    wire, apis = Path(__file__).parent.parent, all_apis().values()
    messages = {f"{api.module}.py": module_source(api) for api in apis}
    codecs = {f"{api.module}.py": codec_source(api) for api in apis if api.module in READY}
    write_all(wire / "messages", {"__init__.py": init_source(), **messages})
    write_all(wire / "codecs", {"__init__.py": codecs_source(), **codecs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
