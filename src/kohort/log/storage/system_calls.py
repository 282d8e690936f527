"""Makes the system calls in which operating systems differ: as Linux has them, or as every Unix does.

Each call has two ways. Linux's own is taken on Linux; the portable one elsewhere, and on Linux too with
`KOHORT_PORTABLE=1`, which is how the tests run it. Nothing here needs to be there when the module is imported: on
Windows the client and the test kit import it, and `check_system` says why a broker cannot start there.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final

from kohort.portable import PORTABLE
from kohort.wire.errors import KohortError

_COPIED_AT_ONCE = 256 << 10
_OPEN_MAX = 10_240  # macOS allows so many where it says that there is no limit
_NEEDED_MODULES = ("fcntl", "resource")
_NEEDED_CALLS = ("pread", "pwrite", "writev")


class SystemNotSupported(KohortError):
    """The operating system lacks what a broker needs; the text says what it is, and what to do."""

    what_to_do = "Run the broker on Linux or macOS, or in WSL or a container."


def check_system() -> None:
    """Raises SystemNotSupported unless a broker can run on this system."""
    missing = [name for name in _NEEDED_MODULES if not _can_import(name)]
    missing += [f"os.{name}" for name in _NEEDED_CALLS if not hasattr(os, name)]
    if missing:
        raise SystemNotSupported(
            f"a Kohort broker runs on Linux and macOS, and Python on this system ({sys.platform}) lacks "
            f"{', '.join(missing)}; run the broker on Linux or macOS (WSL and containers will do) and connect to it"
        )


def _can_import(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


# Sync


def _fdatasync(fd: int) -> None:
    os.fdatasync(fd)


def _fsync(fd: int) -> None:
    os.fsync(fd)


def _full_fsync(fd: int) -> None:
    """Syncs as macOS calls it: its fsync leaves the data in the cache of the disk."""
    import fcntl

    try:
        fcntl.fcntl(fd, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009 - mypy on Linux does not know the name
    except OSError as problem:
        if problem.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
            raise
        os.fsync(fd)  # a file system that does not have it


_sync_everything = _full_fsync if sys.platform == "darwin" else _fsync

sync_data: Final[Callable[[int], None]] = _sync_everything if PORTABLE else _fdatasync
"""Make the content of an open file durable, and of its metadata what is needed to read it back."""

sync_all: Final[Callable[[int], None]] = _sync_everything
"""Make an open file durable with all of its metadata, or the names in an open directory."""


# Files that are durable write by write


def synced_flags(*, direct: bool) -> int:
    """Returns the flags that open a file on Linux so that each write is durable when it returns.

    `direct` writes past the page cache; file systems that cannot do that refuse the open or the first write with
    EINVAL. The portable way is `sync_data` after each write.
    """
    return os.O_RDWR | os.O_DSYNC | (os.O_DIRECT if direct else 0)


# Read and send


def _read_by_preadv(fd: int, buffer: memoryview, position: int) -> int:
    return os.preadv(fd, [buffer], position)


def _read_by_pread(fd: int, buffer: memoryview, position: int) -> int:
    data = os.pread(fd, len(buffer), position)
    buffer[: len(data)] = data
    return len(data)


read_into: Final = _read_by_pread if PORTABLE else _read_by_preadv
"""Read a file from a position on into a buffer, and return how many bytes came."""


def _send_by_copying(socket_fd: int, file_fd: int, position: int, length: int) -> int:
    data = os.pread(file_fd, min(length, _COPIED_AT_ONCE), position)
    return os.write(socket_fd, data) if data else 0


send_file: Final[Callable[[int, int, int, int], int]] = (
    _send_by_copying if PORTABLE or not hasattr(os, "sendfile") else os.sendfile
)
"""Send a piece of a file (socket, file, position, length) and return how much the socket took; 0 at the file's end.

BlockingIOError if the socket takes nothing now.
"""


# Locks and limits


def try_lock(fd: int) -> bool:
    """Locks an open file for this process, until it is closed; False if another process has it."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_files_limit() -> int | None:
    """Returns how many files this process may have open; None if there is no limit or nobody knows."""
    try:
        import resource
    except ImportError:
        return None
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if allowed == resource.RLIM_INFINITY else allowed


def raise_open_files_limit(wanted: int) -> None:
    """Raises the soft limit of open files to `wanted`, or as far as the system allows; it is never lowered."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    for limit in (most, min(most, _OPEN_MAX)):
        if soft == resource.RLIM_INFINITY or soft >= limit:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            continue
        return
