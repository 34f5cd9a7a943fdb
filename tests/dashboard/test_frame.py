"""The frame of the page: the head, the keys, what is found, and what one failure among many looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_browser import opened, playwright

from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say


@pytest.fixture(scope="module")
def choir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight agents who say the same over and over, and one who fails."""
    names = [f"a{number}" for number in range(8)]
    script: list[dict[str, Any]] = [{"agent": "b", "error": "AuthenticationFailed"}]
    script.append({"reply": say("Good morning, how are you today?")})
    base = make_org(tmp_path_factory.mktemp("choir") / "org", *map(resume, [*names, "b"]), script=script)
    for _ in range(5):
        run_once(base, clock=FrozenClock())
    return base


def test_findings_are_grouped_quoted_to_the_letter_and_counted_in_the_menu(browser: Any, choir: Path) -> None:
    with serve_page(choir, port=0) as address, opened(browser, address, "findings") as tab:
        group = tab.locator(".card.group:has-text('8 agents')")
        assert '"Good morning, how are you today?"' in group.inner_text()
        assert tab.locator(".card").count() < 4
        tab.wait_for_selector(".menu a:has-text('Findings') .badge")


def test_one_failing_agent_of_nine_does_not_paint_a_tick_red(browser: Any, choir: Path) -> None:
    heights = "it => [...it.querySelectorAll('.bar')].map(bar => [bar.className.baseVal, bar.height.baseVal.value])"
    with serve_page(choir, port=0) as address, opened(browser, address, "ticks") as tab:
        bars = dict(tab.locator(".strip a.column >> nth=0").evaluate(heights))
        assert bars["bar of-failed"] < bars["bar of-done"] / 7
        assert "1 failed" in tab.inner_text(".line:not(.heading) >> nth=0")


def test_what_is_wrong_is_put_away_again(browser: Any, address: str) -> None:
    opens = ".troubles summary"
    with opened(browser, address, "agents") as tab:
        tab.click(opens)
        assert "2026-01-01T" not in tab.inner_text(".troubles li")  # a moment as people say it
        tab.keyboard.press("Escape")
        for away in (
            lambda: tab.keyboard.press("Escape"),
            lambda: tab.mouse.click(30, 700),
            lambda: tab.keyboard.press("3"),
        ):
            tab.click(opens)
            tab.wait_for_selector(".troubles li")
            away()
            playwright.expect(tab.locator(".troubles li")).to_have_count(1)
            playwright.expect(tab.locator(".troubles li")).to_be_hidden()


@pytest.mark.long
def test_a_letter_that_waits_says_so_and_goes_where_it_leads(browser: Any, address: str) -> None:
    with opened(browser, address, "feed") as tab:
        tab.keyboard.press("g")
        assert "t Ticks" in tab.inner_text(".going")
        tab.wait_for_selector(".going", state="detached")  # it gives up
        tab.keyboard.press("g")
        tab.keyboard.press("t")
        tab.wait_for_selector(".part-ticks .strip")
        tab.keyboard.press("?")
        assert "next and previous line" in tab.inner_text("#help")


@pytest.mark.long
def test_the_head_is_there_wherever_one_has_scrolled_to(browser: Any, address: str) -> None:
    for width in (1280, 390):
        with opened(browser, address, "feed") as tab:
            tab.set_viewport_size({"width": width, "height": 600})
            tab.evaluate("scrollTo(0, 600)")
            playwright.expect(tab.locator(".head .calls")).to_be_in_viewport(ratio=1)


@pytest.mark.long
def test_nothing_overflows_at_200_percent(browser: Any, address: str) -> None:
    with opened(browser, address) as tab:
        tab.set_viewport_size({"width": 720, "height": 700})
        for part in ("waiting", "agents", "feed", "ticks", "tick?number=2", "money", "past?new=2", "agent?name=desk"):
            tab.goto(f"{tab.url.partition('#')[0]}#/{part}")
            tab.wait_for_selector(f".part-{part.partition('?')[0]} :not(.loading)")
            assert tab.evaluate("document.documentElement.scrollWidth") <= 720, part


CUT_OFF = """[...document.querySelectorAll(".spent .line > *, .facts dd")]
    .filter((it) => it.scrollWidth > it.clientWidth).map((it) => it.innerText)"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("width", [390, 641, 820, 900, 1440])
def test_no_amount_is_cut_off(browser: Any, address: str, width: int) -> None:
    with opened(browser, address, "money") as tab:
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.locator(".spent .line:has-text('no price')").count() > 1
        assert tab.evaluate(CUT_OFF) == []


def test_what_the_organisation_is_for_stands_in_the_head(browser: Any, org: Path) -> None:
    file = org / "config/org.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "purpose": "Answers customers."}))
    with serve_page(org, port=0) as address, opened(browser, address, "agents") as tab:
        tab.set_viewport_size({"width": 1280, "height": 700})
        assert "Answers customers." in tab.inner_text(".head")


def test_the_feed_is_newest_first_by_the_moment_and_answers_stand_with_their_question(
    browser: Any, address: str, org: Path
) -> None:
    with opened(browser, address, "feed") as tab:
        both = tab.locator(".conversation:has-text('paid twice?')")
        playwright.expect(both.locator(".answer:has-text('on 3 and on 5 November')")).to_have_count(1)
        tab.fill(".write textarea", "Hello all.")
        tab.click("text=Send")
        tab.wait_for_selector(".write [role=status]:has-text('Sent to everybody')")
        tab.wait_for_selector(".entries > li:first-child:has-text('Hello all.')")
    assert read_outbox_entries(org, "human")[-1].kind == "message"


def test_where_nobody_is_a_person_nobody_is_asked_to_say_something(browser: Any, choir: Path) -> None:
    with serve_page(choir, port=0) as address, opened(browser, address, "feed") as tab:
        tab.wait_for_selector(".entry")
        assert tab.locator(".write").count() == 0
