"""A resume is tried on the past before it is saved, on the page; a recording says that it cannot tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming
from test_page import browser, opened, org, original, pytestmark

from lemming.base.errors import UsageError
from lemming.base.jsontext import to_line
from lemming.dashboard.actions import act
from lemming.dashboard.serving import page_of
from lemming.engine import run_once
from lemming.files import fs
from lemming.org.organisation import Organisation
from lemming.testing import FrozenClock, make_org, resume, say, tree

__all__ = ["browser", "org", "original", "pytestmark"]  # fixtures


@pytest.fixture
def duo(base: Path) -> Path:
    """Ada and Bob, whose model is a script, which does not listen; and another model, a brief one."""
    brief = {"provider": "scripted", "model": "brief", "options": {"file": "config/brief.jsonl"}}
    nobody = {"read_outboxes": [], "tools": []}
    make_org(
        base, resume("ada", permissions=nobody), resume("bob", permissions=nobody), models={"brief": brief}
    )
    fs.publish(base, "config/brief.jsonl", f"{to_line({'reply': say('Hi.')})}\n".encode())
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    return base


def typed(base: Path, name: str, old: str, new: str) -> str:
    return (base / f"agents/{name}/resume.json").read_text().replace(old, new)


def test_what_would_have_been_different_is_shown_before_it_is_saved(browser: Any, duo: Path) -> None:
    before = tree(duo, without=())
    with page_of(duo, port=0) as address, opened(browser, address, "agent?name=ada&show=resume") as tab:
        tab.fill("textarea.code", typed(duo, "ada", '"key": "scripted"', '"key": "brief"'))
        tab.click("text=Try on the last 10 ticks")
        tab.wait_for_selector(".tried:has-text('at least 3 questions of 6 would be other ones')")
        tab.click("text=Ask them, in a fork")
        tab.wait_for_selector(".tried:has-text('3 entries would have been different')")
        assert "+Hi." in tab.inner_text(".tried .diff >> nth=0")
    assert tree(duo, without=()) == before


def test_a_model_that_answers_whatever_it_is_asked_cannot_tell(browser: Any, duo: Path) -> None:
    with page_of(duo, port=0) as address, opened(browser, address, "agent?name=bob&show=resume") as tab:
        tab.fill("textarea.code", typed(duo, "bob", "You are bob.", "Be brief."))
        tab.click("text=Try on the last 10 ticks")
        tab.click("text=Ask them, in a fork")
        tab.wait_for_selector(".tried:has-text('That cannot be told: the model of bob is a recording')")
        assert "nothing would have been different" not in tab.inner_text(".tried")


def test_the_command_says_so_too_and_ends_as_it_promises(duo: Path, lemming: Lemming) -> None:
    edit = "agents/bob/resume.json:/instructions=Be brief."
    ran = lemming("rehearse", "--trust", "--set", edit)
    assert ran.status == 2
    assert "nothing would have been different" not in ran.out
    assert "it cannot tell" in ran.err
    told = lemming("rehearse", "--trust", "--set", "agents/ada/resume.json:/title=Ada").out
    assert told == "nothing would have been different\n"


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "ada"}'])
def test_what_is_no_resume_is_not_tried(duo: Path, text: str) -> None:
    with pytest.raises(UsageError):
        act(Organisation(duo), "try", {"name": "ada", "text": text}, None)


def test_only_an_agents_own_resume_is_tried(duo: Path) -> None:
    with pytest.raises(UsageError):
        act(Organisation(duo), "try", {"name": "../../config", "text": "{}"}, None)
