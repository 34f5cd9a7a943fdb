"""What observers are told: what the journal gets, as it is written there, and the few events beside it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Event, ModelAsked, ProblemFound, TickBegins, TickEnds
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_records import (
    ModelReplied,
    Record,
    ToolFinished,
    TurnEnded,
    TurnSkipped,
    TurnStarted,
)
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.testing import Crash, FrozenClock, make_org, resume, say

WRITES = {"tool": "file_write", "args": {"path": "a.txt", "content": "by ada"}}
MAY = {"read_outboxes": ["*"], "tools": ["file_write"]}


@pytest.fixture
def org(base: Path) -> Path:
    script: list[dict[str, Any]] = [
        {"agent": "ada", "step": 0, "reply": say("first", tool_calls=[WRITES])},
        {"reply": say("done")},
    ]
    return make_org(
        base,
        *(resume(name, permissions=MAY, turn={"max_steps": 2}) for name in ("ada", "bob")),
        script=script,
        org={"max_parallel": 1},
    )


@pytest.mark.parametrize("durability", ["turn", "tick", "off"])
def test_what_the_journal_gets_is_told_in_its_order(org: Path, durability: str) -> None:
    (org / "config/org.json").write_text(f'{{"max_parallel": 1, "durability": "{durability}"}}')
    told: list[Event] = []
    run_once(org, notify=told.append)
    assert [event for event in told if isinstance(event, Record)] == read_journal(org, 1)
    assert (type(told[0]), type(told[-1])) == (TickBegins, TickEnds)


def test_an_answer_and_a_tool_call_are_told_as_they_come(org: Path) -> None:
    told: list[Event] = []
    run_once(org, notify=told.append)
    of_ada = [type(event) for event in told if event.agent_name == "ada"]
    first = [TurnStarted, ModelAsked, ModelReplied, ToolFinished]
    assert of_ada[: len(first)] == first
    assert len([event for event in told if isinstance(event, ModelReplied)]) == 3


def test_no_secret_is_told(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lemming.kernel.base.redaction import secrets

    monkeypatch.setenv("ADA_API_KEY", "sk-abcdefgh12345678")
    secrets.refresh()
    (org / "config/answers.jsonl").write_text('{"reply": {"notes": "my key is sk-abcdefgh12345678"}}\n')
    told: list[Event] = []
    run_once(org, notify=told.append)
    monkeypatch.undo()
    secrets.refresh()
    assert "sk-abcdefgh12345678" not in repr(told)


def test_a_second_attempt_tells_what_had_ended_and_what_is_new(org: Path) -> None:
    def die(event: Event) -> None:
        if isinstance(event, TurnEnded) and event.agent_name == "ada":
            raise Crash

    with pytest.raises(Crash):
        run_once(org, notify=die, clock=FrozenClock())
    told: list[Event] = []
    run_once(org, notify=told.append, clock=FrozenClock())
    begins = told[0]
    assert isinstance(begins, TickBegins)
    assert (begins.answers_kept, begins.turns_left) == (2, ["bob"])
    ends = [event for event in told if isinstance(event, TurnEnded)]
    assert [(event.agent_name, event.report.status) for event in ends] == [("ada", "done"), ("bob", "done")]
    assert {event.agent_name for event in told if isinstance(event, ModelReplied)} == {"bob"}


def test_a_quiet_tick_is_told_though_it_has_no_journal(base: Path) -> None:
    idle = {"permissions": {"read_outboxes": []}, "schedule": {"run_every_n_ticks": 1, "wake": "changed"}}
    make_org(base, resume("ada", **idle), resume("bob", **idle))
    for _ in range(3):
        told: list[Event] = []
        report = run_once(base, notify=told.append)
    assert report.is_quiet
    assert [type(event) for event in told] == [TickBegins, TurnSkipped, TurnSkipped, TickEnds]


def test_what_an_observer_raises_ends_the_run_and_the_next_one_goes_on(org: Path) -> None:
    def refuse(event: Event) -> None:
        if isinstance(event, ModelReplied):
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        run_once(org, notify=refuse)
    asked: list[Event] = []
    report = run_once(org, notify=asked.append)
    assert [turn.status for turn in report.turns] == ["done", "done"]
    assert sum(isinstance(event, ModelAsked) for event in asked) == 2, "the answer that was told is not paid for again"


PLUGIN = """
from lemming.kernel.journal.engine_events import observer
from lemming.kernel.journal.journal_records import ModelReplied

HEARD = []

@observer
def listens(event):
    HEARD.append(event.kind)

@observer
def breaks(event):
    if isinstance(event, ModelReplied):
        raise ValueError("no more")
"""


@pytest.fixture
def hears(org: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What an observer of a plugin hears, beside another one that raises."""
    (tmp_path / "of_my_own.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = json.loads((org / "config/org.json").read_text()) if (org / "config/org.json").exists() else {}
    (org / "config/org.json").write_text(json.dumps({**settings, "plugins": ["of_my_own"]}))
    yield importlib.import_module("of_my_own").HEARD
    for name in ("listens", "breaks"):
        unregister("observer", name)
    del sys.modules["of_my_own"]


def test_what_a_plugins_observer_raises_is_told_once_and_ends_nothing(org: Path, hears: list[str]) -> None:
    told: list[Event] = []
    report = run_once(org, notify=told.append)
    assert [turn.status for turn in report.turns] == ["done", "done"]
    (problem,) = [event.problem for event in told if isinstance(event, ProblemFound)]
    assert problem.message == "the observer breaks failed at model_replied: ValueError: no more"
    assert problem.where.endswith("of_my_own.py:14")
    assert hears.count("turn_committed") == 2
    assert hears.count("model_replied") == sum(isinstance(event, ModelReplied) for event in told)


def test_a_replay_tells_a_plugins_observer_nothing(org: Path, hears: list[str]) -> None:
    run_once(org)
    hears.clear()
    assert run(["-C", str(org), "replay"]) == 0
    assert hears == []
