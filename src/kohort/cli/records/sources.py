"""Where `produce` reads: files and pipes, cut at a delimiter, some thousand records at a time."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

_BLOCK = 256 * 1024


def open_source(name: str) -> BinaryIO:
    """Opens a file, or standard input if the name is -."""
    if name == "-":
        return sys.stdin.buffer
    return open(name, "rb")


@contextmanager
def closing_source(name: str, source: BinaryIO) -> Iterator[BinaryIO]:
    """Closes a file at the end, and leaves standard input open."""
    try:
        yield source
    finally:
        if name != "-":
            source.close()


def size_of(names: tuple[str, ...]) -> int | None:
    """Returns the bytes of all sources; None if one of them is no file."""
    try:
        sizes = [os.stat(0 if name == "-" else name) for name in names]
    except OSError:
        return None
    if not all(os.path.isfile(f"/dev/fd/{0}" if name == "-" else name) for name in names):
        return None
    return sum(each.st_size for each in sizes)


def pieces(source: BinaryIO, delimiter: bytes) -> Iterator[tuple[list[bytes], int]]:
    """Yields what stands between delimiters, as soon as it is there, with the number of bytes read so far.

    What follows the last delimiter is a piece unless it is empty. A long piece makes the blocks longer, so that
    fifty megabytes without a delimiter are not copied again and again.
    """
    rest, read = b"", 0
    while block := _available(source, max(_BLOCK, len(rest))):
        read += len(block)
        *found, rest = (rest + block).split(delimiter)
        if found:
            yield found, read
    if rest:
        yield [rest], read


def _available(source: BinaryIO, most: int) -> bytes:
    """Reads what is there: whoever types a line, or follows a log, does not wait for a block to fill."""
    if isinstance(source, io.BufferedReader):
        return source.read1(most)
    return source.read(most)
