"""Reads a .properties file as Java's clients and tools do."""

from __future__ import annotations

import re
from pathlib import Path

from kohort.settings import SettingError

_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*(\s*[=:]\s*|\s+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MEANINGS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """The settings in lines of NAME=VALUE; # and ! begin comments, a backslash at the end continues a line."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingError(f"cannot read {path}: it is not a text in UTF-8") from None
    found = {}
    for number, line in _logical_lines(text):
        name, value = _split(line)
        if value is None:
            # The line itself is not shown: it may hold a password.
            raise SettingError(f"{path} line {number}: write it as NAME=VALUE")
        found[_unescaped(name)] = _unescaped(value)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """The lines with their continuations, each with the number of its first; no comments, no blank lines."""
    lines: list[tuple[int, str]] = []
    continued = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip()
        if not continued and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        part = line[:-1] if goes_on else line
        if continued:
            lines[-1] = (lines[-1][0], lines[-1][1] + part)
        else:
            lines.append((number, part))
        continued = goes_on
    return [(number, line.rstrip()) for number, line in lines]


def _split(line: str) -> tuple[str, str | None]:
    found = _SEPARATOR.search(line)
    return (line, None) if found is None else (line[: found.start(1)], line[found.end(1) :])


def _unescaped(text: str) -> str:
    def meaning(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _MEANINGS.get(code, code)

    return _ESCAPE.sub(meaning, text)
