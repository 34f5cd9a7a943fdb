"""The map, money and history: arrows that can be followed, names where many spend, sentences for changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from in_browser import opened, playwright

from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.testing import FrozenClock, make_org, resume, say

TEAMS = {"desk": [], "sorter": ["desk"], "price": ["sorter"], "stock": ["sorter"], "writer": ["price", "stock", "desk"]}
TEAMS |= {"checker": ["writer", "desk", "sorter"], "printer": ["checker", "price"]}
BEHIND = """() => {
    const boxes = [...document.querySelectorAll('.drawing .box')].map(it => {
        const at = it.transform.baseVal[0].matrix;
        return {left: at.e + 1, right: at.e + 131, top: at.f + 1, bottom: at.f + 55};
    });
    const found = [];
    for (const way of document.querySelectorAll('.drawing .way')) {
        const path = way.querySelector('.arrow'), length = path.getTotalLength();
        for (let at = 0; at <= 200; at++) {
            const p = path.getPointAtLength(length * at / 200);
            if (boxes.some(it => p.x > it.left && p.x < it.right && p.y > it.top && p.y < it.bottom)) {
                found.push(way.ariaLabel);
                break;
            }
        }
    }
    return found;
}"""


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some who read each other, a person who reads all, and forty who spend, one of them a lot."""
    spenders = [f"s{number:02}" for number in range(40)]
    readers = [resume(name, permissions={"read_outboxes": them, "tools": []}) for name, them in TEAMS.items()]
    nobody = {"read_outboxes": [], "tools": []}
    base = make_org(
        tmp_path_factory.mktemp("hall") / "org",
        *readers,
        *(resume(name, permissions=nobody, credits={"max_credits": 10}) for name in spenders),
        resume("big", permissions=nobody, model={"key": "dear"}, credits={"max_credits": 20, "soft_cap": 15}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["desk", "printer"], "tools": []}),
        models={
            "human": {"provider": "human"},
            "dear": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "per_call": 9},
        },
        script=[{"reply": say("Done.", memory_updates=[{"key": "last", "value": "4711"}])}],
    )
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    return str(base)


@pytest.mark.long
def test_no_arrow_of_the_map_runs_behind_a_box_and_one_says_what_went_along_it(browser: Any, hall: str) -> None:
    with serve_page(Path(hall), port=0) as address, opened(browser, address, "map") as tab:
        tab.wait_for_selector(".drawing .way")
        assert tab.locator(".drawing .way").count() > 10
        assert tab.evaluate(BEHIND) == []
        tab.focus(".drawing .box:has-text('checker')")
        tab.wait_for_selector(".way.held .traffic")


def test_of_many_who_spend_those_who_spent_most_have_names_and_all_others_are_one_line(browser: Any, hall: str) -> None:
    with serve_page(Path(hall), port=0) as address, opened(browser, address, "money") as tab:
        first = tab.inner_text(".spent a.line >> nth=0")
        assert "big" in first
        assert "18 of 20" in first
        assert "16.1 %" in first
        assert "33 others together" in tab.inner_text(".spent .together")
        assert "big 90 %" in tab.inner_text(".near")
        tab.click("text=show 33 more")
        playwright.expect(tab.locator(".spent .together")).to_have_count(0)


@pytest.mark.long
def test_history_says_what_was_said_and_remembered(browser: Any, hall: str) -> None:
    with serve_page(Path(hall), port=0) as address, opened(browser, address, "past?new=1") as tab:
        desk = tab.locator(".whose:has-text('desk')")
        assert desk.locator(".says").all_inner_texts() == ["last: 4711", "Done."]
        assert tab.locator(".whose").count() == 40
        tab.click("text=8 more agents")
        playwright.expect(tab.locator(".whose")).to_have_count(48)
        tab.fill(".by-agent input", "big")
        tab.keyboard.press("Enter")
        tab.wait_for_selector('h3:has-text("in big\'s folder")')
        tab.goto(f"{tab.url.partition('#')[0]}#/past?old=1&new=2")
        tab.wait_for_selector("h3:has-text('after tick 2 than after tick 1')")
        assert "files that the engine keeps" in tab.inner_text(".kept summary")
