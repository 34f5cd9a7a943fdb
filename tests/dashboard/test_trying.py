"""Resumes, gates and lines of models are tried on the past before they are saved; a recording cannot tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from in_browser import opened
from terminal import Lemming

from lemming.dashboard.draft_trial import try_text
from lemming.dashboard.page_actions import run_action
from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.kernel.base.errors import NotTrusted, UsageError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.queries.views import changes_view
from lemming.testing import FrozenClock, make_org, resume, say, tree


@pytest.fixture
def duo(base: Path) -> Path:
    """Ada and Bob, whose model is a script, which does not listen; and another model, a brief one."""
    brief = {"provider": "scripted", "model": "brief", "options": {"file": "config/brief.jsonl"}}
    nobody = {"read_outboxes": [], "tools": []}
    make_org(base, resume("ada", permissions=nobody), resume("bob", permissions=nobody), models={"brief": brief})
    fs.write_atomic(base, "config/brief.jsonl", f"{to_line({'reply': say('Hi.')})}\n".encode())
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    return base


def typed(base: Path, name: str, old: str, new: str) -> str:
    return (base / f"agents/{name}/resume.json").read_text().replace(old, new)


@pytest.mark.long
def test_what_would_have_been_different_is_shown_before_it_is_saved(browser: Any, duo: Path) -> None:
    before = tree(duo, without=())
    with serve_page(duo, port=0) as address, opened(browser, address, "agent?name=ada&show=resume") as tab:
        tab.fill("textarea.code", typed(duo, "ada", '"key": "scripted"', '"key": "brief"'))
        tab.click("text=Try on the last 10 ticks")
        tab.wait_for_selector(".tried:has-text('at least 3 questions of 6 would change')")
        tab.click("text=Ask them, in a fork")
        tab.wait_for_selector(".tried:has-text('3 entries would have been different')")
        assert "+Hi." in tab.inner_text(".tried .diff >> nth=0")
    assert tree(duo, without=()) == before


@pytest.mark.long
def test_a_model_that_answers_whatever_it_is_asked_cannot_tell(browser: Any, duo: Path) -> None:
    with serve_page(duo, port=0) as address, opened(browser, address, "agent?name=bob&show=resume") as tab:
        tab.fill("textarea.code", typed(duo, "bob", "You are bob.", "Be brief."))
        tab.click("text=Try on the last 10 ticks")
        tab.click("text=Ask them, in a fork")
        tab.wait_for_selector(".tried:has-text('That cannot be told: the model of bob replays a recording')")
        assert "no differences" not in tab.inner_text(".tried")


def test_the_command_says_so_too_and_ends_as_it_promises(duo: Path, lemming: Lemming) -> None:
    edit = "agents/bob/resume.json:/instructions=Be brief."
    ran = lemming("rehearse", "--trust", "--set", edit)
    assert ran.status == 2
    assert "no differences" not in ran.out
    assert "changed prompts get no answer" in ran.err
    told = lemming("rehearse", "--trust", "--set", "agents/ada/resume.json:/title=Ada").out
    assert told == "no differences\n"


def test_a_dry_run_says_so_before_anybody_is_asked(duo: Path, lemming: Lemming) -> None:
    ran = lemming("rehearse", "--trust", "--dry-run", "--set", "agents/bob/resume.json:/instructions=Be brief.")
    assert "changed prompts get no answer" in ran.err


@pytest.mark.long
def test_a_gate_is_tried_before_it_is_saved_with_what_it_costs(browser: Any, org: Path) -> None:
    before = tree(org, without=())
    with serve_page(org, port=0) as address, opened(browser, address, "settings") as tab:
        assert "calls of file_write: ask a person" in tab.inner_text(".group legend")
        tab.click("text=Remove this gate")
        tab.click("text=Try on the last 10 ticks")
        tab.wait_for_selector(".tried:has-text('desk 1, refunds 1')")
        tab.click("text=Ask them, in a fork")
        tab.wait_for_selector(".tried:has-text('would have been different')")
        shown = tab.inner_text(".tried")
    assert "other files: agents/writer/workspace" in shown or "shared/letters/okafor.txt" in shown
    assert "wants to write shared/letters/okafor.txt" in shown
    assert "would not have been written" in shown
    assert "tick 2, writer: ended waits: waits for human, and would have ended step limit" in shown
    assert tree(org, without=()) == before


@pytest.mark.long
def test_a_line_of_models_is_tried_before_it_is_saved(browser: Any, duo: Path) -> None:
    with serve_page(duo, port=0) as address, opened(browser, address, "settings?file=models") as tab:
        line = tab.locator(".group:has(legend:text-is('scripted'))")
        line.locator("label:has-text('Provider') input").fill("scripted ")
        tab.click("text=Try on the last 10 ticks")
        tab.wait_for_selector(".tried .failure:has-text('does not exist')")
        tab.fill("textarea.code", (duo / "config/models.json").read_text().replace("answers.jsonl", "brief.jsonl"))
        tab.click("text=Try on the last 10 ticks")
        tab.wait_for_selector(".tried:has-text('ada 3, bob 3')")
        assert "changed prompts get no answer" in tab.inner_text(".tried")
        tab.click("text=Ask them, in a fork")
        tab.wait_for_selector(".tried:has-text('6 entries')")


def test_settings_are_saved_as_typed_and_mended_where_they_are_broken(browser: Any, org: Path) -> None:
    file = org / "config/org.json"
    text = file.read_text()
    file.write_text(text.replace('"ask"', '"aks"'))
    with serve_page(org, port=0) as address, opened(browser, address, "agents") as tab:
        tab.click(".state.broken a")
        tab.wait_for_selector(".problems .error:has-text('aks')")
        tab.fill("textarea.code", text)
        tab.click("button.primary:has-text('Save')")
        tab.wait_for_selector(".state.stopped")
    assert file.read_text() == text


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "ada"}'])
def test_what_is_no_resume_is_not_tried(duo: Path, text: str) -> None:
    with pytest.raises(UsageError):
        run_action(Organisation(duo), "try", {"file": "agents/ada/resume.json", "text": text}, None)


@pytest.mark.parametrize("file", ["agents/../config/org.json", "config/credits.json", "../x/resume.json", "tick.json"])
@pytest.mark.parametrize("action", ["try", "save"])
def test_only_resumes_and_settings_are_tried_and_saved(duo: Path, action: str, file: str) -> None:
    with pytest.raises(UsageError):
        run_action(Organisation(duo), action, {"file": file, "text": "{}"}, None)


def test_what_would_run_something_that_nobody_agreed_to_is_not_tried(duo: Path) -> None:
    text = '{"plugins": ["somebody.elses"]}'
    with pytest.raises(NotTrusted, match=r"imports the Python module somebody\.elses"):
        run_action(Organisation(duo), "try", {"file": "config/org.json", "text": text}, None)


def test_trying_a_large_organisation_ends_and_says_how_far_it_came(duo: Path) -> None:
    org, file = Organisation(duo), "config/models.json"
    text = (duo / file).read_text()
    told = try_text(org, file, text.replace("answers.jsonl", "brief.jsonl"), is_dry=True, longest_s=0.0)
    assert told["last"] < 3
    assert "the trial took longer than" in told["stopped_by"]
    whole = try_text(org, file, text, is_dry=True)
    assert (whole["last"], whole["stopped_by"], whole["is_alike"]) == (3, "", True)


def test_where_many_journals_would_have_to_be_read_it_is_not_tried(duo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_view, "MAX_JOURNALS_COMPARED", 2)
    with pytest.raises(UsageError, match="more than 2 journals"):
        try_text(Organisation(duo), "config/models.json", (duo / "config/models.json").read_text(), is_dry=True)
