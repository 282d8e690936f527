"""Says whether the portable way is taken where Linux has a faster one of its own.

Linux has epoll, eventfd, io_submit, fdatasync and a sendfile of its own kind. Elsewhere the standard library's common
ways are used; `KOHORT_PORTABLE=1` takes them on Linux as well, which is how the tests run them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PORTABLE: Final = sys.platform != "linux" or os.environ.get("KOHORT_PORTABLE") == "1"


@contextmanager
def as_file(text: str) -> Iterator[str]:
    """Gives a path to a text, because OpenSSL takes keys from files only; nobody else can read it."""
    if hasattr(os, "memfd_create") and not PORTABLE and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create("kohort-text")
        try:
            os.write(fd, text.encode())
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    import tempfile  # for those who need it: this module is part of every start

    with tempfile.TemporaryDirectory(prefix="kohort-") as folder:  # nobody else can look into it
        path = os.path.join(folder, "text")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        yield path
