"""The page in a real browser: what a person sees and does, and what hostile texts cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from in_browser import TOKEN, opened, opened_until_lost, playwright
from page_org import SEEN, HeldClock

from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say, write_script


def test_the_head_says_what_waits_and_what_is_wrong(browser: Any, address: str) -> None:
    with opened(browser, address) as tab:
        tab.wait_for_selector(".facts .calls")
        head = tab.inner_text(".head")
    assert "not running" in head
    assert "2" in head
    assert "1 trouble" in head


def test_the_token_is_gone_from_the_address(browser: Any, address: str) -> None:
    with opened(browser, address) as tab:
        assert TOKEN not in tab.url
        assert tab.evaluate("document.cookie") == ""


@pytest.mark.long
def test_a_tick_that_runs_is_seen_without_reloading(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address) as tab:
        run_once(org, clock=FrozenClock())
        tab.wait_for_selector(".facts dd:text-is('5')")


@pytest.mark.long
def test_a_page_comes_back_when_its_server_does(browser: Any, org: Path) -> None:
    with serve_page(org, port=0, token=TOKEN) as address, opened_until_lost(browser, address) as tab:
        port = urlsplit(address).port
    with serve_page(org, port=port, token=TOKEN):
        run_once(org, clock=FrozenClock())
        tab.wait_for_selector(".facts dd:text-is('5')")
        tab.wait_for_selector(".state.stopped")
    tab.context.close()


def test_an_agent_is_asked_from_the_feed(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "feed") as tab:
        tab.fill(".write textarea", "How is it going?")
        tab.fill(".write input", "desk")
        tab.click(".write button.primary")
        tab.wait_for_selector(".entry:has-text('How is it going?')")
    assert read_outbox_entries(org, "human")[-1].kind == "request"


def test_a_thread_shows_the_question_and_its_answer(browser: Any, address: str) -> None:
    with opened(browser, address, "feed") as tab:
        tab.locator(".entry:has-text('paid twice?') .thread a").first.click()
        tab.wait_for_selector("text=all entries")
        said = tab.locator(".entry .said").all_inner_texts()
    assert said == ["Was order 4711 really paid twice?", "Yes: on 3 and on 5 November, 49.00 EUR each time."]


def parts_of(tab: Any) -> Iterator[str]:
    """Show every part of the menu, one after another."""
    for link in [it.get_attribute("href") for it in tab.locator(".menu a").all()]:
        tab.click(f'.menu a[href="{link}"]')
        tab.wait_for_selector(f'.menu a[aria-current="page"][href="{link}"]')
        tab.wait_for_selector("main .loading", state="detached")
        yield link


@pytest.mark.long
def test_hostile_text_stays_text_in_every_part(browser: Any, address: str) -> None:
    with opened(browser, address, "feed") as tab:
        assert SEEN in tab.locator(".entry:has-text('document.title') .said").first.text_content()
        for _ in parts_of(tab):
            assert tab.locator("main script, main img, main iframe").count() == 0
            assert "owned" not in tab.title()


@pytest.mark.long
def test_tabs_that_nobody_sees_leave_room_for_one_more(browser: Any, address: str) -> None:
    """A browser keeps six connections to a server, and each tab's stream would be one of them."""
    hide = "Object.defineProperty(document, 'hidden', {value: true})"
    hide += ", document.dispatchEvent(new Event('visibilitychange'))"
    with opened(browser, address) as tab:
        for _ in range(6):
            tab.evaluate(hide)
            tab = tab.context.new_page()
            tab.goto(address)
            tab.wait_for_selector(".queue:has-text('writer')")


def test_from_one_why_to_the_next_the_question_is_the_one_that_is_answered(browser: Any, address: str) -> None:
    with opened(browser, address, "why?target=no-such-thing") as tab:
        tab.wait_for_selector(".failure")
        tab.fill("main input[type=search]", "shared/letters/okafor.txt")
        tab.keyboard.press("Enter")
        tab.wait_for_selector(".root")
        tab.goto(f"{tab.url.partition('#')[0]}#/why?target=agents/desk/resume.json")
        tab.wait_for_selector(".root code:has-text('agents/desk/resume.json')")
        assert tab.input_value("main input[type=search]") == "agents/desk/resume.json"


@pytest.mark.long
def test_no_part_is_wider_than_a_narrow_screen_and_its_name_is_in_sight(browser: Any, address: str) -> None:
    with opened(browser, address) as tab:
        tab.set_viewport_size({"width": 360, "height": 740})
        for part in parts_of(tab):
            assert tab.evaluate("document.documentElement.scrollWidth") <= 360, part
            playwright.expect(tab.locator('.menu a[aria-current="page"]'), part).to_be_in_viewport(ratio=1)


@pytest.mark.long
def test_dark_is_dark_and_light_is_light(browser: Any, address: str) -> None:
    paper = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    with opened(browser, address, color_scheme="dark") as tab:
        assert tab.evaluate(paper) < 60
    with opened(browser, address, color_scheme="light") as tab:
        assert tab.evaluate(paper) > 200


@pytest.mark.long
def test_everything_that_is_pressed_has_a_name(browser: Any, address: str) -> None:
    nameless = """[...document.querySelectorAll('button, a, input, select, textarea')].filter(it => !(
        it.textContent.trim() || it.ariaLabel || (it.labels && it.labels.length))).map(it => it.outerHTML)"""
    with opened(browser, address) as tab:
        for part in parts_of(tab):
            assert tab.evaluate(nameless) == [], part


@pytest.mark.long
def test_of_a_thousand_agents_only_those_on_the_screen_are_there(browser: Any, tmp_path: Path) -> None:
    names = [f"a{number:04}" for number in range(1000)]
    org = make_org(tmp_path / "many", *(resume(name) for name in names))
    with serve_page(org, port=0) as address, opened(browser, address) as tab:
        playwright.expect(tab.locator(".rows > div")).to_have_count(50)
        tab.evaluate("scrollTo(0, document.body.scrollHeight)")
        tab.wait_for_selector(".rows > div[data-place='1000']:has-text('a0999')")
        assert tab.locator(".rows > div").count() < 100
        tab.fill("input[type=search]", "a0500")
        playwright.expect(tab.locator(".rows > div")).to_have_count(1)


@pytest.mark.long
def test_what_an_agent_does_is_seen_while_it_does_it(browser: Any, org: Path) -> None:
    slow = {"agent": "desk", "delay_s": 1, "reply": say("It took a while.")}
    write_script(org, [slow, {"reply": say("done")}])
    clock = HeldClock()
    with serve_page(org, port=0) as address, opened(browser, address) as tab:
        engine = threading.Thread(target=partial(run_once, org, clock=clock), daemon=True)
        engine.start()
        tab.wait_for_selector(".row:has-text('desk') .pill.working")
        tab.wait_for_selector(".state.working:has-text('desk working on tick')")
        clock.released.set()
        engine.join()
        tab.wait_for_selector(".row:has-text('desk') .words:has-text('It took a while.')")


@pytest.mark.long
def test_what_is_typed_is_not_lost_when_news_comes(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "feed") as tab:
        tab.fill(".write textarea", "half a sent")
        run_once(org, clock=FrozenClock())
        tab.wait_for_selector(".facts dd:text-is('5')")
        assert tab.input_value(".write textarea") == "half a sent"
