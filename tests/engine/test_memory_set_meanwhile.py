"""A memory that a person sets while its agent's turn runs is not written over without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.kernel.memory import load_memory
from lemming.kernel.providers import LLMProvider, Reply, Request, register_provider
from lemming.libraries.memory_files import save_memory
from lemming.testing import make_org, resume, say


class SetsMeanwhile(LLMProvider):
    """A model during whose answer a person sets memories."""

    base = Path()
    values: dict[str, Any] = {}  # noqa: RUF012 - set by each test

    def call(self, *_: Any, **__: Any) -> str:
        """Not used."""
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        """Have the memories set, and answer with others."""
        for key, value in self.values.items():
            if key == "in_place":  # as some editors save
                path = self.base / "agents/ada/memory/plan.json"
                path.write_text(path.read_text().replace("old", value))
            else:
                save_memory(self.base, "ada", key, value)
        updates = [{"key": "plan", "value": "of the agent"}, {"key": "other", "value": 1}]
        return Reply(str(say("hi", memory_updates=updates)).replace("'", '"'))


def turn_during_which(base: Path, **values: Any) -> list[Event]:
    register_provider("meanwhile", SetsMeanwhile)
    make_org(base, resume("ada", model={"key": "m"}), models={"m": {"provider": "meanwhile"}})
    save_memory(base, "ada", "plan", "old")
    SetsMeanwhile.base, SetsMeanwhile.values = base, values
    told: list[Event] = []
    run_once(base, notify=told.append)
    return told


def problems_in(told: list[Event]) -> list[str]:
    return [event.problem.message for event in told if isinstance(event, ProblemFound)]


def test_the_value_of_the_person_stays_and_it_is_said(base: Path) -> None:
    told = turn_during_which(base, plan="of the person")
    assert load_memory(base, "ada", "plan") == "of the person"
    assert load_memory(base, "ada", "other") == 1
    (problem,) = problems_in(told)
    assert problem.startswith('ada wrote its memory "plan" in tick 1, but it was set from outside during the turn')
    assert [replayed.turns for replayed in replay_ticks(base, [1])] == [1]


def test_a_memory_that_nobody_set_is_written_as_ever(base: Path) -> None:
    told = turn_during_which(base)
    assert load_memory(base, "ada", "plan") == "of the agent"
    assert problems_in(told) == []


def test_a_new_memory_that_a_person_sets_first_stays(base: Path) -> None:
    told = turn_during_which(base, other=2)
    assert load_memory(base, "ada", "other") == 2
    assert len(problems_in(told)) == 1


def test_a_memory_that_an_editor_saves_in_place_stays(base: Path) -> None:
    told = turn_during_which(base, in_place="new")
    assert load_memory(base, "ada", "plan") == "new"
    assert len(problems_in(told)) == 1
