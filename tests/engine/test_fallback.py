"""`model.fallback`: who is asked in the place of a model that gives no answer, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_into, replay_ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.org.config import load_config
from lemming.queries.org_validation import validate_agents
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

USAGE = {"input_tokens": 1000, "output_tokens": 100}


def scripted(name: str, **entry: Any) -> dict[str, Any]:
    return {"provider": "scripted", "model": name, "options": {"file": f"config/{name}.jsonl"}, "attempts": 1, **entry}


def fallback_org(base: Path, *fallback: str, scripts: dict[str, Json], **blocks: Any) -> Path:
    """Make an organisation of one agent, each of whose models says what its script does."""
    models = {name: scripted(name) for name in scripts}
    models["other"] = scripted("other", per_call=3)
    for name, line in {"other": {"reply": say("from the other"), **USAGE}, **scripts}.items():
        fs.make_root(base)
        fs.write_atomic(base, f"config/{name}.jsonl", f"{dump_pretty(line).decode().replace(chr(10), ' ')}\n".encode())
    ada = resume("ada", model={"key": "fast", "fallback": [*fallback]}, **blocks)
    return make_org(base, ada, models=models)


def turn_of(base: Path) -> TurnReport:
    return run_once(base, clock=FrozenClock()).turns[0]


def record_of(base: Path, kind: str) -> Json:
    return next(record for record in journal_lines(base, 1) if record["type"] == kind)


@pytest.mark.parametrize(
    "error", ["Unavailable", "RateLimited", "TimedOut", "AuthenticationFailed", "UnknownModel", "RequestRejected"]
)
def test_a_fallback_answers_for_a_model_that_does_not_and_is_paid_for_as_itself(base: Path, error: str) -> None:
    turn = turn_of(fallback_org(base, "other", scripts={"fast": {"error": error}}))
    assert (turn.status, turn.calls, turn.credits) == ("done", 1, 3.0)
    replied = record_of(base, "model_replied")
    assert (replied["key"], replied["model"], replied["attempts"]) == ("other", "other", 2)
    assert [failed["error"] for failed in replied["earlier"]] == [error]


def test_a_model_that_answers_is_the_only_one_asked(base: Path) -> None:
    turn = turn_of(fallback_org(base, "other", scripts={"fast": {"reply": say("from the fast one")}}))
    assert (turn.status, turn.credits) == ("done", 1.0)
    assert {"key", "attempts", "earlier"} & record_of(base, "model_replied").keys() == set()


def test_a_reply_that_is_not_the_contract_is_corrected_by_the_same_model(base: Path) -> None:
    turn = turn_of(fallback_org(base, "other", scripts={"fast": {"reply": "not the contract"}}))
    assert (turn.status, turn.calls, turn.error) == ("failed", 2, "ContractError")


def test_an_agent_without_credits_asks_nobody(base: Path) -> None:
    scripts = {"fast": {"error": "Unavailable"}}
    turn = turn_of(fallback_org(base, "other", scripts=scripts, credits={"max_credits": 0}))
    assert (turn.status, turn.error) == ("skipped", "OutOfCredits")


def test_a_fallback_that_cannot_be_paid_for_is_passed_over(base: Path) -> None:
    scripts = {"fast": {"error": "Unavailable"}, "cheap": {"reply": say("from the cheap one")}}
    turn = turn_of(fallback_org(base, "other", "cheap", scripts=scripts, credits={"max_credits": 2}))
    assert (turn.status, turn.credits) == ("done", 1.0)
    replied = record_of(base, "model_replied")
    assert replied["key"] == "cheap"
    assert [failed["error"] for failed in replied["earlier"]] == ["Unavailable", "OutOfCredits"]


def test_when_nobody_answers_what_may_help_later_stands_and_the_others_are_told(base: Path) -> None:
    scripts = {"fast": {"error": "Unavailable"}, "cheap": {"error": "AuthenticationFailed"}}
    turn = turn_of(fallback_org(base, "nowhere", "cheap", scripts=scripts))
    assert (turn.status, turn.error) == ("failed", "Unavailable")
    failed = record_of(base, "model_failed")
    assert [it["error"] for it in failed["earlier"]] == ["UnknownModel", "AuthenticationFailed"]


@pytest.mark.parametrize("error", [{"error": "Unavailable"}, {"reply": say("well")}])
def test_a_replay_asks_nobody_and_comes_to_the_same_costs(base: Path, error: Json, tmp_path: Path) -> None:
    scripts: dict[str, Json] = {"fast": {"error": "Unavailable"}, "cheap": error}
    org = fallback_org(base, "cheap", scripts=scripts)
    turn = turn_of(org)
    fs.write_atomic(base, "config/cheap.jsonl", b'{"reply": "something else"}\n')
    assert [replayed.turns for replayed in replay_ticks(org, [1])] == [1]
    again = tmp_path / "again"
    assert [replayed.turns for replayed in replay_into(org, again, [1])] == [1]
    assert fs.read_bytes(again / "agents/ada/turns.jsonl", 1 << 20) == fs.read_bytes(
        org / "agents/ada/turns.jsonl", 1 << 20
    )
    assert turn.credits == (1.0 if turn.status == "done" else 0.0)


@pytest.mark.parametrize(
    ("fallback", "about"),
    [
        (["fast"], '"fast" has already been tried'),
        (["other", "other"], '"other" has already been tried'),
        (["othr"], 'model key "othr" does not exist'),
        (["human"], '"human" is not a model'),
        (["plan"], '"plan" is not a model'),
        (["values"], 'got "values"'),
    ],
)
def test_validate_names_a_fallback_that_helps_nobody(base: Path, fallback: list[str], about: str) -> None:
    org = fallback_org(base, *fallback, scripts={"fast": {"error": "Unavailable"}})
    models = {"fast": scripted("fast"), "other": scripted("other"), "values": scripted("other", prompt="values")}
    fs.write_atomic(base, "config/models.json", dump_pretty(models))
    (problem,) = validate_agents(org, load_config(org), None)
    assert about in problem.message
    assert problem.severity == "error"
    assert problem.pointer.startswith("/model/fallback/")
    assert problem.line
