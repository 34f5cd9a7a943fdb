"""The page in a real browser; the fixture `browser` is one for all tests of the folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from patience import PATIENCE_MS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
TOKEN = "a-token-of-the-tests"
playwright.expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def running() -> Iterator[Any]:
    """Start a browser."""
    if BROWSER is None:
        pytest.skip("no chromium here: apt install chromium-headless-shell")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def opened(browser: Any, address: str, part: str = "agents", **how: Any) -> Iterator[Any]:
    """Open the page at a part, and see to it that nothing was refused by its policy or went wrong in it."""
    context = browser.new_context(viewport={"width": 1100, "height": 760}, **how)
    context.set_default_timeout(PATIENCE_MS)
    tab, wrong = context.new_page(), list[str]()
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda line: wrong.append(line.text) if "Content Security" in line.text else None)
    try:
        tab.goto(address)
        tab.goto(f"{tab.url.partition('#')[0]}#/{part}")
        tab.wait_for_selector(f'.menu a[aria-current="page"][href^="#/{part.partition("?")[0]}"]')
        tab.wait_for_selector("main .loading", state="detached")
        yield tab
    finally:
        context.close()
    assert wrong == []


@contextmanager
def opened_until_lost(browser: Any, address: str) -> Iterator[Any]:
    """Open the page, and leave it open when the block, and its server, has ended."""
    tab = browser.new_context().new_page()
    tab.set_default_timeout(PATIENCE_MS)
    tab.goto(address)
    tab.wait_for_selector(".queue li")
    yield tab
