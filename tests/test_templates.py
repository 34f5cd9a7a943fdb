"""What `lemming init --template` makes: each does what its README says, and needs no model."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import recordings
from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.testing import say, tree

TEMPLATES = Path(__file__).parent.parent / "lemming/templates"
RECORDED = ["desk", "research", "watch", "review", "game"]


def made(base: Path, template: str) -> Path:
    assert run(["init", str(base), "--template", template, "--quiet"]) == 0
    return base


def commands_of(template: str) -> list[str]:
    """Return what the README of a template has a person type, without remarks."""
    return re.findall(r"^    (\w.*?)(?: +#.*)?$", (TEMPLATES / template / "README.md").read_text(), re.M)


def words_of(command: str) -> list[str]:
    """Return the words after `lemming`, as a shell makes them in this folder."""
    return [found for word in shlex.split(command) for found in glob.glob(word) or [word]][1:]


def texts(base: Path, agent: str) -> list[str]:
    files = sorted((base / "agents" / agent / "outbox").glob("*.json"))
    return [json.loads(file.read_text())["payload"]["text"] for file in files]


def failures(base: Path) -> list[str]:
    """Return who fails in the next tick because nobody has recorded an answer to what is asked."""
    failed = run_once(base).by_status("failed")
    assert all("was not asked then" in turn.reason and "lemming models use" in turn.reason for turn in failed)
    return [turn.agent for turn in failed]


@pytest.mark.sample(3)
@pytest.mark.parametrize("template", [*RECORDED, "workers"])
def test_the_commands_of_its_readme_work_in_their_order(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(made(tmp_path / template, template))
    assert run(["check"]) == 0
    commands = commands_of(template)
    assert len(commands) >= 4
    for command in commands:
        if command.startswith("lemming"):
            words = words_of(command)
            assert run(words) in (0, 1 if words[0] == "waiting" else 0), (command, capsys.readouterr())
    assert "recorded" not in json.loads(Path("config/models.json").read_text())["default"]["model"]


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_worker_mends_the_repository_after_a_person_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    base = made(tmp_path / "org", "workers")
    site, test = base / "site", [sys.executable, "-B", str(base / "site/test_slug.py")]
    begin = git(site, "rev-parse", "main")
    assert begin == "7fe3af05475bbe912696a10ed17166fc60a76d7e"
    assert subprocess.run(test, capture_output=True, check=False).returncode == 1
    assert [turn.agent for turn in run_once(base).by_status("waiting")] == ["coder"]
    assert git(site, "branch", "--list", "lemming/*") == ""
    assert run(["-C", str(base), "approve", "--all", "--tool", "merge", "--yes"]) == 0
    run_once(base)
    assert git(site, "rev-parse", "main") == begin
    assert git(site, "rev-parse", "lemming/coder^{tree}") == "773b09ac21dca32c17d915694ac2840efe206c7f"
    assert git(site, "status", "--porcelain") == ""
    assert texts(base, "coder")[-1] == "A slug has hyphens between its words and leaves out other signs."
    git(site, "merge", "-q", "lemming/coder")
    assert subprocess.run(test, capture_output=True, text=True, check=True).stdout == "2 tests passed\n"


def test_a_recorded_worker_says_that_another_task_was_not_given_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    base = made(tmp_path / "org", "workers")
    (base / "agents/human/outbox/00000001_task1.json").unlink()
    assert run(["-C", str(base), "send", "--to", "coder", "Add a page about bees, please."]) == 0
    (failed,) = run_once(base).by_status("failed")
    assert "this task was not given then" in failed.reason


def test_without_git_nothing_of_the_workers_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["init", str(tmp_path / "org"), "--template", "workers"]) != 0
    assert "git must be installed" in capsys.readouterr().err
    assert not (tmp_path / "org").exists()


@pytest.mark.sample(3)
@pytest.mark.parametrize("template", RECORDED)
def test_its_eval_comes_out_right_when_its_readme_was_followed(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made(tmp_path / template, template))
    for command in commands_of(template):
        if command.startswith("lemming") and not command.startswith("lemming models"):
            run(words_of(command))
    assert run(["eval"]) == 0


def test_why_goes_from_an_answer_through_what_was_asked_back_to_the_person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = made(tmp_path, "research")
    for _ in range(2):
        run_once(base)
    capsys.readouterr()
    (answer,) = (base / "agents/lead/outbox").glob("00000002_*.json")
    assert run(["-C", str(base), "why", str(answer)]) == 0
    told = capsys.readouterr().out
    for seen in ("question1 of human", "of reader", "of lead", "file_read", "ferry-log.txt"):
        assert seen in told
    assert "nothing but its instructions" not in told


def test_why_goes_from_an_approved_call_back_to_the_turn_that_asked_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = made(tmp_path, "review")
    run_once(base)
    assert run(["-C", str(base), "approve", "--all", "--tool", "file_write", "--yes"]) == 0
    run_once(base)
    capsys.readouterr()
    assert run(["-C", str(base), "why", "shared/site/hours.md"]) == 0
    told = capsys.readouterr().out
    for seen in ("approved by human", "of author", "brief1 of human"):
        assert seen in told


@pytest.mark.parametrize("template", RECORDED)
def test_it_says_that_its_answers_were_written_by_hand_and_gets_a_model_by_one_line(template: str) -> None:
    readme = (TEMPLATES / template / "README.md").read_text()
    assert "written by hand" in readme
    assert "lemming models use gpt" in readme
    models = json.loads((TEMPLATES / template / "config/models.json").read_text())
    assert models["default"]["provider"] == "scripted"
    assert {"gpt", "claude", "llama", "small"} <= models.keys()


@pytest.mark.sample(3)
@pytest.mark.parametrize("template", RECORDED)
def test_its_eval_comes_out_right_before_it_has_run_and_after(template: str, tmp_path: Path) -> None:
    base = made(tmp_path, template)
    assert len(list((base / "evals").glob("*/case.json"))) == 1
    assert run(["-C", str(base), "eval"]) == 0
    for _ in range(2):
        run_once(base)
    assert run(["-C", str(base), "eval"]) == 0


@pytest.mark.parametrize(
    ("template", "good", "bad"),
    [
        ("desk", "72 euros", "some euros"),
        ("research", "[council-minutes.txt]. Of", ". Of"),
        ("watch", "remove /var/cache/images", "do something"),
        ("review", '"tool": "file_write"', '"tool": "file_read"'),
        ("game", "Bob has won", "Nobody lost"),
    ],
)
def test_its_eval_fails_where_it_should(template: str, good: str, bad: str, tmp_path: Path) -> None:
    base = made(tmp_path, template)
    for file in (base / "config").iterdir():
        file.write_text(file.read_text().replace(good, bad))
    assert run(["-C", str(base), "eval", "--quiet"]) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("template", ["desk", "research", "review", "game"])
def test_its_files_come_out_the_same_wherever_it_runs(template: str, tmp_path: Path) -> None:
    roots = set()
    for name in ("here", "there"):
        base = made(tmp_path / name, template)
        for _ in range(3):
            assert not run_once(base).by_status("failed")
        roots.add(load_state_root(base))
    assert len(roots) == 1


def test_at_the_desk_two_drafts_go_back_and_three_answers_leave(tmp_path: Path) -> None:
    base = made(tmp_path, "desk")
    first, second, third = (run_once(base) for _ in range(3))
    assert [turn.agent for turn in first.by_status("done")] == ["desk", "invoices", "product", "reviewer"]
    assert [turn.agent for turn in second.by_status("done")] == ["invoices", "product", "reviewer"]
    assert third.by_status("done") == []
    ready = [text for text in texts(base, "reviewer") if text.startswith("Ready to send.")]
    assert len(ready) == 3
    assert not any("by Friday" in text for text in ready)


def test_research_has_a_checker_who_sends_back_what_names_no_source(tmp_path: Path) -> None:
    base = made(tmp_path, "research")
    run_once(base)
    turn = next(turn for turn in run_once(base).turns if turn.agent == "lead")
    assert turn.calls == 4  # a draft, the checker's no, a draft, its yes
    answer = texts(base, "lead")[-1]
    assert "[ferry-log.txt]" in answer
    assert "Yes, they can." not in answer


def test_the_watch_takes_what_is_dropped_and_tells_a_person_what_is_urgent(tmp_path: Path) -> None:
    base = made(tmp_path, "watch")
    run_once(base)
    assert sorted(file.name for file in (base / "shared/drop/done").iterdir()) == ["backup-nightly.log", "web-3.log"]
    entries: list[dict[str, Any]] = [
        json.loads(file.read_text()) for file in (base / "agents/watcher/outbox").glob("*.json")
    ]
    assert [entry["payload"]["target"] for entry in entries if "urgent" in entry["tags"]] == ["human"]


def test_in_review_nothing_is_published_before_a_person_has_said_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = made(tmp_path, "review")
    page = base / "shared/site/hours.md"
    before = page.read_text()
    for _ in range(2):
        run_once(base)
    assert page.read_text() == before
    assert run(["-C", str(base), "approve", "--all", "--tool", "file_write", "--yes"]) == 0
    run_once(base)
    assert "Saturday" in page.read_text()
    assert "says Saturdays" in texts(base, "publisher")[-1]


def test_in_review_a_no_is_told_and_no_recorded_page_answers_something_else(tmp_path: Path) -> None:
    base = made(tmp_path, "review")
    run_once(base)
    assert run(["-C", str(base), "deny", "--all", "--yes"]) == 0
    run_once(base)
    assert "a person said no" in texts(base, "publisher")[-1]
    assert run(["-C", str(base), "send", "--to", "author", "A note on bees, please."]) == 0
    assert failures(base) == ["author"]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_ticket_of_ones_own_is_read_and_no_recorded_answer_is_given_to_it(tmp_path: Path, before: int) -> None:
    base = made(tmp_path, "desk")
    for _ in range(before):
        run_once(base)
    ticket = base / "shared/tickets/T-4.txt"
    ticket.parent.mkdir(exist_ok=True)
    ticket.write_text("From: Ann\n\nMy password mail does not come.\n")
    os.utime(ticket, (0, 0))  # it has been at rest for long
    sorted_before = texts(base, "desk")
    assert "desk" in failures(base)
    assert texts(base, "desk") == sorted_before
    script = {"agent": "desk", "contains": "My password mail", "reply": say("Ann gets no mail.")}
    (base / "mine.jsonl").write_text(json.dumps(script))
    models = json.loads((base / "config/models.json").read_text())
    models["mine"] = {"provider": "scripted", "options": {"file": "mine.jsonl"}}
    (base / "config/models.json").write_text(json.dumps(models))
    assert run(["-C", str(base), "models", "use", "mine"]) == 0
    assert "desk" in [turn.agent for turn in run_once(base).by_status("done")]
    assert texts(base, "desk")[-1] == "Ann gets no mail."


def test_a_log_of_ones_own_is_not_taken_for_another_machines_trouble(tmp_path: Path) -> None:
    base = made(tmp_path, "watch")
    run_once(base)
    before = texts(base, "watcher")
    (base / "shared/drop/db.log").write_text("ERROR: no space left on device\n")
    assert failures(base) == ["watcher"]
    assert texts(base, "watcher") == before


def test_a_question_of_ones_own_fails_with_the_reason_and_the_recorded_one_is_answered_still(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = made(tmp_path, "research")
    assert run(["-C", str(base), "ask", "lead", "How many cats live on the island?"]) == 1
    told = capsys.readouterr().err
    assert "was not asked then" in told
    assert "lemming models use" in told
    for _ in range(2):
        run_once(base)
    assert "[ferry-log.txt]" in texts(base, "lead")[-1]


@pytest.mark.parametrize(
    ("template", "file", "old", "new", "who"),
    [
        ("desk", "agents/tickets/outbox/00000001_ticket1.json", "24 euros", "48 euros", "desk"),
        ("desk", "agents/desk/resume.json", "You sort", "As a pirate you sort", "desk"),
        ("desk", "shared/handbook.txt", "5 working days", "9 working days", "invoices"),
        ("watch", "shared/runbook.txt", "restart nginx", "restart the machine", "watcher"),
        ("game", "shared/rules.txt", "welve", "hirteen", "alice"),
    ],
)
def test_what_is_changed_before_it_begins_is_another_question(
    template: str, file: str, old: str, new: str, who: str, tmp_path: Path
) -> None:
    base = made(tmp_path, template)
    text = (base / file).read_text()
    assert old in text
    (base / file).write_text(text.replace(old, new))
    assert who in failures(base)


@pytest.mark.sample(3)
@pytest.mark.parametrize("template", RECORDED)
def test_each_recorded_answer_has_its_question(template: str) -> None:
    """Else run: python -m benchmarks.recordings."""
    file = TEMPLATES / template / "config/answers.jsonl"
    assert file.read_text() == recordings.build_answers(template)


def test_the_game_has_a_winner_and_ends(tmp_path: Path) -> None:
    base = made(tmp_path, "game")
    for _ in range(4):
        run_once(base)
    assert "Bob has won" in texts(base, "referee")[-1]
    before = tree(base / "agents")
    assert [turn.status for turn in run_once(base).turns if turn.agent != "human"] == ["skipped"] * 3
    assert tree(base / "agents") == before


def test_whoever_names_the_folder_as_a_template_is_told_of_the_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path / "desk")]) == 0
    assert "`lemming init DIR --template desk` creates the other" in capsys.readouterr().err
    assert run(["init", str(tmp_path / "there"), "--template", "desk"]) == 0
    assert "creates the other" not in capsys.readouterr().err


def test_a_case_that_comes_out_right_though_turns_failed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    base = made(tmp_path, "desk")
    case = {"at": 0, "answers": "live", "ticks": 1, "expect": [{"cost": {"at_most_usd": 1}}]}
    (base / "evals/three-answers/case.json").write_text(json.dumps(case))
    assert run(["-C", str(base), "eval", "--model", "gpt"]) == 0
    assert "passed, though 2 turns failed: tick 1, desk failed: openai: no API key" in capsys.readouterr().err
