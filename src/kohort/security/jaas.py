"""Parses `sasl.jaas.config` as Java does: one login module, its flag, its options, a semicolon."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kohort.settings import SettingError

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<word>[^\s;="']+)
      | (?P<sign>[;=])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options. Its repr shows no value: they are secrets."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module!r}, {sorted(self.options)})"


def parse_jaas(text: str, what: str = "sasl.jaas.config") -> JaasEntry:
    """Returns the one login module of a JAAS text; SettingError says what is wrong, and shows no secret."""
    tokens = list(_tokens(text, what))
    if len(tokens) < 2 or tokens[1][1].lower() not in _FLAGS:
        raise SettingError(f'{what}: write it as MODULE required NAME="VALUE" …;')
    if tokens[-1] != ("sign", ";"):
        raise SettingError(f"{what}: it must end with a semicolon")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    for at in range(0, len(rest), 3):
        part = rest[at : at + 3]
        if len(part) < 3 or part[0][0] != "word" or part[1] != ("sign", "=") or part[2][0] == "sign":
            name = part[0][1] if part[0][0] == "word" else "an option"
            raise SettingError(f'{what}: {name} is not NAME="VALUE"; only one login module is taken')
        options[part[0][1]] = part[2][1]
    return JaasEntry(tokens[0][1], options)


def _tokens(text: str, what: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise SettingError(f"{what}: a quote is not closed")
        position = found.end()
        kind = found.lastgroup
        assert kind is not None
        if kind == "quoted":
            yield "quoted", _ESCAPE.sub(lambda escape: _MEANINGS.get(escape[1], escape[1]), found[0][1:-1])
        elif kind != "skip":
            yield kind, found[0]
