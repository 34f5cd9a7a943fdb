"""A merge that waits, on the page: its files, its diff, comments on lines, an edit; and a worker that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_browser import TOKEN, opened, playwright
from merge_org import find_waiting_id, make_asking_org, read_site

from lemming.capabilities.workers.attempts import get_attempt, note_running
from lemming.dashboard.page_actions import run_action
from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.waiting_items import list_person_inbox
from lemming.queries.views import waiting_view
from lemming.queries.views.waiting_view import build_waiting_view


@pytest.fixture
def org(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An organisation whose merge waits for ann."""
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/state")
    base, _ = make_asking_org(tmp_path)
    run_once(base)
    return base


@pytest.fixture
def address(org: Path) -> Iterator[str]:
    with serve_page(org, port=0, token=TOKEN) as found:
        yield found


def read_decision(org: Path) -> dict[str, Any]:
    """Return the payload of ann's only decision."""
    [file] = (org / "agents/ann/outbox").glob("00000002_*.json")
    payload: dict[str, Any] = json.loads(file.read_text())["payload"]
    return payload


def test_the_view_has_the_patch_of_the_chosen_item(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = build_waiting_view(org)
    assert view["items"][0]["has_patch"]
    assert view["patch"]["identity"] == view["items"][0]["identity"]
    assert [(file["path"], file["left_out"]) for file in view["patch"]["files"]] == [
        (".claude/settings.json", 0),
        ("b.txt", 0),
        ("src/a.txt", 0),
    ]
    monkeypatch.setattr(waiting_view, "MAX_PATCH_LINES", 2)
    files = build_waiting_view(org)["patch"]["files"]
    assert [(file["left_out"], bool(file["hunks"])) for file in files] == [(0, True), (0, True), (2, False)]


def test_an_action_reads_a_file_and_the_patch_and_nothing_else(org: Path) -> None:
    reference = find_waiting_id(org)
    read = lambda path: run_action(Organisation(org), "patch-file", {"id": reference, "path": path}, "ann")  # noqa: E731
    assert read("src/a.txt") == {"text": "one\ntwo\n"}
    assert read("")["text"].startswith("diff --git a/.claude/settings.json")
    with pytest.raises(UsageError, match="leaves no file"):
        read("../../etc/passwd")


@pytest.mark.long
def test_the_page_shows_flags_tree_and_diff_and_approves(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "waiting") as tab:
        playwright.expect(tab.locator(".closely")).to_contain_text(".claude/settings.json: settings of a harness")
        playwright.expect(tab.locator(".file-tree button")).to_have_count(3)
        playwright.expect(tab.locator(".line-of-file.added")).to_have_count(3)
        playwright.expect(tab.locator("details.file-changes").last).to_contain_text("two")
        tab.get_by_role("button", name="Approve").click()
        playwright.expect(tab.locator(".toast")).to_contain_text("Approved")
    run_once(org)
    assert read_site(org, "show", "lemming/coder:src/a.txt") == "one\ntwo"


@pytest.mark.long
def test_comments_on_lines_go_with_a_denial(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "waiting") as tab:
        tab.get_by_label("comment on src/a.txt:2", exact=True).click()
        tab.get_by_label("your comment on src/a.txt:2").fill("say why,\nplease")
        tab.get_by_role("button", name="Deny with 1 comment").click()
        tab.get_by_label("Reason").fill("Not yet.")
        tab.get_by_role("button", name="Deny", exact=True).click()
        playwright.expect(tab.locator(".toast")).to_contain_text("Denied")
    assert read_decision(org)["reason"] == "Not yet.\nsrc/a.txt:2: say why, please"


@pytest.mark.long
def test_a_file_is_edited_on_the_page(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "waiting") as tab:
        tab.get_by_role("button", name="Edit…").click()
        tab.locator(".patch-edit select").select_option("src/a.txt")
        playwright.expect(tab.locator(".patch-edit textarea")).to_have_value("one\ntwo\n")
        tab.locator(".patch-edit textarea").fill("one\nzwei\n")
        playwright.expect(tab.locator(".patch-edit .diff")).to_contain_text("+zwei")
        tab.get_by_role("button", name="Approve as edited").click()
        playwright.expect(tab.locator(".toast")).to_contain_text("src/a.txt edited")
    run_once(org)
    assert read_site(org, "show", "lemming/coder:src/a.txt") == "one\nzwei"


@pytest.mark.long
def test_a_patch_that_does_not_apply_says_so_beside_the_edit(browser: Any, address: str, org: Path) -> None:
    with opened(browser, address, "waiting") as tab:
        tab.get_by_role("button", name="Edit…").click()
        tab.locator(".patch-edit select").select_option(label="the patch as a text")
        area = tab.locator(".patch-edit textarea")
        playwright.expect(area).not_to_have_value("")
        area.fill(area.input_value().replace("\n one\n", "\n ones\n"))
        tab.get_by_role("button", name="Approve as edited").click()
        playwright.expect(tab.locator(".failure")).to_contain_text("hunk 1 of src/a.txt does not apply")
    assert len(list_person_inbox(org)) == 1


@pytest.mark.long
def test_a_merge_without_its_patch_cannot_be_approved_on_the_page(browser: Any, address: str, org: Path) -> None:
    for patch in (org / "logs/patches").iterdir():
        patch.unlink()
    with opened(browser, address, "waiting") as tab:
        playwright.expect(tab.locator(".patch .failure")).to_contain_text("This cannot be approved.")
        playwright.expect(tab.get_by_role("button", name="Approve")).to_be_disabled()


@pytest.mark.long
def test_the_page_of_an_agent_shows_its_worker_live_and_stops_it(browser: Any, address: str, org: Path) -> None:
    attempt = get_attempt(org, "2-coder-0")
    attempt.clone.mkdir(parents=True)
    facts = {"agent": "coder", "tick": 2, "call": 0, "harness": "codex", "model": "m", "workspace": "../site"}
    note_running(Organisation(org), attempt, {**facts, "branch": "lemming/coder", "since": "2026-01-01T00:00:00Z"})
    with opened(browser, address, "agent?name=coder") as tab:
        playwright.expect(tab.locator(".worker")).to_contain_text("codex, m on ../site, for lemming/coder")
        step = {"at": "2026-01-01T00:00:02Z", "kind": "file", "text": "Edit", "path": "src/a.txt"}
        (attempt.folder / "progress.jsonl").write_text(json.dumps(step) + "\n")
        playwright.expect(tab.locator(".worker .steps")).to_contain_text("Edit src/a.txt")
        playwright.expect(tab.locator(".worker .touched li")).to_have_text(["src/a.txt"])
        tab.get_by_role("button", name="Stop…").click()
        tab.get_by_role("button", name="Stop it").click()
        playwright.expect(tab.locator(".worker")).to_contain_text("has asked it to end")
    assert attempt.read_json("stop.json") == {"by": "a person"}
