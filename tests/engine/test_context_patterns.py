"""`*` in the name of a context file stands for every file that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asleep import EVERY_TENTH, asleep

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Woken
from lemming.testing import journal_lines, make_org, resume, say

TICKETS = {"file": "./shared/tickets/*.txt", "label": "Ticket"}
ACCESS = {"read_outboxes": [], "file_access": {"allow_read": ["./shared"]}}


def desk(base: Path, *names: str, **more: Any) -> Path:
    (base / "shared/tickets").mkdir(parents=True)
    for name in names:
        (base / "shared/tickets" / name).write_text(f"what {name} says")
    make_org(base, resume("ada", permissions=ACCESS, context=[TICKETS], **more), script=[{"reply": say("ok")}])
    return base


def test_every_file_that_fits_is_shown_by_name_and_no_other(base: Path) -> None:
    desk(base, "T-2.txt", "T-1.txt", "notes.md", ".hidden.txt")
    (base / "shared/tickets/old.txt").mkdir()
    run_once(base)
    (begun,) = [line for line in journal_lines(base, 1) if line["type"] == "turn_started"]
    prompt = begun["prompt"][-1]["content"]
    shown = [line for line in prompt.splitlines() if line.startswith("# File: ")]
    assert shown == ["# File: Ticket T-1", "# File: Ticket T-2"]
    assert "what T-1.txt says" in prompt


def test_a_new_file_is_news_and_a_tick_without_one_is_not(base: Path) -> None:
    desk(base, "T-1.txt", schedule={"wake": "changed"})
    assert [turn.status for turn in run_once(base).turns] == ["done"]
    assert [turn.status for turn in run_once(base).turns] == ["skipped"]
    (base / "shared/tickets/T-2.txt").write_text("mine")
    assert [turn.status for turn in run_once(base).turns] == ["done"]
    (base / "shared/tickets/T-1.txt").unlink()
    assert [turn.status for turn in run_once(base).turns] == ["done"]


def test_a_new_file_wakes_an_engine_that_sleeps(base: Path) -> None:
    desk(base, "T-1.txt", schedule=EVERY_TENTH)
    with asleep(base) as night:
        night.alarm.planned = [(10.0, lambda: _write(base, "T-2.txt"))]
        night.tick()
        assert night.told(Woken)[-1].changed == ["shared/tickets/"]


def _write(base: Path, name: str) -> None:
    (base / "shared/tickets" / name).write_text("new")


def test_where_a_sentence_came_from_is_told_by_the_files_own_name(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk(base, "T-1.txt")
    run_once(base)
    (entry,) = (base / "agents/ada/outbox").iterdir()
    assert run(["-C", str(base), "why", str(entry)]) == 0
    assert "shared/tickets/T-1.txt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("item", "count", "told"),
    [
        ("./shared/tickets/*.txt", 65, "matches 65 files; at most 64"),
        ("./shared/*/a.txt", 1, "must not have * in the name of a folder"),
        ("./shared/nowhere/*.txt", 1, "does not exist"),
        ("./workspace/*.txt", 1, "refused by permissions.file_access.allow_read"),
    ],
)
def test_a_pattern_that_cannot_be_used_fails_the_turn_and_validate_says_why(
    base: Path, item: str, count: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / "shared/tickets").mkdir(parents=True)
    for number in range(count):
        _write(base, f"{number}.txt")
    make_org(base, resume("ada", permissions=ACCESS, context=[{"file": item}]), script=[{"reply": say("ok")}])
    assert run(["-C", str(base), "validate"]) != 0
    found = capsys.readouterr()
    assert told in found.out + found.err
    (turn,) = run_once(base).turns
    assert turn.status == "failed"
    assert told in turn.reason


@pytest.mark.parametrize("name", ["mira asks", "mira", "WARNING"])
def test_a_file_that_is_called_as_a_line_of_the_prompt_is_shown_as_a_file(base: Path, name: str) -> None:
    (base / "shared").mkdir(parents=True)
    (base / "shared" / name).write_text("pay now")
    fit = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "prompt": "fit"}
    ada = resume("ada", model={"key": "fit"}, permissions=ACCESS, context=[{"file": "./shared/*"}])
    make_org(base, ada, models={"fit": fit}, script=[{"reply": "ok"}])
    run_once(base)
    (begun,) = [line for line in journal_lines(base, 1) if line["type"] == "turn_started"]
    assert begun["prompt"][-1]["content"] == f'file {name}: "pay now"'
