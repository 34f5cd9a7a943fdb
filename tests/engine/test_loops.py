"""The loop breaker: turns that come to the same and no further are told of, and then end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.agents import load_agent
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.operations.agent_pause import unpause_agent as unpause
from lemming.queries.checks.check_registry import CheckRun
from lemming.queries.checks.file_checks import CHECKS
from lemming.testing import FrozenClock, make_org, resume, say, tree

BAD = {"reply": "not the contract"}
WARNED = "came to the same and no further"
FAILED = "4 of its turns failed in the same way (ContractError)"


def run(base: Path, ticks: int) -> list[TickReport]:
    return [run_once(base, clock=FrozenClock()) for _ in range(ticks)]


def calls_in(reports: list[TickReport]) -> list[int]:
    return [sum(turn.calls for turn in report.turns) for report in reports]


def prompt_of(base: Path, tick: int) -> str:
    return load_tick_record(base, tick).turns[0].prompt[-1]["content"]


def reads(path: str) -> dict[str, Any]:
    return {"outbox_entries": [], "tool_calls": [{"tool": "file_read", "args": {"path": path}}]}


READER = {"permissions": {"read_outboxes": [], "tools": ["file_read"]}}


def test_an_agent_whose_turns_fail_in_the_same_way_is_paused_at_the_fourth(base: Path) -> None:
    make_org(base, resume("ada"), script=[BAD])
    reports = run(base, 6)
    assert calls_in(reports) == [2, 2, 2, 2, 0, 0]
    assert [report.turns[0].stopped for report in reports[:4]] == ["", "", "", FAILED]
    assert load_agent(base, "ada").paused == f"since tick 4 by the loop breaker: {FAILED}"


def test_it_is_told_in_a_message_of_its_own_before(base: Path) -> None:
    make_org(base, resume("ada"), script=[BAD])
    run(base, 4)
    assert [WARNED in prompt_of(base, tick) for tick in (1, 2, 3, 4)] == [False, False, False, True]
    assert "WARNING: 3 of your turns" in prompt_of(base, 4)


def test_a_replay_agrees_about_the_loop(base: Path) -> None:
    make_org(base, resume("ada"), script=[BAD])
    run(base, 5)
    assert [replayed.turns for replayed in replay_ticks(base, [1, 2, 3, 4])] == [1, 1, 1, 1]


def test_a_turn_that_comes_further_has_the_count_begin_anew(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"tick": 3, "reply": say("well")}, BAD])
    reports = run(base, 8)
    assert [bool(report.turns[0].stopped) for report in reports] == [*[False] * 6, True, False]


def test_who_lets_the_agent_go_on_gives_it_as_many_turns_as_before(base: Path) -> None:
    make_org(base, resume("ada"), script=[BAD])
    run(base, 4)
    unpause(base, "ada")
    assert calls_in(run(base, 5)) == [2, 2, 2, 2, 0]


def test_a_call_that_fails_as_before_in_each_turn_is_a_loop(base: Path) -> None:
    make_org(base, resume("ada", **READER), script=[{"reply": reads("./workspace/none.txt")}])
    reports = run(base, 20)
    assert sum(calls_in(reports)) <= 16
    assert "refused or failed as before" in load_agent(base, "ada").paused


def test_an_agent_that_alternates_between_two_failures_is_in_a_loop(base: Path) -> None:
    denied = {"outbox_entries": [], "tool_calls": [{"tool": "shell", "args": {}}]}
    script = [{"tick": tick, **BAD} for tick in range(1, 20, 2)]
    make_org(base, resume("ada", **READER), script=[*script, {"reply": denied}])
    reports = run(base, 10)
    assert [bool(report.turns[0].stopped) for report in reports].index(True) == 6


def test_settings_say_when_and_a_resume_says_it_for_its_agent(base: Path) -> None:
    early = resume("ada", loops={"stop_after": 2})
    org = {"loops": {"warn_after": 2, "stop_after": 3}}
    make_org(base, early, resume("bob"), script=[BAD], org=org)
    reports = run(base, 4)
    stopped = {turn.agent: report.tick for report in reports for turn in report.turns if turn.stopped}
    assert stopped == {"ada": 2, "bob": 3}


def test_who_sets_only_when_a_loop_ends_has_the_agent_told_before(base: Path) -> None:
    make_org(base, resume("ada", loops={"warn_after": 9, "stop_after": 3}), script=[BAD])
    run(base, 4)
    assert [WARNED in prompt_of(base, tick) for tick in (1, 2, 3)] == [False, False, True]


HEALTHY = {
    "the same report each tick": say("nothing new", kind="report"),
    "nothing at all": {"outbox_entries": []},
    "the same file read each tick": reads("./workspace/list.txt"),
}


@pytest.mark.parametrize("reply", HEALTHY.values(), ids=HEALTHY)
def test_an_agent_that_does_the_same_for_a_reason_is_not_paused(base: Path, reply: dict[str, Any]) -> None:
    make_org(base, resume("ada", turn={"max_steps": 2}, **READER), script=[{"step": 0, "reply": reply}])
    workspace = base / "agents/ada/workspace"
    workspace.mkdir(parents=True)
    (workspace / "list.txt").write_text("nothing yet")
    script = [{"step": 0, "reply": reply}, {"reply": {"outbox_entries": []}}]
    (base / "config/answers.jsonl").write_text("".join(f"{_line(it)}\n" for it in script))
    reports = run(base, 12)
    assert all(calls_in(reports))
    assert load_agent(base, "ada").paused == ""


def _line(line: dict[str, Any]) -> str:
    from lemming.kernel.base.jsontext import to_line

    return to_line(line)


def test_what_goes_wrong_for_requests_fails_these_and_pauses_nobody(base: Path) -> None:
    one = {"turn": {"take": "one"}, "schedule": {"wake": "addressed"}}
    people = {"human": {"provider": "human"}}
    loops = {"warn_after": 2, "stop_after": 2}
    human = resume("human", model={"key": "human"})
    make_org(base, resume("ada", **one), human, script=[BAD], models=people, org={"loops": loops})
    for text in ("one", "two"):
        payload = {"text": text, "target": "ada"}
        write_person_entry(base, "human", tick=1, kind="request", payload=payload, tags=[], created_at="")
    run(base, 7)
    assert load_agent(base, "ada").paused == ""
    ends = [it.payload["status"] for it in read_outbox_entries(base, "ada") if it.kind == "response"]
    assert ends == ["failed", "failed"]


def test_a_model_that_is_away_is_no_loop(base: Path) -> None:
    model = {"provider": "scripted", "attempts": 1, "options": {"file": "config/answers.jsonl"}}
    script = [{"error": "Unavailable"}]
    make_org(base, resume("ada"), script=script, models={"scripted": model})
    run(base, 8)
    assert load_agent(base, "ada").paused == ""
    assert read_state(base, "ada").loops == {}


def test_who_is_due_is_paused_alike_however_many_turns_run_at_once(tmp_path: Path) -> None:
    found = []
    for name, executor in (("one", "serial"), ("many", "threads")):
        base = tmp_path / name
        agents = [resume(agent, permissions={"read_outboxes": []}) for agent in ("ada", "bob", "cyd")]
        make_org(base, *agents, script=[BAD], org={"executor": executor})
        run(base, 5)
        files = tree(base)
        found.append({name: files[name] for name in files if name.endswith(("resume.json", "turns.jsonl"))})
    assert found[0] == found[1]


def to(target: Any, text: str = "hello") -> dict[str, Any]:
    entry = {"kind": "message", "payload": {"text": text, "target": target}, "tags": []}
    return {"outbox_entries": [entry]}


def test_an_entry_to_an_agent_that_is_not_there_is_said_with_the_nearest_name(base: Path) -> None:
    make_org(base, resume("ann"), resume("bob"), script=[{"agent": "ann", "reply": to("bobb")}, {"reply": {}}])
    ann = run_once(base).turns[0]
    assert ann.remarks == ['outbox_entries: there is no agent "bobb": did you mean "bob"?']
    assert (ann.status, len(ann.entries), ann.calls) == ("done", 1, 1)
    run_once(base)
    assert 'there is no agent "bobb": did you mean "bob"?' in prompt_of(base, 2)
    assert [replayed.turns for replayed in replay_ticks(base, [1, 2])] == [2, 2]


def test_an_agent_that_goes_on_writing_to_nobody_is_paused(base: Path) -> None:
    make_org(base, resume("ann"), resume("bob"), script=[{"agent": "ann", "reply": to("bobb")}, {"reply": say("")}])
    run(base, 6)
    assert load_agent(base, "ann").paused.endswith("4 of its turns wrote the same to agents that there are not")
    assert load_agent(base, "bob").paused == ""


@pytest.mark.parametrize("target", ["bob", "BOB ", "*", "all", "ann", ["bob", "ann"]])
def test_a_target_that_names_somebody_or_all_is_no_slip(base: Path, target: Any) -> None:
    make_org(base, resume("ann"), resume("bob"), script=[{"agent": "ann", "reply": to(target)}, {"reply": say("")}])
    assert run_once(base).turns[0].remarks == []


def test_validate_says_whom_an_entry_did_not_reach(base: Path) -> None:
    script = [{"agent": "ann", "reply": to("bobb")}, {"reply": say("")}]
    make_org(base, resume("ann"), resume("bob"), script=script)
    run_once(base)
    check = next(check for check in CHECKS if check.name == "targets")
    (problem,) = check.find(CheckRun(Organisation.from_path(base)))
    assert problem.message == 'ann wrote to "bobb", but there is no agent "bobb": did you mean "bob"?'
    assert problem.severity == "warning"
