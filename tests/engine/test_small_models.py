"""What a model marked "brief" is shown: one new entry a turn, nothing of its own, no words to copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import journal_lines, make_org, resume, say


def org_of(base: Path, prompt: str) -> tuple[Path, list[str]]:
    """Make an organisation whose clerk has three new entries; return their ids too."""
    model = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "prompt": prompt}
    permissions = {"read_outboxes": ["human"], "tools": ["file_write"]}
    clerk = resume("clerk", model={"key": "small"}, permissions=permissions, schedule={"wake": "changed"}, clock=False)
    person = {"provider": "human"}
    org = make_org(
        base,
        resume("human", model={"key": "human"}),
        clerk,
        models={"small": model, "human": person},
        script=[{"reply": say("said before by the clerk")}],
    )
    sent = [
        write_person_entry(
            org, "human", tick=0, kind="message", payload={"text": text}, tags=[], created_at=f"2026-01-0{day}"
        )
        for day, text in enumerate(("one lamp", "two lamps", "three lamps"), start=1)
    ]
    return org, [entry.id for entry in sent]


def shown(org: Path, tick: int) -> list[str]:
    """Return the ids of the new entries that the clerk was shown in a tick."""
    lines = [line for line in journal_lines(org, tick) if line["type"] == "turn_started"]
    return [identity for line in lines for identity in line["entries"]]


def test_a_small_model_gets_one_new_entry_a_turn_until_it_has_had_all(base: Path) -> None:
    org, ids = org_of(base, "brief")
    for _ in range(4):
        run_once(org)
    assert [shown(org, tick) for tick in (1, 2, 3, 4)] == [[ids[0]], [ids[1]], [ids[2]], []]
    assert [replayed.tick for replayed in replay_ticks(org, [1, 2, 3])] == [1, 2, 3]
    started = next(line for line in journal_lines(org, 1) if line["type"] == "turn_started")
    assert "wait for your next turn" not in str(started)


def test_another_model_gets_all_at_once(base: Path) -> None:
    org, ids = org_of(base, "fit")
    run_once(org)
    assert shown(org, 1) == ids


@pytest.mark.parametrize(("prompt", "is_small"), [("brief", True), ("fit", False)])
def test_a_small_model_is_shown_nothing_of_its_own_and_no_description_of_an_argument(
    base: Path, capsys: pytest.CaptureFixture[str], prompt: str, is_small: bool
) -> None:
    org, _ = org_of(base, prompt)
    run_once(org)
    assert run(["-C", str(org), "prompt", "clerk"]) == 0
    told = capsys.readouterr().out
    assert ("file_write(path, content)" in told) == is_small
    assert ("The whole content of the file" in told) != is_small
    assert ("said before by the clerk" in told) != is_small
