"""A pause holds the next call, in the middle of a turn as well; nothing is lost and nothing is paid twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_into, replay_ticks
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.operations.agent_pause import pause_agent, unpause_agent
from lemming.testing import Crash, FrozenClock, journal_lines, make_org, say
from lemming.testing import resume as resume_of

TEXT = "since 2026-11-22T09:00:00.000Z by ada: too dear"
LOOK = say("more", tool_calls=[{"tool": "list_agents", "args": {}}])
SCRIPT = [{"agent": "ada", "contains": "bob: Bob", "reply": say("seen")}]


def org(base: Path, **turn: Any) -> Path:
    agents = resume_of("ada", turn={"max_steps": 3, **turn}), resume_of("bob", permissions={})
    return make_org(
        base, *agents, org={"max_parallel": 1}, script=[*SCRIPT, {"agent": "ada", "reply": LOOK}, {"reply": say("hi")}]
    )


def pausing(base: Path, agent: str | None, call: int = 0) -> Any:
    """Return an observer that pauses as ada has got an answer."""

    def hear(event: Event) -> None:
        if isinstance(event, ModelReplied) and (event.agent, event.call) == ("ada", call):
            pause_agent(base, agent, TEXT)

    return hear


def turns(base: Path, **more: Any) -> dict[str, TurnReport]:
    return {turn.agent: turn for turn in run_once(base, clock=FrozenClock(), **more).turns}


def test_an_agent_that_is_paused_in_its_turn_asks_no_more_and_goes_on_later(base: Path) -> None:
    org(base)
    ran = turns(base, notify=pausing(base, "ada"))
    assert (ran["ada"].status, ran["ada"].end, ran["ada"].calls) == ("waiting", "paused", 1)
    assert ran["ada"].reason == f"paused {TEXT} (end it with `lemming unpause`)"
    assert ran["bob"].status == "done"
    assert turns(base)["ada"].reason == f"paused {TEXT}"
    unpause_agent(base, "ada")
    assert turns(base)["ada"].status == "done"
    prompt = next(it for it in journal_lines(base, 3) if it["type"] == "turn_started" and it["agent"] == "ada")
    assert "list_agents" in prompt["prompt"][-1]["content"]
    assert read_state(base, "ada").credits == 2


def test_all_are_held_by_a_pause_of_all(base: Path) -> None:
    org(base)
    ran = turns(base, notify=pausing(base, None))
    assert (ran["ada"].end, ran["ada"].calls) == ("paused", 1)
    assert (ran["bob"].status, ran["bob"].end, ran["bob"].calls) == ("skipped", "paused", 0)
    assert ran["bob"].reason == f"the organisation is paused {TEXT} (end it with `lemming unpause`)"
    unpause_agent(base, None)
    assert [turn.status for turn in turns(base).values()] == ["done", "done"]


def test_a_pause_that_is_over_before_the_next_call_holds_nothing(base: Path) -> None:
    org(base)

    def hear(event: Event) -> None:
        if isinstance(event, ModelReplied) and event.agent == "ada":
            pause_agent(base, "ada", TEXT)
            unpause_agent(base, "ada")

    assert turns(base, notify=hear)["ada"].status == "done"


@pytest.mark.parametrize("agent", ["ada", None])
def test_an_interrupted_turn_is_not_gone_on_with_while_it_is_paused(base: Path, agent: str | None) -> None:
    org(base)

    def die(event: Event) -> None:
        if isinstance(event, ModelReplied):
            raise Crash

    with pytest.raises(Crash):
        run_once(base, clock=FrozenClock(), notify=die)
    pause_agent(base, agent, TEXT)
    ran = turns(base)
    assert (ran["ada"].end, ran["ada"].calls) == ("paused", 1)
    unpause_agent(base, agent)
    assert turns(base)["ada"].status == "done"
    assert read_state(base, "ada").credits == 2


def test_a_recorded_pause_is_replayed(base: Path, tmp_path: Path) -> None:
    org(base)
    turns(base, notify=pausing(base, "ada"))
    unpause_agent(base, "ada")
    turns(base)
    assert [replayed.turns for replayed in replay_ticks(base, [1, 2])] == [2, 2]
    assert [replayed.turns for replayed in replay_into(base, tmp_path / "again", [1, 2])] == [2, 2]


def test_a_resume_that_is_broken_meanwhile_holds_nothing(base: Path) -> None:
    org(base)

    def hear(event: Event) -> None:
        if isinstance(event, ModelReplied) and event.agent == "ada":
            (base / "agents/ada/resume.json").write_text("{")

    assert turns(base, notify=hear)["ada"].status == "done"
