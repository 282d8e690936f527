"""Reads the notation of `schema/` (see schema/README.md) into descriptions of APIs, records, structs and fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

PRIMITIVES = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "float64",
        "string",
        "bytes",
        "records",
        "uuid",
    ],
)
LATEST = 32767


class NotationError(ValueError):
    """A schema text that cannot be read; the message names the file and the line."""


@dataclass(frozen=True, slots=True)
class Versions:
    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER = Versions(1, 0)


@dataclass(slots=True)
class FieldSpec:
    name: str
    type: str  # a primitive, or the name of a struct
    is_array: bool
    versions: Versions
    nullable: Versions
    default: str | None
    tag: int | None


@dataclass(slots=True)
class StructSpec:
    name: str
    versions: Versions  # in which it is described
    fields: list[FieldSpec] = field(default_factory=list)


@dataclass(slots=True)
class SchemaSpec:
    """One file of `schema/`."""

    name: str
    module: str  # the file's stem, and the module in messages/
    purpose: str
    versions: Versions
    flexible: Versions
    structs: dict[str, StructSpec]  # every struct by name; the messages themselves are included


@dataclass(slots=True)
class ApiSpec(SchemaSpec):
    """A request and a response."""

    key: int
    request: StructSpec
    response: StructSpec

    @property
    def messages(self) -> tuple[StructSpec, ...]:
        return self.request, self.response


@dataclass(slots=True)
class DataSpec(SchemaSpec):
    """A format of its own: the key or value of a record, or a blob that a message carries."""

    struct: StructSpec
    prefix: str  # what the int16 before the struct holds: "version", "type", or "" if there is none
    record_type: int | None  # of a key or value: Kafka's number for this type of record

    @property
    def messages(self) -> tuple[StructSpec, ...]:
        return (self.struct,)


Spec = ApiSpec | DataSpec


# How the first line of a file begins, and how all of it looks. N is a number: the API's key, or the record's type.
_HEADS = {
    "api": "api N Name FIRST-LAST",
    "key": "key N Name FIRST-LAST",
    "value": "value N Name FIRST-LAST",
    "data": "data Name FIRST-LAST",
    "bare": "bare Name FIRST-LAST",
}
_VERSIONS = re.compile(r"(\d+)?(?:(\+)|-(\d+))?")
_FIELD = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*)\s+(?:\[(?P<element>[A-Za-z0-9]+)\]|(?P<type>[A-Za-z0-9]+))(?P<null>\?(?:\d+\+)?)?"
    r"(?:\s+(?P<versions>\d+\+|\d+-\d+|-\d+|\d+))?(?:\s+=\s+(?P<default>\S+))?(?:\s+tag\s+(?P<tag>\d+))?",
)
_DEFAULTS = dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), re.compile(r"-?\d+"))
_DEFAULTS |= {"bool": re.compile("[Tt]rue|[Ff]alse"), "float64": re.compile(r"-?\d+\.\d+")}
_DEFAULTS |= {"string": re.compile(r"\S+")}


def parse_versions(text: str | None, within: Versions) -> Versions:
    if not text:
        return within
    if text == "none":
        return NEVER
    match = _VERSIONS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a range of versions")
    first, plus, last = match.groups()
    low = int(first) if first else within.first
    high = int(last) if last else within.last if plus else low
    low, high = max(low, within.first), min(high, within.last)
    if low > high:
        raise ValueError(f"{text!r} has no version within {within.first}-{within.last}")
    return Versions(low, high)


def parse_schema(text: str, module: str) -> Spec:
    """Parses one schema file. Raises NotationError with the line that is wrong."""
    spec: Spec | None = None
    purpose = ""
    # (indentation, struct whose fields stand there, versions of that struct)
    stack: list[tuple[int, StructSpec, Versions]] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.split("#", 1)[0].rstrip() if spec else line.rstrip()
        if not stripped:
            continue
        try:
            if stripped.startswith("#"):
                purpose = f"{purpose} {stripped[1:].strip()}".strip()
            elif spec is None:
                spec = _head_line(stripped, module, purpose)
                if isinstance(spec, DataSpec):
                    stack = [(2, spec.struct, spec.versions)]
            elif stripped.startswith("flexible "):
                spec.flexible = parse_versions(stripped.split()[1], spec.versions)
            elif stripped in ("request", "response") and isinstance(spec, ApiSpec):
                stack = [(2, spec.request if stripped == "request" else spec.response, spec.versions)]
            else:
                _field_line(stripped, spec, stack)
        except ValueError as error:
            raise NotationError(f"schema/{module}.txt line {number}: {error}") from None
    if spec is None:
        raise NotationError(f"schema/{module}.txt: no line says what it describes")
    return spec


def _head_line(line: str, module: str, purpose: str) -> Spec:
    kind, *words = line.split()
    form = _HEADS.get(kind)
    if form is None:
        raise ValueError("the first line that counts begins with api, key, value, data or bare")
    if len(words) != len(form.split()) - 1 or ("N" in form.split() and not words[0].isdecimal()):
        raise ValueError(f"expected `{form}`")
    name, versions = words[-2:]
    span = parse_versions(versions, Versions(0, LATEST))
    if kind == "api":
        request, response = StructSpec(f"{name}Request", span), StructSpec(f"{name}Response", span)
        structs = {request.name: request, response.name: response}
        return ApiSpec(name, module, purpose, span, NEVER, structs, int(words[0]), request, response)
    struct = StructSpec(name, span)
    record_type = int(words[0]) if kind in ("key", "value") else None
    prefix = {"key": "type", "bare": ""}.get(kind, "version")
    return DataSpec(name, module, purpose, span, NEVER, {name: struct}, struct, prefix, record_type)


def _field_line(line: str, schema: Spec, stack: list[tuple[int, StructSpec, Versions]]) -> None:
    text = line.lstrip()
    indent = len(line) - len(text)
    match = _FIELD.fullmatch(text)
    if match is None:
        raise ValueError(f"cannot read the field {text!r}")
    while stack and stack[-1][0] > indent:
        stack.pop()
    if not stack or stack[-1][0] != indent:
        raise ValueError("this indentation belongs to no struct")
    _, owner, within = stack[-1]
    versions = parse_versions(match["versions"], within)
    nullable = NEVER
    if match["null"]:
        nullable = parse_versions(match["null"][1:] or None, versions)
    kind = match["element"] or match["type"]
    tag = int(match["tag"]) if match["tag"] else None
    spec = FieldSpec(match["name"], kind, bool(match["element"]), versions, nullable, match["default"], tag)
    _check_field(spec, owner, schema)
    owner.fields.append(spec)
    if kind not in PRIMITIVES and kind not in schema.structs:
        schema.structs[kind] = StructSpec(kind, versions)
        stack.append((indent + 2, schema.structs[kind], versions))


def _check_field(spec: FieldSpec, owner: StructSpec, schema: Spec) -> None:
    """Refuses what the compiler would otherwise compile wrongly without notice."""
    if any(other.name == spec.name for other in owner.fields):
        raise ValueError(f"{owner.name} has a field {spec.name!r} already")
    if spec.type not in PRIMITIVES and not spec.type[0].isupper():
        raise ValueError(f"{spec.type!r} is not a type")
    if spec.tag is not None and not _covers(schema.flexible, spec.versions):
        raise ValueError(f"{spec.name!r} has a tag in a version that is not flexible")
    if spec.tag is not None and any(other.tag == spec.tag for other in owner.fields):
        raise ValueError(f"{owner.name} has a tag {spec.tag} already")
    if spec.type in schema.structs and not _covers(schema.structs[spec.type].versions, spec.versions):
        raise ValueError(f"{spec.type} is described above for fewer versions than {spec.name!r} has")
    if spec.default is not None and not _default_fits(spec, spec.default):
        raise ValueError(f"{spec.default!r} is no default for {spec.name!r}")


def _default_fits(spec: FieldSpec, default: str) -> bool:
    if default == "null":
        return spec.nullable != NEVER
    return not spec.is_array and spec.type in _DEFAULTS and bool(_DEFAULTS[spec.type].fullmatch(default))


def _covers(outer: Versions, inner: Versions) -> bool:
    return inner.first in outer and inner.last in outer


@cache
def all_schemas() -> dict[str, Spec]:
    """Every file of `schema/`, by the name of its module."""
    folder = files("kohort.wire").joinpath("schema")
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".txt"))
    return {name.removesuffix(".txt"): schema(name.removesuffix(".txt")) for name in names}


@cache
def all_apis() -> dict[int, ApiSpec]:
    """Every API that has a schema, by key."""
    apis = {spec.key: spec for spec in all_schemas().values() if isinstance(spec, ApiSpec)}
    return dict(sorted(apis.items()))


@cache
def all_data() -> dict[str, DataSpec]:
    """Every format of its own, by the name of its module."""
    return {module: spec for module, spec in all_schemas().items() if isinstance(spec, DataSpec)}


@cache
def schema(module: str) -> Spec:
    """One schema by its file's name, without reading the others."""
    return parse_schema(files("kohort.wire").joinpath("schema", f"{module}.txt").read_text("utf-8"), module)


def api(module: str) -> ApiSpec:
    """One API by its file's name."""
    spec = schema(module)
    assert isinstance(spec, ApiSpec), f"{module} is no API"
    return spec


def data(module: str) -> DataSpec:
    """One format of its own by its file's name."""
    spec = schema(module)
    assert isinstance(spec, DataSpec), f"{module} is an API"
    return spec
