"""Systems that are not Linux: the client imports, and says what is missing when it matters."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# What Windows does not have is taken away before anything of ours is imported.
AS_ON_WINDOWS = """
import os, select, signal, socket, sys
import asyncio, ssl, logging  # the standard library's own choices are made before

for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None  # an import of it fails
for module, names in (
    (os, ("eventfd", "eventfd_read", "eventfd_write", "EFD_NONBLOCK", "EFD_CLOEXEC", "fork", "register_at_fork")),
    (select, ("epoll", "EPOLLIN", "EPOLLOUT", "poll", "POLLIN")),
    (signal, ("SIGHUP",)),
    (socket, ("TCP_CONGESTION",)),
):
    for name in names:
        if name in vars(module):
            delattr(module, name)
import kohort
"""

IMPORTS_ALL = """
for name in kohort.__all__:
    getattr(kohort, name)
"""

SAYS_WHAT_IS_MISSING = """
try:
    kohort.Consumer(bootstrap_servers="127.0.0.1:1")
except kohort.KohortError as error:
    print(error)
"""


def run(*parts: str) -> str:
    environment = {**os.environ, "KOHORT_PORTABLE": "1"}
    command = [sys.executable, "-c", "".join(parts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there_without_what_only_unix_has() -> None:
    run(AS_ON_WINDOWS, IMPORTS_ALL)


def test_a_blocking_client_says_what_it_misses_and_what_to_use_instead() -> None:
    assert "need epoll (Linux) or kqueue (macOS, BSD)" in run(AS_ON_WINDOWS, SAYS_WHAT_IS_MISSING)


@pytest.mark.parametrize(("setting", "portable"), [("1", True), ("0", False), ("", False)])
def test_the_portable_way_is_taken_where_it_is_asked_for(setting: str, portable: bool) -> None:
    environment = {**os.environ, "KOHORT_PORTABLE": setting}
    code = "from kohort.portable import PORTABLE; print(PORTABLE)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment, check=True
    )
    assert shown.stdout.strip() == str(portable or sys.platform != "linux")
