"""The page in a real browser; the fixture `browser` is one for all tests of the folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from patience import PATIENCE_MS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
TOKEN = "a-token-of-the-tests"
ARGUMENTS = ["--no-sandbox", "--renderer-process-limit=1", "--disable-site-isolation-trials"]
"""Each test's server is another site, and a site's own process costs a third of a test."""
playwright.expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def running() -> Iterator[Any]:
    """Start a browser."""
    if BROWSER is None:
        pytest.skip("no chromium here: apt install chromium-headless-shell")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield started
        started.close()


SIZE = {"width": 1100, "height": 760}
_free_tabs: dict[Any, Any] = {}
"""The tab of each browser that no test uses: a new one costs as much processor time as a whole test."""


@contextmanager
def opened(browser: Any, address: str, part: str = "agents", **how: Any) -> Iterator[Any]:
    """Open the page at a part, and see to it that nothing was refused by its policy or went wrong in it."""
    wrong = list[str]()
    listeners = {
        "pageerror": lambda error: wrong.append(str(error)),
        "console": lambda line: wrong.append(line.text) if "Content Security" in line.text else None,
    }
    with borrowed(browser, listeners, **how) as tab:
        tab.goto(f"{address}#/{part}")
        tab.wait_for_selector(f'.menu a[aria-current="page"][href^="#/{part.partition("?")[0]}"]')
        tab.wait_for_selector("main .loading", state="detached")
        yield tab
    assert wrong == []


@contextmanager
def borrowed(browser: Any, listeners: Mapping[str, Callable[[Any], object]], **how: Any) -> Iterator[Any]:
    """Yield a tab that an earlier test has left, without what that had in its storage, unless `how` asks for another."""
    tab = (None if how else _free_tabs.pop(browser, None)) or new_tab(browser, **how)
    for event, listener in listeners.items():
        tab.on(event, listener)
    is_whole = False
    try:
        yield tab
        is_whole = not (how or browser in _free_tabs or tab.is_closed())
    finally:
        if is_whole:
            for event, listener in listeners.items():
                tab.remove_listener(event, listener)
            leave(tab)
            _free_tabs[browser] = tab
        else:
            tab.context.close()


def new_tab(browser: Any, **how: Any) -> Any:
    """Return a tab with a storage of its own."""
    context = browser.new_context(viewport=SIZE, **how)
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


def leave(tab: Any) -> None:
    """Make a tab as good as new for the next test."""
    for other in tab.context.pages:
        if other is not tab:
            other.close()
    tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    tab.goto("about:blank")
    tab.context.clear_cookies()
    tab.set_viewport_size(SIZE)


@contextmanager
def opened_until_lost(browser: Any, address: str) -> Iterator[Any]:
    """Open the page, and leave it open when the block, and its server, has ended."""
    tab = browser.new_context().new_page()
    tab.set_default_timeout(PATIENCE_MS)
    tab.goto(address)
    tab.wait_for_selector(".queue li")
    yield tab
