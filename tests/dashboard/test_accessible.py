"""No rule of axe is broken on any view, in either scheme, on a screen and on a phone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from in_browser import opened

from lemming.dashboard.page_server import serve_page

VIEWS = (
    "waiting", "agents", "feed", "findings", "ticks", "tick?number=2&agent=writer", "map", "money",
    "past?new=2", "agent?name=writer", "agent?name=desk&show=resume", "agent?name=desk&show=prompt",
    "settings", "settings?file=models", "why?target=agents/desk/resume.json",
)  # fmt: skip
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
BROKEN = (
    f"async () => (await axe.run(document, {{runOnly: {RULES}}})).violations.map("
    """it =>
    [it.id, it.nodes.length, it.nodes[0].html.slice(0, 200)])"""
)


def axe() -> str:
    """Return the program that looks at a page."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python is not installed")
    return Path(found.origin).with_name("axe.min.js").read_text()


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "width"), [("dark", 390), ("light", 1280)])
def test_no_rule_is_broken(browser: Any, original: Path, scheme: str, width: int) -> None:
    program, wrong = axe(), []
    how = {"bypass_csp": True, "color_scheme": scheme}
    with serve_page(original, port=0) as address, opened(browser, address, "agents", **how) as tab:
        tab.set_viewport_size({"width": width, "height": 800})
        tab.evaluate(program)
        for view in VIEWS:
            tab.goto(f"{tab.url.partition('#')[0]}#/{view}")
            tab.wait_for_selector(f"main.part-{view.partition('?')[0]}[aria-busy=false]")
            tab.wait_for_selector("main .loading", state="detached")
            wrong += [(view, *each) for each in tab.evaluate(BROKEN)]
    assert wrong == []
