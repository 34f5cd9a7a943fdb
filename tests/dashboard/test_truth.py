"""One truth a screen: after three ticks it is what a fresh look shows, and nothing is deformed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from in_browser import opened
from sampling import EVERYTHING

from lemming.engine import run_once
from lemming.testing import FrozenClock

VIEWS = (
    "waiting", "agents", "feed", "findings", "ticks", "tick?number=3", "tick?number=4", "map", "money",
    "past?new=3", "agent?name=desk", "agent?name=desk&show=turns", "why?target=agents/desk/resume.json",
)  # fmt: skip
WATCHED = VIEWS if EVERYTHING else ("waiting", "tick?number=4", "map")
"""A tab each. The others have no state of their own but what they were given."""

SHOWN = """() => document.body.innerText +
    [...document.querySelectorAll('[aria-label]')].map(it => it.ariaLabel)"""


@pytest.mark.long
def test_after_three_ticks_every_view_is_as_if_it_were_opened_now(browser: Any, address: str, org: Path) -> None:
    run_once(org, clock=FrozenClock())
    with ExitStack() as tabs:
        watched = {view: tabs.enter_context(opened(browser, address, view)) for view in WATCHED}
        for _ in range(3):
            run_once(org, clock=FrozenClock())
        for view, tab in watched.items():
            with opened(browser, address, view) as fresh:
                fresh.wait_for_selector(".facts dd:text-is('8')")
                tab.wait_for_selector(".facts dd:text-is('8')")
                tab.wait_for_function(f"expected => ({SHOWN})() === expected", arg=fresh.evaluate(SHOWN))


@pytest.mark.long
def test_rows_of_a_table_have_one_height(browser: Any, address: str) -> None:
    heights = """it => [...new Set([...document.querySelectorAll(it)].map(
        row => Math.round(row.getBoundingClientRect().height)))]"""
    tables = {
        "ticks": ".line:not(.heading)", "tick?number=2": ".bar-line:not(.heading)",
        "money": ".line:not(.heading)", "agent?name=desk&show=turns": ".line:not(.heading)",
        "agents": ".rows > div",
    }  # fmt: skip
    with opened(browser, address) as tab:
        for width in (1280, 390):
            tab.set_viewport_size({"width": width, "height": 800})
            for view, rows in tables.items():
                tab.goto(f"{tab.url.partition('#')[0]}#/{view}")
                tab.wait_for_selector(f".part-{view.partition('?')[0]} {rows}")
                assert len(tab.evaluate(heights, rows)) == 1, (view, width, tab.evaluate(heights, rows))


def test_the_widest_way_on_the_map_is_the_one_most_written_on(browser: Any, address: str) -> None:
    ways = """[...document.querySelectorAll('.drawing .way')].map(way => [
        Number((way.ariaLabel.match(/: (\\d+)$/) || [0, 0])[1]),
        Number(way.querySelector('.arrow').getAttribute('stroke-width')), way.ariaLabel])"""
    with opened(browser, address, "map") as tab:
        found = sorted(tab.evaluate(ways))
    assert "is read by human" in found[-1][2]  # who reads everybody
    assert [width for _, width, _ in found] == sorted(width for _, width, _ in found)
    assert found[0][1] < found[-1][1]
