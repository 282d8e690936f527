"""What the tests of the console's pages and the maker of its pictures share: a console, members, a browser."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import outside

from kohort.console.app import ConsoleOptions, create_app
from kohort.console.listening import listen_at
from kohort.console.server import ConsoleServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TOKEN = "the-token-of-this-test"
ROOT = Path(__file__).resolve().parents[2]
# Chromium must reach nothing but the console, and must start where there is no screen and no sandbox.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
)


@contextmanager
def running_console(bootstrap: str, options: ConsoleOptions | None = None, port: int = 0) -> Iterator[str]:
    """Serves a console on a port of this machine, a free one unless told otherwise; the value is its address."""
    listening = listen_at("127.0.0.1", port, "port")
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server = ConsoleServer(
        create_app({"bootstrap.servers": bootstrap}, options or ConsoleOptions(TOKEN)), listening
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline_s = time.monotonic() + 60
        while not server.is_ready:
            assert thread.is_alive(), "the console did not start"
            assert time.monotonic() < deadline_s, "the console does not start"
            time.sleep(0.02)
        yield address
    finally:
        server.end()
        thread.join(30)
        listening.close()


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Starts Debian's chromium; `outside.Missing` says how to get it."""
    from playwright.sync_api import sync_playwright

    path = outside.program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class MemberProcess:
    """A member of a group in a process of its own."""

    def __init__(
        self, bootstrap: str, group: str, name: str, *topics: str, library: str = "kohort", rate: float = 0
    ) -> None:
        command = [sys.executable, "-m", "tests.console.member"]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._process = subprocess.Popen(
            [*command, library, bootstrap, group, name, str(rate), *topics],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )

    def kill(self) -> None:
        """Ends it as a power cut would: the group finds out when its session expires."""
        self._process.kill()
        self._process.wait(30)

    def leave(self) -> None:
        """Ends it as a program ends: it leaves the group."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> MemberProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
