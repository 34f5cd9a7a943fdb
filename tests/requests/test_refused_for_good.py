"""What is refused for good fails its request: who asked goes on, and nobody is asked again in every tick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, person, tried_once

from lemming.client.ask_client import ask as put
from lemming.engine import ticks
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TickReport
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.obligations.org_requests import load_requests
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

Json = dict[str, Any]
NOTHING: Json = {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": ""}
FOR_GOOD = ["RequestRejected", "UnknownModel", "AuthenticationFailed"]
TRANSIENT = ["Unavailable", "RateLimited", "TimedOut"]


def org(base: Path, error: str, *steps: Json, parallel: int = 8) -> Path:
    """Make an organisation in which lead, or the plan `plan`, asks bob, whose provider says no."""
    quiet = {"schedule": {"wake": "addressed"}}
    asks = {**NOTHING, "tool_calls": [{"tool": "ask_bob", "args": {"message": "do it"}}]}
    make_org(
        base,
        person(),
        resume("lead", team={"ask": ["bob"]}, **quiet),
        resume("bob", **quiet),
        resume("ann", **quiet),
        resume("plan", model={"key": "plan"}),
        script=[
            {"agent": "bob", "error": error},
            {"agent": "lead", "contains": "FAILED", "reply": say("bob cannot", kind="response")},
            {"agent": "lead", "reply": asks},
            {"reply": say("ann can", kind="response")},
        ],
        models={"human": {"provider": "human"}},
        org={"max_parallel": parallel},
    )
    fs.write_atomic(base, "agents/plan/plan.json", dump_pretty({"steps": [*steps]}))
    return tried_once(base)


def run(base: Path, number: int = 8) -> list[TickReport]:
    return list(ticks(base, clock=FrozenClock(), interval_s=0, max_ticks=number))


def attempts(base: Path, name: str = "bob") -> int:
    """Return how often a model was asked for an agent and gave nothing."""
    lines = (line for tick in journal_ticks(base) for line in journal_lines(base, tick))
    return sum(line["type"] == "model_failed" and line["agent"] == name for line in lines)


@pytest.mark.parametrize("error", FOR_GOOD)
def test_who_asked_is_told_and_goes_on(base: Path, error: str) -> None:
    org(base, error)
    request = ask(base, "lead")
    reports = run(base)
    assert attempts(base) == 1
    assert answers(base, "lead")[request.id]["text"] == "bob cannot"
    (said,) = answers(base, "bob").values()
    assert (said["status"], error in said["text"]) == ("failed", True)
    (turn,) = [it for report in reports for it in report.turns if it.agent == "bob" and it.error]
    assert (turn.status, turn.error, len(turn.entries)) == ("failed", error, 1)
    assert read_state(base, "bob").requests == ()
    assert [it.tick for it in replay_ticks(base, journal_ticks(base))] == journal_ticks(base)


@pytest.mark.parametrize("error", TRANSIENT)
def test_what_may_help_later_is_tried_again(base: Path, error: str) -> None:
    org(base, error)
    ask(base, "lead")
    run(base)
    assert attempts(base) > 3
    assert answers(base, "bob") == {}


STEP = {"name": "work", "ask": "bob", "task": "go"}
OTHER = {"name": "other", "ask": "ann", "task": "then you"}


@pytest.mark.parametrize("parallel", [1, 8])
def test_attempts_and_on_failure_of_a_plan_are_reached(base: Path, parallel: int) -> None:
    org(base, "RequestRejected", {**STEP, "attempts": 3, "on_failure": "other"}, OTHER, parallel=parallel)
    request = ask(base, "plan")
    run(base, 16)
    assert attempts(base) == 3
    assert answers(base, "plan")[request.id]["text"] == "ann can"


def test_who_asks_a_plan_waits_through_its_attempts(base: Path) -> None:
    org(base, "RequestRejected", {**STEP, "attempts": 3, "on_failure": "other"}, OTHER)
    assert put(base, "plan", "go", clock=FrozenClock()).answer == "ann can"
    assert attempts(base) == 3


def test_a_plan_without_a_way_out_fails_with_the_reason(base: Path) -> None:
    org(base, "UnknownModel", STEP)
    request = ask(base, "plan")
    run(base)
    assert "UnknownModel" in answers(base, "plan")[request.id]["text"]
    assert not load_requests(base).requests.unresolved_requests


def test_who_is_asked_directly_says_why(base: Path) -> None:
    org(base, "AuthenticationFailed")
    outcome = put(base, "bob", "hello", clock=FrozenClock())
    assert (outcome.end, outcome.error) == ("failed", "AuthenticationFailed")
    assert "AuthenticationFailed" in outcome.reason


def test_a_fallback_that_may_answer_later_keeps_the_request_open(base: Path) -> None:
    org(base, "RequestRejected")
    models = fs.read_bytes(f"{base}/config/models.json", 1 << 20)
    plain = resume("bob", schedule={"wake": "addressed"}, model={"key": "gpt", "fallback": ["down"]})
    host = {"host": "http://127.0.0.1:9"}
    more = {"down": {"provider": "ollama", "model": "none", "options": host, "attempts": 1}}
    known = parse(models)
    plain["model"]["key"] = next(iter(key for key in known if key not in ("human", "plan")))
    fs.write_atomic(base, "config/models.json", dump_pretty({**known, **more}))
    fs.write_atomic(base, "agents/bob/resume.json", dump_pretty(plain))
    ask(base, "bob")
    run(base, 2)
    assert answers(base, "bob") == {}


def test_the_files_are_the_same_however_many_turns_run_at_once(tmp_path: Path) -> None:
    trees = []
    for parallel in (1, 8):
        base = org(tmp_path / str(parallel), "RequestRejected", STEP, parallel=parallel)
        for name in ("lead", "plan", "bob"):
            ask(base, name)
        run(base)
        trees.append({path: raw for path, raw in tree(base).items() if path != "config/org.json"})
    assert trees[0] == trees[1]


@pytest.mark.parametrize("take", [None, "all", "one"])
def test_a_request_that_is_only_said_fails_too_and_is_not_shown_again(base: Path, take: str | None) -> None:
    bob = resume("bob", turn={"take": take} if take else {})
    script = [{"agent": "bob", "error": "AuthenticationFailed"}]
    make_org(base, person(), bob, script=script, models={"human": {"provider": "human"}})
    tried_once(base)
    asked = {"text": "do it", "target": "bob"}
    sent = write_person_entry(
        base, "human", tick=1, kind="request", payload=asked, tags=[], created_at="2026-01-01T00:00:00Z"
    )
    run(base, 3)
    (said,) = (entry.payload for entry in read_outbox_entries(base, "bob"))
    assert (said["status"], said["reply_to"], said["target"]) == ("failed", sent.id, "human")
    assert "AuthenticationFailed" in said["text"]
    assert not load_requests(base).requests.unresolved_requests
    assert [it.tick for it in replay_ticks(base, journal_ticks(base))] == journal_ticks(base)


def test_half_of_an_answer_is_not_written_where_the_rest_is_refused(base: Path) -> None:
    half = {**say("half", kind="status"), "tool_calls": [{"tool": "list_agents", "args": {}}]}
    script = [{"agent": "bob", "step": 0, "reply": half}, {"agent": "bob", "error": "AuthenticationFailed"}]
    bob = resume("bob", turn={"take": "all", "max_steps": 2})
    make_org(base, person(), bob, script=script, models={"human": {"provider": "human"}})
    tried_once(base)
    ask(base, "bob")
    run(base, 2)
    assert [entry.payload["status"] for entry in read_outbox_entries(base, "bob")] == ["failed"]
