"""Ticks in which nobody takes a turn: they cost nothing, leave nothing, and nothing is lost for them."""

from __future__ import annotations

from pathlib import Path

from lemming.engine import load_tick, run_once, run_tick
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.queries.views.tick_view import build_plan_section, load_recorded_tick
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

CHANGED = {"wake": "changed"}
EVERY_FOURTH = {"run_every_n_ticks": 4}


def changes_of_a_tick(base: Path) -> list[str]:
    changes: list[str] = []
    with fs.observe_changes(lambda operation, path: changes.append(f"{operation} {path}")):
        run_once(base, clock=FrozenClock())
    return [change for change in changes if not change.endswith(".lemming/lock")]


def test_a_tick_in_which_nobody_is_due_writes_the_counter_and_nothing_else(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_FOURTH), org={"durability": "off"})
    run_once(base)
    assert changes_of_a_tick(base) == ["write tick.json", "rename tick.json"]
    assert load_tick(base) == 3


def test_a_tick_in_which_nothing_is_new_is_quiet_and_says_why(base: Path) -> None:
    make_org(base, *(resume(name, permissions={}, schedule=CHANGED) for name in ("ada", "bob")))
    run_once(base)
    before = tree(base, without=(".lemming",))
    report = run_once(base)
    assert report.is_quiet
    assert {turn.reason for turn in report.turns} == {"nothing it reads has changed since tick 1"}
    after = tree(base, without=(".lemming",))
    assert {path for path in after if after[path] != before.get(path)} == {"tick.json"}


def test_one_who_has_something_new_makes_the_tick_a_recorded_one(base: Path) -> None:
    make_org(
        base,
        resume("ada", permissions={}, schedule=CHANGED),
        resume("bob", permissions={"read_outboxes": ["ada"]}, schedule=CHANGED),
    )
    run_once(base)
    run_once(base)
    fs.write_atomic(base, "agents/ada/memory/note.json", b'{"key": "note", "value": 1}')
    report = run_once(base)
    assert {turn.agent: turn.status for turn in report.turns} == {"ada": "done", "bob": "done"}
    assert journal_ticks(base) == [1, 3]
    assert journal_lines(base, 3)[0]["after"] == 1


def test_who_has_no_credits_left_is_told_so_in_a_quiet_tick(base: Path) -> None:
    make_org(base, resume("ada", credits={"max_credits": 1}))
    run_once(base)
    report = run_once(base)
    assert report.is_quiet
    assert [turn.error for turn in report.turns] == ["OutOfCredits"]
    assert build_plan_section(load_recorded_tick(base, 2))["skipped"] == {"ada": report.turns[0].reason}
    make_org(base, resume("ada", credits={"max_credits": 5}))
    assert not run_once(base).is_quiet
    assert build_plan_section(load_recorded_tick(base, 2))["skipped"] == {"ada": report.turns[0].reason}


def test_a_turn_that_would_fail_is_not_quiet(base: Path) -> None:
    make_org(base, resume("ada", schedule=CHANGED, model={"key": "gone"}))
    assert [turn.status for turn in run_once(base).turns] == ["failed"]
    assert journal_ticks(base) == [1]


def test_a_quiet_tick_may_be_asked_for_again(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_FOURTH))
    run_once(base)
    assert run_tick(base, 1).is_quiet
    assert run_once(base).tick == 2


def test_what_came_in_quiet_ticks_is_read_when_somebody_is_due(base: Path) -> None:
    reply = {"agent": "ada", "contains": "good morning", "reply": say("seen")}
    make_org(
        base,
        resume("ada", schedule=EVERY_FOURTH),
        resume("human", model={"key": "human"}),
        script=[reply, {"reply": say("nothing")}],
    )
    for tick in range(1, 5):
        if tick == 2:
            entry = {"id": "0" * 12, "tick": 2, "agent": "human", "kind": "message", "tags": []}
            text = str({**entry, "payload": {"text": "good morning"}}).replace("'", '"').encode()
            fs.write_atomic(base, "agents/human/outbox/00000002_000000000000.json", text)
        report = run_once(base)
    assert [turn.status for turn in report.turns if turn.agent == "ada"] == ["done"]
    prompt = next(record for record in journal_lines(base, 4) if record["type"] == "turn_started")
    assert prompt["entries"] == ["0" * 12]


def test_a_journal_that_is_gone_is_told_from_a_quiet_tick(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 2}))
    for _ in range(6):
        run_once(base)
    assert [finding.message for finding in verify_org(base).findings if finding.is_error] == []
    (base / "logs/ticks/00000004.jsonl").unlink()
    missing = [finding for finding in verify_org(base).findings if finding.kind == "missing"]
    assert [(finding.tick, finding.file) for finding in missing][:1] == [(4, "logs/ticks/00000004.jsonl")]
