"""Fixtures for tests in a browser: the browser, and a function that opens a page of the fixture `console`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import pytest
from benchmarks import outside
from playwright.sync_api import expect

from tests.console.running_console import running_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_MS = 30_000  # only for what hangs: a machine may be slow
expect.set_options(timeout=PATIENCE_MS)

Opener = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        found = running_browser()
        chromium = found.__enter__()
    except outside.Missing as missing:
        pytest.skip(str(missing))
    yield chromium
    found.__exit__(None, None, None)


@pytest.fixture
def opened(browser: Browser, console: str) -> Iterator[Opener]:
    """Opens a page of the console; at the end of the test nothing must have gone wrong in its scripts."""
    contexts, faults = [], []

    def open_page(
        place: str, *, width: int = 1280, scheme: Literal["dark", "light"] = "light", address: str = console
    ) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console",
            lambda message: faults.append(message.text) if "Content Security" in message.text else None,
        )
        page.goto(f"{address}#/{place}")
        expect(page.locator("main")).to_have_attribute("aria-busy", "false")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
