"""Reads the notation of `schema/` (see schema/README.md) into Api, Struct and Field descriptions."""

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
    """A schema text that cannot be read; names the file and the line."""


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
class ApiSpec:
    key: int
    name: str
    module: str  # the file's stem, and the module in messages/
    purpose: str
    versions: Versions
    flexible: Versions
    request: StructSpec
    response: StructSpec
    structs: dict[str, StructSpec]  # every struct by name, the two messages included


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


def parse_api(text: str, module: str) -> ApiSpec:
    """One schema file. Raises NotationError with the line that is wrong."""
    api: ApiSpec | None = None
    purpose = ""
    # (indentation, struct whose fields stand there, versions of that struct)
    stack: list[tuple[int, StructSpec, Versions]] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.split("#", 1)[0].rstrip() if api else line.rstrip()
        if not stripped:
            continue
        try:
            if stripped.startswith("#"):
                purpose = f"{purpose} {stripped[1:].strip()}".strip()
            elif stripped.startswith("api "):
                api = _api_line(stripped, module, purpose)
            elif api is None:
                raise ValueError("the first line that counts must be `api KEY Name FIRST-LAST`")
            elif stripped.startswith("flexible "):
                api.flexible = parse_versions(stripped.split()[1], api.versions)
            elif stripped in ("request", "response"):
                stack = [(2, api.request if stripped == "request" else api.response, api.versions)]
            else:
                _field_line(stripped, api, stack)
        except ValueError as error:
            raise NotationError(f"schema/{module}.txt line {number}: {error}") from None
    if api is None:
        raise NotationError(f"schema/{module}.txt: no `api` line")
    return api


def _api_line(line: str, module: str, purpose: str) -> ApiSpec:
    words = line.split()
    if len(words) != 4 or not words[1].isdecimal():
        raise ValueError("expected `api KEY Name FIRST-LAST`")
    _, key, name, versions = words
    span = parse_versions(versions, Versions(0, LATEST))
    request, response = StructSpec(f"{name}Request", span), StructSpec(f"{name}Response", span)
    structs = {request.name: request, response.name: response}
    return ApiSpec(int(key), name, module, purpose, span, NEVER, request, response, structs)


def _field_line(line: str, api: ApiSpec, stack: list[tuple[int, StructSpec, Versions]]) -> None:
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
    _check_field(spec, owner, api)
    owner.fields.append(spec)
    if kind not in PRIMITIVES and kind not in api.structs:
        api.structs[kind] = StructSpec(kind, versions)
        stack.append((indent + 2, api.structs[kind], versions))


def _check_field(spec: FieldSpec, owner: StructSpec, api: ApiSpec) -> None:
    """What the compiler would otherwise get silently wrong."""
    if any(other.name == spec.name for other in owner.fields):
        raise ValueError(f"{owner.name} has a field {spec.name!r} already")
    if spec.type not in PRIMITIVES and not spec.type[0].isupper():
        raise ValueError(f"{spec.type!r} is not a type")
    if spec.tag is not None and not _covers(api.flexible, spec.versions):
        raise ValueError(f"{spec.name!r} has a tag in a version that is not flexible")
    if spec.tag is not None and any(other.tag == spec.tag for other in owner.fields):
        raise ValueError(f"{owner.name} has a tag {spec.tag} already")
    if spec.type in api.structs and not _covers(api.structs[spec.type].versions, spec.versions):
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
def all_apis() -> dict[int, ApiSpec]:
    """Every API that has a schema, by key."""
    apis = {}
    for path in files("kohort.wire").joinpath("schema").iterdir():
        if path.name.endswith(".txt"):
            api = parse_api(path.read_text("utf-8"), path.name.removesuffix(".txt"))
            apis[api.key] = api
    return dict(sorted(apis.items()))


@cache
def api(module: str) -> ApiSpec:
    """One API by its file's name, without reading the others."""
    return parse_api(files("kohort.wire").joinpath("schema", f"{module}.txt").read_text("utf-8"), module)
