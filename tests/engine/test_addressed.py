"""Entries with a target: new to whom they name, known to whoever else may read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_inbox import seen

from lemming.engine import load_tick, run_once
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.messages import OutboxEntry
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

CHANGED = {"wake": "changed"}
QUIET = {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": "quiet"}
NAMES = ("ada", "bob", "cyd")


def ask(base: Path, target: Any, text: str = "please") -> OutboxEntry:
    payload = {"text": text, "target": target}
    return write_person_entry(
        base, "human", tick=load_tick(base), kind="request", payload=payload, tags=[], created_at="x"
    )


def asked(report: TickReport) -> list[str]:
    return [turn.agent for turn in report.turns if turn.calls]


def prompt_of(base: Path, tick: int, agent: str) -> str:
    started = [r for r in journal_lines(base, tick) if r["type"] == "turn_started" and r["agent"] == agent]
    return str(started[0]["prompt"][-1]["content"])


@pytest.fixture
def org(base: Path) -> Path:
    """Three agents that wake on changes and have taken a turn."""
    make_org(
        base,
        resume("human", model={"key": "human"}),
        *(resume(name, schedule=CHANGED) for name in NAMES),
        script=[{"reply": QUIET}],
        models={"human": {"provider": "human"}},
    )
    run_once(base, clock=FrozenClock())
    return base


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("target", "woken"),
    [
        ("bob", ["bob"]),
        (" Bob ", ["bob"]),
        (["cyd", "ada"], ["ada", "cyd"]),
        (["bob", "nobody"], ["bob"]),
        ("nobody", list(NAMES)),
        ("*", list(NAMES)),
        ("all", list(NAMES)),
        (["bob", "all"], list(NAMES)),
        ("human", list(NAMES)),
        (None, list(NAMES)),
        ({"name": "bob"}, list(NAMES)),
        ([], list(NAMES)),
    ],
)
def test_an_entry_wakes_whom_its_target_names(org: Path, target: Any, woken: list[str]) -> None:
    ask(org, target)
    assert asked(run_once(org)) == woken
    assert asked(run_once(org)) == []


def test_who_was_not_addressed_knows_the_entry_when_something_else_is_new(org: Path) -> None:
    request = ask(org, "bob", "for bob")
    run_once(org)
    told = ask(org, "ada", "for ada")
    run_once(org)
    assert seen(org, 3, "ada") == [told.id]
    new, known = prompt_of(org, 3, "ada").split("# Entries you have seen before")
    assert request.id in known
    assert request.id not in new


def test_requests_to_one_agent_cost_one_call_each(org: Path) -> None:
    calls = 0
    for _ in range(4):
        ask(org, "bob")
        calls += len(asked(run_once(org)))
    assert calls == 4


def test_an_entry_whose_target_a_person_corrects_is_new_to_the_other(org: Path) -> None:
    entry = ask(org, "bob")
    file = org / entry.file
    right = file.read_bytes().replace(b'"bob"', b'"cyd"')
    assert asked(run_once(org)) == ["bob"]
    for _ in range(3):
        assert asked(run_once(org)) == []
    file.unlink()
    file.write_bytes(right)
    assert asked(run_once(org)) == ["cyd"]


def test_an_agent_that_addresses_itself_by_mistake_is_heard_by_all(base: Path) -> None:
    entry = {"kind": "message", "payload": {"text": "hm", "target": "ada"}, "tags": []}
    make_org(
        base,
        resume("ada"),
        resume("bob", permissions={"read_outboxes": ["ada"]}, schedule=CHANGED),
        script=[{"agent": "ada", "reply": {**QUIET, "outbox_entries": [entry]}}, {"reply": QUIET}],
    )
    run_once(base)
    assert asked(run_once(base)) == ["ada", "bob"]


def test_addressed_entries_come_out_the_same_one_after_another_and_at_once(tmp_path: Path) -> None:
    entry = {"kind": "request", "payload": {"text": "you", "target": "cyd"}, "tags": []}
    trees = []
    for at_once in (1, 8):
        base = make_org(
            tmp_path / str(at_once),
            *(resume(name, schedule=CHANGED) for name in NAMES),
            script=[
                {"agent": "ada", "tick": 1, "reply": {**QUIET, "outbox_entries": [entry]}},
                {"reply": say("heard", notes="x")},
            ],
            org={"max_parallel": at_once},
        )
        for _ in range(4):
            run_once(base, clock=FrozenClock())
        trees.append({path: raw for path, raw in tree(base).items() if path != "config/org.json"})
    assert trees[0] == trees[1]
