"""Agents: people and what waits on top, groups with counts; and one agent, which opens on how it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_browser import opened, playwright

from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.queries.views.view_registry import build_view
from lemming.testing import FrozenClock, make_org, resume, say


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred agents, of whom seven fail."""
    names = [f"a{number:04}" for number in range(200)]
    script: list[dict[str, Any]] = [{"agent": name, "error": "AuthenticationFailed"} for name in names[50:57]]
    script.append({"reply": say("good morning")})
    base = make_org(tmp_path_factory.mktemp("hall") / "org", *map(resume, names), script=script)
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    return base


def test_people_and_who_waits_for_them_come_first_then_who_is_in_trouble(org: Path) -> None:
    shown = build_view(org, "agents")
    assert [(row["name"], row["group"]) for row in shown["rows"][:4]] == [
        ("human", "people"),
        ("writer", "waiting"),
        ("watcher", "failing"),
        ("archivist", "idle"),
    ]
    assert shown["counts"] == {"people": 1, "waiting": 1, "working": 0, "failing": 1, "idle": 5, "paused": 0}


def test_next_says_why(org: Path) -> None:
    rows = {row["name"]: row["next"] for row in build_view(org, "agents")["rows"]}
    assert rows["writer"] == "once it is answered"
    assert rows["billing"] == "once something is new"
    assert rows["archivist"] == "tick 50"
    assert rows["human"] == ""


@pytest.mark.long
def test_agents_are_chosen_by_what_they_do_and_sorted(hall: Path) -> None:
    failing = build_view(hall, "agents", {"group": "failing"})
    assert [row["name"] for row in failing["rows"]] == [f"a{number:04}" for number in range(50, 57)]
    spent = build_view(hall, "agents", {"sort": "spent"})["rows"]
    assert [row["credits"] for row in spent] == sorted((row["credits"] for row in spent), reverse=True)


@pytest.mark.long
def test_on_a_wide_screen_twenty_five_of_two_hundred_agents_are_seen(browser: Any, hall: Path) -> None:
    seen = """[...document.querySelectorAll('.rows > div')].filter(
        row => row.getBoundingClientRect().bottom <= innerHeight).length"""
    with serve_page(hall, port=0) as address, opened(browser, address, "agents") as tab:
        tab.set_viewport_size({"width": 1920, "height": 1080})
        assert tab.evaluate(seen) >= 25
        tab.click(".chip:has-text('failing 7')")
        playwright.expect(tab.locator(".rows > div")).to_have_count(7)
        assert "3 times in a row" in tab.inner_text(".rows > div >> nth=0")


@pytest.mark.long
def test_of_few_agents_what_was_said_last_fills_the_page(browser: Any, address: str) -> None:
    with opened(browser, address, "agents") as tab:
        playwright.expect(tab.locator(".lately li")).to_have_count(8)
        assert "wants to write shared/letters/okafor.txt" in tab.inner_text(".lately")


def test_an_agent_opens_on_how_it_is(browser: Any, address: str) -> None:
    with opened(browser, address, "agent?name=watcher") as tab:
        now = tab.inner_text(".now")
        assert "failing" in now
        assert "3 times in a row: scripted: the script says so" in now
        assert "next tick" in now
        playwright.expect(tab.locator(".table .line:not(.heading)")).to_have_count(1)  # of three alike
        assert "3×" in tab.inner_text(".table")


def test_a_resume_is_changed_by_its_fields_and_the_rest_of_the_file_stays(
    browser: Any, address: str, org: Path
) -> None:
    file = org / "agents/desk/resume.json"
    odd = file.read_text().replace('"title": "Front desk"', '"title"  :  "Front desk" ')
    file.write_text(odd)
    with opened(browser, address, "agent?name=desk&show=resume") as tab:
        tab.fill("label:has-text('Title') input", 'The "first" desk')
        tab.fill("label:has-text('Credits') input", "55")
        tab.click("button:has-text('Save')")
        tab.wait_for_selector(".editor .when:has-text('saved as typed')")
    assert file.read_text() == odd.replace('"Front desk"', json.dumps('The "first" desk')).replace(
        '"max_credits": 40', '"max_credits": 55'
    )


def test_an_unsaved_resume_outlasts_a_look_at_another_part(browser: Any, address: str) -> None:
    with opened(browser, address, "agent?name=desk&show=resume") as tab:
        tab.fill("label:has-text('Title') input", "Half a tit")
        tab.click(".menu a:has-text('Feed')")
        tab.wait_for_selector(".part-feed .entry")
        tab.go_back()
        tab.wait_for_selector(".editor .when:has-text('not saved')")
        assert tab.input_value("label:has-text('Title') input") == "Half a tit"
