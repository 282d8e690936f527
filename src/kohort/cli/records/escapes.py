"""Texts of the command line that stand for bytes, and bytes that are made fit for a terminal."""

from __future__ import annotations

import re

import click

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|.|$)", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}

# What a terminal would act upon, or what turns the direction of a text: everything but line ends and tabs.
_DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

SHOWN_CHARACTERS = 64 * 1024
"""A terminal shows no more of one key or value; files and pipes get all of it."""


def unescaped(text: str) -> bytes:
    r"""Returns the bytes that a text of the command line stands for, where `\n`, `\t`, `\r`, `\0`, `\xHH` are escapes.

    A character that needs no escape may have one, as in kcat.
    """
    pieces: list[bytes] = []
    at = 0
    for found in _ESCAPE.finditer(text):
        pieces.append(_encoded(text[at : found.start()]))
        said = found[1]
        if said == "":
            raise click.UsageError(f"{text!r} ends with a backslash; two of them stand for one")
        if said[0] == "x" and len(said) > 1:
            pieces.append(bytes([int(said[1:], 16)]))
        else:
            pieces.append(_encoded(_SHORT.get(said, said)))
        at = found.end()
    pieces.append(_encoded(text[at:]))
    return b"".join(pieces)


def _encoded(text: str) -> bytes:
    """Returns the bytes of an argument; what is not UTF-8 arrives as surrogate escapes, and goes on as it was."""
    return text.encode("utf-8", "surrogateescape")


def for_terminal(data: bytes) -> bytes:
    """Returns a text that no terminal acts upon: control characters and bytes that are no UTF-8 are shown escaped."""
    text = data[: 4 * SHOWN_CHARACTERS + 4].decode("utf-8", "backslashreplace")
    more = (
        "" if len(text) <= SHOWN_CHARACTERS else f"… ({len(data)} bytes; a pipe or --output gets all of them)"
    )
    return (_DANGEROUS.sub(_as_escape, text[:SHOWN_CHARACTERS]) + more).encode("utf-8", "replace")


def json_for_terminal(line: str) -> str:
    """Returns JSON without the few characters that JSON need not escape and that a terminal acts upon."""
    return _DANGEROUS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def _as_escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
