"""Every measurement begins in memory that was used before.

A virtual machine gets its memory from the host page by page, when it is first written to, and that takes longer than
anything that is measured here: appending to files in the page cache took 0.3 s of CPU a GB in memory that was in use
before and 2.7 s in memory that was not (2 cores, Firecracker). Without this, whoever comes second looks slow.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from pathlib import Path

LEFT_ALONE = 2 << 30
_PIECE = 1 << 30
_PAGE = 4096


def use_once(say: Callable[[str], None]) -> None:
    """Writes to all free memory but `LEFT_ALONE`, and gives it back."""
    begun = time.monotonic()
    pieces: list[mmap.mmap] = []
    while _free() > LEFT_ALONE + _PIECE and time.monotonic() - begun < 120:
        piece = mmap.mmap(-1, _PIECE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memoryview(piece)[::_PAGE] = bytes(_PIECE // _PAGE)
        pieces.append(piece)
    for piece in pieces:
        piece.close()
    say(f"{len(pieces)} GB of free memory used once, in {time.monotonic() - begun:.1f} s")


def _free() -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemFree"].split()[0]) << 10
