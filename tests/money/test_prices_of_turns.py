"""What turns cost in dollars: by the prices of their model's line; None where no price is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.journal.ledger import read_state
from lemming.testing import Crash, make_org, resume, say

SCRIPT = {"file": "config/answers.jsonl"}


def make_priced(base: Path, *, script: list[dict[str, Any]], **prices: Any) -> Path:
    """Make an organisation of one agent whose model has these prices."""
    entry = {"provider": "scripted", "options": SCRIPT, **prices}
    return make_org(base, resume("ada", model={"key": "priced"}), script=script, models={"priced": entry})


def test_tokens_have_their_price_and_an_unknown_price_is_null(base: Path) -> None:
    priced = {
        "provider": "scripted",
        "options": {"file": "config/answers.jsonl"},
        "per_call": 0,
        "per_1k_input_tokens": 2,
        "per_1k_output_tokens": 4,
        "usd_per_million_input_tokens": 1,
        "usd_per_million_output_tokens": 10,
    }
    script = [{"reply": say("hi"), "input_tokens": 500, "output_tokens": 250}]
    make_org(base, resume("ada", model={"key": "priced"}), resume("bob"), script=script, models={"priced": priced})
    ada, bob = run_once(base).turns
    assert (ada.credits, ada.cost_usd) == (2.0, 0.003)
    assert (bob.credits, bob.cost_usd) == (1.0, None)
    assert read_state(base, "bob").cost_usd is None


DOLLARS = {"usd_per_million_input_tokens": 1, "usd_per_million_output_tokens": 10}
TOKENS = {"input_tokens": 500, "output_tokens": 250}


def test_a_tick_with_one_call_of_unknown_price_costs_nobody_knows_what(base: Path) -> None:
    priced = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, **DOLLARS}
    ada = resume("ada", model={"key": "priced"})
    make_org(base, ada, resume("bob"), script=[{"reply": say("hi"), **TOKENS}], models={"priced": priced})
    report = run_once(base)
    assert [turn.cost_usd for turn in report.turns] == [0.003, None]
    assert report.totals["cost_usd"] is None


@pytest.mark.parametrize("known", DOLLARS)
def test_a_call_of_which_only_half_the_price_is_known_has_none(base: Path, known: str) -> None:
    make_priced(base, script=[{"reply": say("hi"), **TOKENS}], **{known: 1})
    (turn,) = run_once(base).turns
    assert (turn.status, turn.cost_usd) == ("done", None)


def test_a_turn_whose_price_was_taken_away_half_way_has_none_and_the_ledger_the_known_half(base: Path) -> None:
    look = {"tool": "memory_read", "args": {"key": "k"}}
    make_priced(base, script=[{"reply": say("looking", tool_calls=[look]), **TOKENS}], **DOLLARS)
    file = base / "agents/ada/resume.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "turn": {"max_steps": 2}}))

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.call == 1:
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=die)
    models = json.loads((base / "config/models.json").read_bytes())
    models["priced"] = {key: value for key, value in models["priced"].items() if key not in DOLLARS}
    (base / "config/models.json").write_text(json.dumps(models))
    (turn,) = run_once(base).turns
    assert (turn.calls, turn.cost_usd) == (2, None)
    state = read_state(base, "ada")
    assert (state.cost_usd, state.unpriced_calls) == (0.003, 1)


def test_a_fallback_costs_what_its_own_line_says(base: Path) -> None:
    other = {"provider": "scripted", "options": SCRIPT, **DOLLARS}
    gone = {"provider": "scripted", "options": {"file": "config/gone.jsonl"}, "attempts": 1}
    ada = resume("ada", model={"key": "gone", "fallback": ["other"]})
    base.mkdir(exist_ok=True)
    make_org(base, ada, script=[{"reply": say("hi"), **TOKENS}], models={"gone": gone, "other": other})
    (base / "config/gone.jsonl").write_text('{"error": "Unavailable"}\n')
    (turn,) = run_once(base).turns
    assert (turn.status, turn.cost_usd) == ("done", 0.003)
