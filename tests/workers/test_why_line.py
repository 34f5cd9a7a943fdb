"""`lemming why PATH:LINE`, and recorded merges compared with the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from merge_org import EDIT, find_waiting_id, read_site
from terminal import Lemming
from worker_org import ask_worker, make_worker_org

from lemming.engine import run_once
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.org.organisation import Organisation
from lemming.obligations.write_decisions import decide
from lemming.queries.line_trace import LineTrace, trace_line
from lemming.testing import resume, write_script


@pytest.fixture
def base(base: Path) -> Path:
    """An organisation whose merge ann has approved, with her edit, in tick 2."""
    args_edit = ["summary=Say two."]
    decide(base, find_waiting_id(base), "approve", edits=args_edit)
    run_once(base)
    return base


def trace(base: Path, target: str, branch: str = "") -> LineTrace:
    line = trace_line(Organisation(base), target, branch=branch)
    assert line
    return line


def list_problems(base: Path) -> list[tuple[str, str, bool]]:
    return [(problem.kind, problem.message, problem.is_error) for problem in verify_org(base).findings]


def test_a_line_leads_to_its_turn_the_asker_and_the_approver(base: Path, lemming: Lemming) -> None:
    line = trace(base, f"{base.parent}/site/src/a.txt:2", "lemming/coder")
    assert (line.content, line.agent, line.tick, line.merge_tick) == ("two", "coder", 1, 2)
    assert (line.asked_by, line.text) == ("ann", "Change the site, please.")
    assert (line.approved_by, line.is_edited, line.summary) == ("ann", True, "Say two.")
    printed = lemming("why", "src/a.txt:2", "--branch", "lemming/coder").out
    assert "asked by  ann (ann/00000001_coder0000000): Change the site, please." in printed
    assert "approved by  ann, who edited the patch" in printed
    [facts] = lemming("why", "src/a.txt:2", "--json").objects
    assert (facts["type"], facts["revision"], facts["commit"]) == ("line", "lemming/coder", line.commit)


def test_a_line_for_a_request_that_was_handed_on_leads_to_the_person_that_asked(tmp_path: Path) -> None:
    reads = {"read_outboxes": ["ann", "coder"], "tools": []}
    desk = resume("desk", team={"hand_to": ["coder"]}, permissions=reads, turn={"take": "one"})
    base, site = make_worker_org(tmp_path / "handed", {"coder": EDIT}, resumes=[desk], wake="addressed")
    coder = base / "agents/coder/resume.json"
    coder.write_text(coder.read_text().replace('"ann"', '"desk"'))
    write_script(base, [{"reply": {"tool_calls": [{"tool": "hand_to_coder", "args": {"message": "Change a.txt."}}]}}])
    ask_worker(base, "desk", "Change the site, please.")
    run_once(base)
    run_once(base)
    line = trace(base, f"{site}/src/a.txt:2", "lemming/coder")
    assert (line.agent, line.asked_by, line.text) == ("coder", "ann", "Change the site, please.")


def test_a_line_of_a_person_names_the_author_of_the_commit(base: Path, lemming: Lemming) -> None:
    assert trace(base, "src/a.txt:1").agent == ""
    assert "written by  ann, in commit " in lemming("why", "src/a.txt:1").out


def test_a_squashed_line_is_found_by_its_patch(base: Path) -> None:
    read_site(base, "merge", "--squash", "lemming/coder")
    read_site(base, "commit", "-qm", "All of coder")
    read_site(base, "branch", "-D", "lemming/coder")
    line = trace(base, "b.txt:1")
    assert (line.author, line.agent, line.tick, line.approved_by) == ("ann", "coder", 1, "ann")


def test_a_line_that_is_not_there_is_an_error_and_other_targets_are_files(base: Path, lemming: Lemming) -> None:
    for number in (9, 0):
        assert "must be a line of the file" in lemming("why", f"src/a.txt:{number}").err
    assert '"nowhere.txt:1" is unknown' in lemming("why", "nowhere.txt:1").err
    assert "coder0000000" in lemming("why", "coder0000000").out


def test_a_turn_without_its_journal_is_told(base: Path) -> None:
    for journal in (base / "logs/ticks").glob("*2*"):
        journal.unlink()
    line = trace(base, "src/a.txt:2", "lemming/coder")
    assert line.agent == "coder"
    assert line.problem


def test_verify_finds_recorded_merges_in_the_repository(base: Path) -> None:
    assert list_problems(base) == []


def test_verify_names_a_merge_that_is_gone_from_its_branch(base: Path) -> None:
    commit = read_site(base, "rev-parse", "--short=12", "lemming/coder")
    read_site(base, "branch", "-f", "lemming/coder", "main")
    message = f"commit {commit} of coder is gone from the branch's history"
    assert list_problems(base) == [("missing", message, True)]


@pytest.mark.long
def test_a_branch_that_the_user_removed_is_a_note(base: Path) -> None:
    read_site(base, "branch", "-D", "lemming/coder")
    [(_, message, is_error)] = list_problems(base)
    assert message.endswith("is gone with its branch")
    assert not is_error


def test_a_removed_branch_that_was_merged_elsewhere_is_no_problem(base: Path) -> None:
    read_site(base, "merge", "-q", "lemming/coder")
    read_site(base, "branch", "-d", "lemming/coder")
    assert list_problems(base) == []


@pytest.mark.long
def test_verify_names_the_patch_of_a_merge_that_is_missing(base: Path) -> None:
    for patch in (base / "logs/patches").iterdir():
        patch.unlink()
    [(kind, message, is_error)] = list_problems(base)
    assert (kind, is_error) == ("missing", True)
    assert message.startswith("does not exist; commit ")


def test_verify_names_a_patch_that_is_damaged(base: Path) -> None:
    [patch] = (base / "logs/patches").iterdir()
    patch.write_text(patch.read_text() + "\n")
    [(kind, message, is_error)] = list_problems(base)
    assert (kind, is_error) == ("damage", True)
    assert "must have its digest" in message


def test_a_repository_that_is_gone_is_a_note(base: Path) -> None:
    (base.parent / "site").rename(base.parent / "elsewhere")
    [(_, message, is_error)] = list_problems(base)
    assert message.endswith("there is no repository now")
    assert not is_error


def test_without_git_no_merge_is_taken_for_sound(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{base}/nowhere")
    [(_, message, is_error)] = list_problems(base)
    assert "git must be installed" in message
    assert is_error
