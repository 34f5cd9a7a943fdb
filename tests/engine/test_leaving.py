"""Agents that are removed while a tick is under way, and folders that are no agents."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sampling import KILL_STRIDE

from lemming.engine import run_once
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.kernel.providers import LLMProvider, Reply, Request, register_provider
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import Crash, crash_at, make_org, resume, say

CONTRACT = '{"outbox_entries": [{"kind": "message", "payload": {"text": "hello"}, "tags": []}]}'


class Dismisses(LLMProvider):
    """Answers; while it thinks, somebody removes the agent."""

    keeps_deadline = True
    base: ClassVar[Path]

    def call(self, model_name: str, messages: Any, temperature: float | None, **kwargs: Any) -> str:
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        shutil.rmtree(self.base / "agents" / request.agent)
        return Reply(text=CONTRACT)


@pytest.mark.parametrize("durability", ["turn", "tick", "off"])
def test_an_agent_that_is_removed_while_its_model_thinks_leaves_nothing(base: Path, durability: str) -> None:
    register_provider("dismisses", Dismisses)
    Dismisses.base = base
    make_org(
        base,
        resume("ada", model={"key": "dismisses"}),
        resume("bob"),
        models={"dismisses": {"provider": "dismisses"}},
        org={"durability": durability},
    )
    report = run_once(base)
    turns = {turn.agent: turn for turn in report.turns}
    assert (turns["ada"].status, turns["bob"].status) == ("failed", "done")
    assert "the agent was removed" in turns["ada"].reason
    assert not (base / "agents/ada").exists()
    assert verify_org(base).errors == []
    assert [turn.agent for turn in run_once(base).turns] == ["bob"]


def test_an_agent_that_is_removed_during_an_unfinished_tick_leaves_nothing(base: Path) -> None:
    for number in range(1, 100, KILL_STRIDE):
        shutil.rmtree(base, ignore_errors=True)
        make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("hello")}])
        try:
            with crash_at(number):
                run_once(base)
        except Crash:
            shutil.rmtree(base / "agents/ada")
            run_once(base)
            assert not (base / "agents/ada").exists(), number
            assert read_outbox_entries(base, "bob"), number
            continue
        return


def test_a_folder_without_a_resume_is_ignored_with_a_warning(base: Path) -> None:
    make_org(base, resume("ada"))
    (base / "agents/notes").mkdir()
    events: list[Event] = []
    report = run_once(base, notify=events.append)
    assert [(turn.agent, turn.status) for turn in report.turns] == [("ada", "done")]
    (problem,) = [event.problem for event in events if isinstance(event, ProblemFound)]
    assert (problem.file, problem.severity) == ("agents/notes/resume.json", "warning")
