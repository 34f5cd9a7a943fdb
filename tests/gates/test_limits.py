"""Limits: gates at `spend` let no call be made that could exceed them, however it comes to be made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from limited import HELLO, calls, limited, spend, turns

from lemming.capabilities.gates.spending_limit import LimitWindow
from lemming.capabilities.gates.tick_spending import SpendingHistory
from lemming.capabilities.pricing.prices import max_call_cost
from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_into
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.llm.call_cost import max_input_tokens
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Image, Request
from lemming.queries.org_validation import validate_agents, validate_config
from lemming.testing import Crash, FrozenClock, journal_lines, resume, say


@pytest.mark.parametrize("per", ["agent", "organisation"])
@pytest.mark.parametrize(("limit", "made"), [(2, 2), (2.999999, 2), (3, 3), (3.000001, 3)])
def test_a_limit_is_reached_exactly(base: Path, per: str, limit: float, made: int) -> None:
    limited(base, spend(credits=limit, per=per))
    assert sum(calls(base, 5)) == made
    assert read_state(base, "ada").credits == made


def test_a_call_that_is_not_made_is_told_with_the_line_that_says_so(base: Path) -> None:
    limited(base, spend(credits=1, per="agent", because="ask Ada for more"))
    assert calls(base, 1) == [1]
    turn = turns(base)["ada"]
    assert (turn.status, turn.end, turn.error, turn.calls) == ("skipped", "out_of_credits", "LimitReached", 0)
    assert turn.reason == "a gate does not let it pass: ask Ada for more (config/org.json#/gates/0)"
    (verdict,) = turn.verdicts
    assert verdict == {
        "line": "config/org.json#/gates/0", "at": "spend", "then": "block", "about": "call 0",
        "why": "ask Ada for more",
        "amounts": {"unit": "credits", "spent": 1.0, "limit": 1.0, "call": 1.0},
    }  # fmt: skip
    failed = next(line for line in journal_lines(base, 2) if line["type"] == "model_failed")
    assert (failed["error"], failed["code"], failed["verdicts"]) == ("LimitReached", "LMG-702", [verdict])


def test_what_is_spent_on_the_way_is_counted_before_each_call(base: Path) -> None:
    """Corrections, steps, a critic of another model and a fallback: no call exceeds."""
    look = say("more", tool_calls=[{"tool": "list_agents", "args": {}}])
    script = [
        {"agent": "bad", "reply": "no"},
        {"agent": "steps", "reply": look},
        {"contains": "Judge the draft", "reply": {"passes": False, "reason": "longer"}},
        *HELLO,
    ]
    agents = [
        resume("bad", turn={"repairs": 4}),
        resume("falls", model={"key": "down", "fallback": ["priced"]}),
        resume("judged", turn={"strategy": "reflexion", "options": {"model": "other", "rounds": 4}}),
        resume("steps", turn={"max_steps": 5}),
    ]
    for number, limit in enumerate((1, 2, 3, 4, 7, 11), 1):
        org = limited(base / str(number), spend(calls=limit, per="organisation"), agents=agents, script=script)
        made = sum(turn.calls for _ in range(3) for turn in turns(org).values())
        assert made == limit


@pytest.mark.parametrize("per", ["turn", "agent", "organisation"])
def test_calls_are_limited_as_credits_are(base: Path, per: str) -> None:
    looks = [[{"tool": "memory_read", "args": {"key": f"of {tick}"}}] for tick in (1, 2, 3)]
    script = [{"tick": tick, "reply": say("more", tool_calls=look)} for tick, look in enumerate(looks, start=1)]
    ada = resume("ada", turn={"max_steps": 5})
    limited(base, spend(calls=3, per=per), agents=[ada], script=script)
    turn = turns(base)["ada"]
    assert (turn.status, turn.end, turn.calls) == ("waiting", "out_of_credits", 3)
    assert turn.reason.startswith("a gate does not let it pass: 3 calls of 3 calls per")
    assert calls(base, 2) == ([3, 3] if per == "turn" else [0, 0])


def test_tokens_are_limited_by_what_a_question_and_its_answer_can_have(base: Path) -> None:
    """Whatever model it is, and without a price."""
    ada = resume("ada", model={"key": "other"})
    script = [{"reply": say("hello"), "input_tokens": 1000, "output_tokens": 100}]
    limited(base, spend(tokens=9_000, per="agent"), agents=[ada], script=script)
    ran = [turns(base)["ada"] for _ in range(6)]
    state = read_state(base, "ada")
    made = sum(turn.calls for turn in ran)
    assert state.input_tokens + state.output_tokens == 1100 * made
    assert 0 < made < 6
    assert [turn.calls for turn in ran] == [1] * made + [0] * (6 - made)
    assert f"{1100 * made} tokens of 9000 tokens per agent are spent, and the call can cost " in ran[-1].reason
    assert run(["-C", str(base), "replay"]) == 0


@pytest.mark.parametrize("tokens", [3_071, 3_072])
def test_a_limit_that_lets_nobody_be_asked_is_named(base: Path, tokens: int) -> None:
    limited(base, spend(tokens=tokens, per="turn"))
    told = [it for it in validate_config(base, load_config(base)) if it.pointer == "/gates/0/tokens"]
    assert [it.message for it in told] == ["a limit of 3071 tokens blocks every call of scripted"] * (tokens < 3_072)


def test_the_worst_case_of_a_call_is_reserved_and_what_it_cost_is_counted(base: Path) -> None:
    """A prompt has no more tokens than bytes; an answer no more than it may."""
    ada = resume("ada", model={"key": "priced"}, turn={"repairs": 0})
    limited(base, spend(dollars=0.03, per="agent"), agents=[ada])
    ran = [turns(base)["ada"] for _ in range(60)]
    spent = read_state(base, "ada").cost_usd
    assert spent is not None
    assert 0.005 < spent <= 0.03
    asked = [turn.calls for turn in ran]
    assert asked == sorted(asked, reverse=True)
    assert ran[-1].calls == 0


def test_a_limit_in_dollars_refuses_a_model_without_a_price_by_name(base: Path) -> None:
    limited(base, spend(dollars=100, per="organisation"))
    turn = turns(base)["ada"]
    assert turn.calls == 0
    assert 'the price of model "scripted" is unknown' in turn.reason
    assert "config/org.json#/gates/0" in turn.reason


def test_only_allowed_models_are_asked(base: Path) -> None:
    ada = resume("ada", model={"key": "down", "fallback": ["other", "priced"]})
    limited(base, spend(models=["down", "priced"]), agents=[ada, resume("bob")])
    ran = turns(base)
    assert ran["ada"].model == "priced"
    assert [verdict["why"] for verdict in ran["ada"].verdicts] == ['"other" is none of the models down, priced']
    assert (ran["bob"].status, ran["bob"].calls) == ("skipped", 0)


def test_a_window_lets_calls_be_made_again_once_it_has_passed(base: Path) -> None:
    limited(base, spend(calls=2, per="organisation", window={"ticks": 4}))
    assert calls(base, 10) == [1, 1, 0, 0, 1, 1, 0, 0, 1, 1]


def test_a_window_of_hours_goes_by_the_readings_of_ticks(base: Path) -> None:
    limited(base, spend(calls=2, per="agent", window="2h"))
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    made = []
    for minutes in (0, 30, 60, 119, 121, 150, 152, 300):
        (turn,) = run_once(base, clock=FrozenClock(noon + timedelta(minutes=minutes))).turns
        made.append(turn.calls)
    assert made == [1, 1, 0, 0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("window", "at", "is_within"),
    [
        (None, "2030-01-01T12:00:00.000Z", True),
        (LimitWindow(seconds=3600), "2026-01-01T13:00:00.000Z", True),
        (LimitWindow(seconds=3600), "2026-01-01T13:00:00.001Z", False),
        (LimitWindow(ticks=2), "2026-01-01T12:00:00.000Z", True),
        (LimitWindow(ticks=1), "2026-01-01T12:00:00.000Z", False),
    ],
)
def test_what_a_person_gave_counts_as_long_as_its_request_is_in_the_window(
    base: Path, window: LimitWindow | None, at: str, is_within: bool
) -> None:
    limited(base, spend(calls=2, per="agent"))
    run_once(base, clock=FrozenClock(datetime(2026, 1, 1, 12, tzinfo=UTC)))
    spent = Organisation.from_path(base).get_cache(SpendingHistory)
    assert spent.is_in_window(window, "ada/00000001_x", 2, at) is is_within


def test_a_window_that_reaches_beyond_the_journals_lets_nothing_pass(base: Path) -> None:
    limited(base, spend(calls=100, per="agent", window={"ticks": 50}), plain_journals=0)
    assert calls(base, 3) == [1, 1, 1]
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": 120}))
    assert calls(base, 2) == [1, 1]
    for path in (base / "logs/ticks").rglob("*.*"):
        if path.name < "00000120":
            path.unlink()
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": 130}))
    turn = turns(base)["ada"]
    assert turn.calls == 1  # tick 3, the one before 120, lies before the window
    (base / "logs/ticks/00000120.jsonl").unlink()
    turn = turns(base)["ada"]
    assert turn.calls == 0
    assert "what was spent is not known: journals go back to tick 121 only" in turn.reason


def test_a_warning_is_told_and_hinders_nothing(base: Path) -> None:
    limited(base, spend("warn", credits=1, per="agent"), spend(credits=2, per="agent"))
    ran = [turns(base)["ada"] for _ in range(3)]
    assert [turn.calls for turn in ran] == [1, 1, 0]
    assert [[(it["then"], it["line"][-1]) for it in turn.verdicts] for turn in ran] == [
        [], [("warn", "0")], [("warn", "0"), ("block", "1")],
    ]  # fmt: skip


def test_a_gate_that_passes_comes_before_a_limit(base: Path) -> None:
    boss = {"field": "agent", "op": "is", "value": "bob"}
    limited(base, spend("pass", when=boss), spend(calls=1, per="organisation"), agents=["ada", "bob"])
    assert [[turn.calls for turn in turns(base).values()] for _ in range(3)] == [[1, 1], [0, 1], [0, 1]]


def test_stop_lets_the_turn_fail(base: Path) -> None:
    look = say("more", tool_calls=[{"tool": "list_agents", "args": {}}])
    ada = resume("ada", turn={"max_steps": 5})
    limited(base, spend("stop", calls=2, per="turn"), agents=[ada], script=[{"reply": look}])
    turn = turns(base)["ada"]
    assert (turn.status, turn.error, turn.calls, turn.entries) == ("failed", "StoppedByGate", 2, [])
    assert read_state(base, "ada").credits == 2


def test_a_condition_that_breaks_blocks(base: Path) -> None:
    limited(base, spend("warn", check="nobody_registered_it"))
    turn = turns(base)["ada"]
    assert turn.calls == 0
    assert "the gate broke" in turn.reason


def test_a_resume_has_limits_of_its_own_after_the_organisations(base: Path) -> None:
    ada = resume("ada", gates=[spend(calls=1, per="agent")])
    limited(base, spend(calls=5, per="organisation"), agents=[ada, "bob"])
    assert [[turn.calls for turn in turns(base).values()] for _ in range(5)] == [
        [1, 1], [0, 1], [0, 1], [0, 1], [0, 0],
    ]  # fmt: skip


def test_an_interrupted_turn_is_limited_by_what_it_has_spent(base: Path) -> None:
    look = say("more", tool_calls=[{"tool": "list_agents", "args": {}}])
    ada = resume("ada", turn={"max_steps": 5})
    limited(base, spend(calls=3, per="organisation"), agents=[ada, "bob"], script=[{"reply": look}])
    for call in (1, 2):
        with pytest.raises(Crash):
            run_once(base, clock=FrozenClock(), notify=dies_at(call))
    ran = turns(base)
    assert [turn.calls for turn in ran.values()] == [3, 0]


def dies_at(call: int) -> Any:
    def die(event: Event) -> None:
        if isinstance(event, ModelReplied) and event.call == call - 1:
            raise Crash

    return die


def test_limits_are_replayed_into_another_folder(base: Path, tmp_path: Path) -> None:
    limited(base, spend(calls=3, per="organisation"), spend("warn", calls=1, per="agent"), agents=["ada", "bob"])
    for _ in range(3):
        turns(base)
    assert [it.turns for it in replay_into(base, tmp_path / "again", [1, 2, 3])] == [2, 2, 2]


@pytest.mark.parametrize(
    ("gate", "wrong"),
    [
        ({"at": "out", "credits": 3, "per": "turn"}, 'require "at": "spend"'),
        ({"at": "spend", "credits": 3}, "per"),
        ({"at": "spend", "per": "turn"}, "per"),
        ({"at": "spend", "credits": 0, "per": "turn"}, "a number above 0"),
        ({"at": "spend", "calls": 1.5, "per": "turn"}, "a whole number"),
        ({"at": "spend", "credits": 3, "per": "turn", "window": "1d"}, "window"),
        ({"at": "spend", "credits": 3, "per": "agent", "window": "1 week"}, "expected a window"),
        ({"at": "spend", "credits": 3, "per": "agent", "window": {"ticks": 0}}, "expected a window"),
        ({"at": "spend", "redact": ["x"]}, "is not allowed in gates"),
        ({"at": "spend", "credits": 3, "per": "turn", "models": ["x"]}, 'a limit must stand without "models"'),
    ],
)
def test_a_limit_that_is_none_is_refused_where_it_stands(base: Path, gate: dict[str, Any], wrong: str) -> None:
    limited(base)
    fs.write_atomic(base, "config/org.json", dump_pretty({"gates": [{"then": "block", **gate}]}))
    with pytest.raises(ConfigError, match=wrong):
        load_config(base)


def test_validate_says_which_limits_cannot_hold(base: Path) -> None:
    gates = [
        spend(credits=3, per="agent", window={"ticks": 500}),
        spend(calls=3, per="organisation"),
        spend(credits=3, per="organisation", window="1d"),
        spend(models=["pricedd"]),
        spend(dollars=3, per="organisation", window={"ticks": 50}),
        spend(calls=3, per="request"),
    ]
    ada = resume("ada", model={"key": "priced", "fallback": ["other"]}, gates=[spend(dollars=1, per="turn")])
    human = resume("human", model={"key": "human"})
    limited(base, *gates, agents=[ada, human], kept_journals=100)
    config = load_config(base)
    found = {
        (it.file, it.pointer): it.message
        for it in (*validate_config(base, config), *validate_agents(base, config, None))
        if "/gates/" in it.pointer
    }
    unpriced = "a limit in dollars blocks models without a price: other"
    kept = "the 100 ticks whose journals are kept"
    assert found == {
        ("config/org.json", "/gates/0/window"): f"500 ticks is longer than {kept}",
        ("config/org.json", "/gates/1/window"): (
            "calls are counted from the first tick on, and journals of 100 ticks are kept"
        ),
        ("config/org.json", "/gates/2/window"): f"1 day is longer than {kept}",
        ("config/org.json", "/gates/3/models/0"): 'there is no model key "pricedd"',
        ("config/org.json", "/gates/4/dollars"): unpriced,
        ("agents/ada/resume.json", "/gates/0/dollars"): unpriced,
    }


def test_an_image_costs_something_in_the_worst_case_of_a_call() -> None:
    """No provider takes less than some hundred tokens for an image, or more than 20,000."""
    plain = Request(model_name="m", messages=[{"role": "user", "content": "what is it?"}])
    image = Image("image/png", "bm90")
    tokens = [max_input_tokens(plain._replace(images=(image,) * number)) for number in range(3)]
    assert tokens[1] - tokens[0] == tokens[2] - tokens[1] >= 5_000
    entry = ModelEntry(provider="x", per_1k_input_tokens=1.0)
    assert max_call_cost(entry, tokens[1]).credits > max_call_cost(entry, tokens[0]).credits + 5


def test_a_ledger_that_cannot_be_read_lets_nothing_be_spent_under_a_limit_for_all(base: Path) -> None:
    limited(base, spend(per="organisation", credits=9), agents=("ada", "bob"))
    assert [turn.calls for turn in turns(base).values()] == [1, 1]
    fs.write_atomic(base, "agents/bob/turns.jsonl", b"not a ledger\n")
    ada = turns(base)["ada"]
    assert (ada.calls, ada.error) == (0, "LimitReached")


def test_a_limit_in_dollars_names_programs_whose_runs_have_no_limit(base: Path) -> None:
    harness = {"provider": "harness", "options": {"command": ["true"]}}
    free = {"usd_per_million_input_tokens": 0, "usd_per_million_output_tokens": 0}
    priced = {"usd_per_million_input_tokens": 1, "usd_per_million_output_tokens": 1}
    keys = {"coder": {**harness, **priced}, "free": {**harness, **free}}
    agents = [resume(key, model={"key": key}) for key in keys]
    limited(base, spend(dollars=3, per="organisation"), agents=agents)
    models = parse((base / "config/models.json").read_bytes())
    fs.write_atomic(base, "config/models.json", dump_pretty({**models, **keys}))
    problems = [
        problem for problem in validate_config(base, load_config(base)) if problem.pointer == "/gates/0/dollars"
    ]
    assert [problem.message for problem in problems] == [
        "a limit in dollars blocks programs without options.max_cost_usd: coder"
    ]
