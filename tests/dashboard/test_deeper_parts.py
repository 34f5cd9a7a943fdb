"""The deeper parts of the page in a real browser: from any sentence back, and a resume changed in place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from in_browser import opened, playwright

from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.testing import FrozenClock


def test_from_a_sentence_in_the_feed_one_comes_to_the_turn_and_its_exact_prompt(browser: Any, address: str) -> None:
    with opened(browser, address, "feed") as tab:
        tab.locator(".entry:has-text('paid twice?') a:has-text('why?')").first.click()
        tab.wait_for_selector(".why .turn-of")
        tab.locator(".why .thing a:has-text('tick')").first.click()
        tab.wait_for_selector(".whole")
        tab.click(".whole .prompt summary")
        assert "You are" in tab.inner_text(".whole .prompt .prompt-message >> nth=0")


def test_a_tick_of_the_strip_opens_with_the_keyboard(browser: Any, address: str) -> None:
    with opened(browser, address, "ticks") as tab:
        tab.focus(".strip a.column >> nth=0")
        tab.keyboard.press("Enter")
        tab.wait_for_selector(".tick h3:has-text('Tick 1')")
        tab.wait_for_selector(".turns .bar-line >> nth=1")


def test_a_resume_is_changed_in_place_and_what_is_wrong_in_it_is_named_with_its_place(
    browser: Any, address: str, org: Path
) -> None:
    file = org / "agents/desk/resume.json"
    before = file.read_text()
    with opened(browser, address, "agent?name=desk&show=resume") as tab:
        box = tab.locator("textarea.code")
        box.fill(before.replace('"title"', '"title'))
        tab.click("button:has-text('Save')")
        tab.wait_for_selector(".problems .error:has-text('line ')")
        assert file.read_text() == before
        changed = before.replace("Front desk", "First desk")
        box.fill(changed)
        tab.click("button:has-text('Save')")
        tab.wait_for_selector(".editor .when:has-text('saved as typed')")
    assert file.read_text() == changed


@pytest.mark.long
def test_a_resume_that_somebody_else_changes_meanwhile_is_not_overwritten(
    browser: Any, address: str, org: Path
) -> None:
    file = org / "agents/desk/resume.json"
    before = file.read_text()
    with opened(browser, address, "agent?name=desk&show=resume") as tab:
        tab.fill("textarea.code", before.replace("Front desk", "Mine"))
        file.write_text(before.replace("Front desk", "Theirs"))
        tab.wait_for_selector(".failure:has-text('changed on the disk')")
        tab.click("button:has-text('Save')")
        tab.click("text=Take what is there now")
        playwright.expect(tab.locator("textarea.code")).to_have_value(re.compile("Theirs"))
    assert "Theirs" in file.read_text()


def test_a_fork_is_made_from_the_past(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "past?new=1") as tab:
        tab.click("button:has-text('Fork from tick 1')")
        tab.fill("input[placeholder='what-if']", "other")
        tab.click("button.primary")
        tab.wait_for_selector("[role=status]:has-text('Made')")
    assert run_once(org.parent / "other", clock=FrozenClock()).tick == 2


def test_who_only_looks_cannot_type_into_a_resume(browser: Any, org: Path) -> None:
    with (
        serve_page(org, port=0, is_read_only=True) as place,
        opened(browser, place, "agent?name=desk&show=resume") as tab,
    ):
        assert tab.get_attribute("textarea.code", "readonly") is not None
        assert tab.locator("main button:not(.plain)").count() == 0


HIDDEN = (
    "tick?number=1&agent=desk",
    "agent?name=desk&show=prompt",
    "agent?name=desk&show=turns",
    "why?target=agents/desk/resume.json",
    "map?agent=desk",
    "money?by=day",
    "past?old=1&new=2",
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", HIDDEN)
def test_every_deeper_part_is_narrow_enough_and_its_hostile_text_is_text(browser: Any, address: str, part: str) -> None:
    with opened(browser, address, part) as tab:
        tab.set_viewport_size({"width": 360, "height": 740})
        assert tab.locator(".failure").count() == 0
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        assert tab.locator("main script, main img, main iframe").count() == 0
        assert "owned" not in tab.title()
