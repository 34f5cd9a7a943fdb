"""What a second attempt at a tick must come to, seen in what is spent, shown and asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from lemming.engine import run_once
from lemming.kernel.base import paths
from lemming.kernel.base.errors import AnswerTooLarge
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import TurnEnded
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, register_provider
from lemming.testing import Crash, journal_lines, make_org, resume, say


def test_a_tick_whose_journal_was_moved_away_runs_afresh_and_what_was_spent_stays_spent(base: Path) -> None:
    make_org(base, resume("ada", credits={"max_credits": 3}))
    run_once(base)
    for _ in range(3):
        (base / paths.journal_file(1)).unlink()
        (base / "tick.json").write_text('{"current_tick": 1}')
        (turn,) = run_once(base).turns
    assert (turn.status, turn.error) == ("skipped", "OutOfCredits")
    assert read_state(base, "ada").credits == 3


def test_who_goes_on_after_a_crash_sees_what_a_turn_before_it_had_written(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("news")}], org={"max_parallel": 1})

    def die(event: Event) -> None:
        if isinstance(event, TurnEnded) and event.agent_name == "ada":
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=die)
    run_once(base)
    (started,) = [r for r in journal_lines(base, 1) if r["type"] == "turn_started" and r["agent"] == "bob"]
    assert len(started["entries"]) == 1


class Asked(LLMProvider):
    """Notes the seeds it is given, and answers at once or with more than anybody reads."""

    seeds: ClassVar[list[int | None]] = []
    is_too_large: ClassVar[bool] = False

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        Asked.seeds.append(request.seed)
        if Asked.is_too_large:
            raise AnswerTooLarge("more than is read")
        return Reply(text='{"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": ""}')


def ask_once(base: Path, **entry: Any) -> None:
    register_provider("asked", Asked)
    make_org(
        base,
        resume("ada", model={"key": "asked"}, turn={"repairs": 0}),
        models={"asked": {"provider": "asked", **entry}},
    )


def test_an_answer_too_large_to_be_read_costs_what_it_may_have_cost(base: Path) -> None:
    Asked.is_too_large = True
    ask_once(base, per_call=0, per_1k_output_tokens=1, max_output_tokens=3000)
    (turn,) = run_once(base).turns
    Asked.is_too_large = False
    assert (turn.status, turn.output_tokens, turn.credits) == ("failed", 3000, 3.0)


def test_a_seed_is_that_of_its_place_and_of_no_other(base: Path, tmp_path: Path) -> None:
    Asked.seeds.clear()
    for folder in (base, tmp_path / "same"):
        ask_once(folder)
        run_once(folder)
        run_once(folder)
    first, second, again, again_second = Asked.seeds
    assert (first, second) == (again, again_second)
    assert first != second
