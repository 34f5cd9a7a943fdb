"""Plans in an organisation: what a run costs, what it waits for, what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import ask, tick
from planned import planned_org, step, write_plan

from lemming.engine import run_once
from lemming.engine import ticks as ticks_of
from lemming.journal_tools.repair.unknown_calls import find_unknown_calls, mark_call
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.memory import list_memories, load_memory
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.obligations.waiting_items import list_person_inbox
from lemming.testing import FrozenClock, resume, say, tree

SCRIPT: list[dict[str, Any]] = [
    {"agent": name, "reply": say(f"{name} says", kind="response")} for name in ("ada", "bob", "cyd", "dan")
]
FOUR = [
    step("facts", "ada"),
    step("draft", "bob", task="Write: {{previous}}"),
    step("review", "cyd", task="Judge: {{previous}}"),
    step("final", "dan", task="Finish: {{steps.draft}}, {{previous}}"),
]


def quiet_org(base: Path, *steps: dict[str, Any], **more: Any) -> Path:
    """Make an organisation in which nobody takes a turn unless it is asked."""
    planned_org(base, *steps, script=SCRIPT, **more)
    for name in ("ada", "bob", "cyd", "dan"):
        plain = resume(name, schedule={"wake": "addressed"})
        fs.write_atomic(base, f"agents/{name}/resume.json", dump_pretty(plain))
    return base


def run(base: Path, ticks: int) -> list[TickReport]:
    return [tick(base) for _ in range(ticks)]


def answers(base: Path, name: str = "desk") -> list[dict[str, Any]]:
    return [entry.payload for entry in read_outbox_entries(base, name) if entry.kind == "response"]


def model_calls(reports: list[TickReport]) -> list[str]:
    return [turn.agent for report in reports for turn in report.turns if turn.calls and turn.agent != "desk"]


def run_of(base: Path, request: str, agent: str = "desk") -> Any:
    return load_memory(base, agent, f"run-{request}")


def test_four_steps_over_five_agents_cost_four_model_calls(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, *FOUR)
    request = ask(base, "desk", "bees")
    reports = run(base, 8)
    assert model_calls(reports) == ["ada", "bob", "cyd", "dan"]
    assert [(each["text"], each["reply_to"]) for each in answers(base)] == [("dan says", request.id)]
    assert sum(turn.credits for report in reports for turn in report.turns if turn.agent == "desk") == 0
    assert reports[-1].is_quiet


def test_a_person_who_says_it_without_a_conversation_is_answered_as_well(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, step("a", "ada"))
    write_person_entry(base, "human", tick=0, kind="request", payload={"text": "x", "target": "desk"}, tags=[],
         created_at="2026-01-01T00:00:00Z")  # fmt: skip
    run(base, 3)
    assert answers(base)[0]["text"] == "ada says"


def test_many_runs_go_on_beside_each_other(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, *FOUR)
    requests = [ask(base, "desk", f"number {number}") for number in range(5)]
    run(base, 40)
    assert {each["reply_to"] for each in answers(base)} == {request.id for request in requests}


def test_a_tick_that_is_waited_for_costs_nothing_until_it_is_there(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, {"name": "later", "wait": {"ticks": 5}}, step("a", "ada"))
    ask(base, "desk")
    reports = run(base, 10)
    assert [report.is_quiet for report in reports] == [False, *[True] * 4, False, False, *[True] * 3]
    assert len(list((base / "logs/ticks").glob("*.jsonl"))) == 3


def test_a_file_that_is_waited_for_wakes_the_run_when_it_is_there(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, {"name": "in", "wait": {"file": "./shared/in.csv"}}, step("a", "ada"))
    may = {"read_outboxes": ["*"], "file_access": {"allow_read": ["./shared"]}}
    fs.write_atomic(
        base, "agents/desk/resume.json", dump_pretty(resume("desk", model={"key": "plan"}, permissions=may))
    )
    ask(base, "desk")
    assert [report.is_quiet for report in run(base, 4)] == [False, True, True, True]
    fs.write_atomic(base, "shared/in.csv", b"a,b\n")
    run(base, 2)
    assert answers(base)[0]["text"] == "ada says"


def test_only_the_newest_ended_runs_are_kept_and_a_cancelled_one_is_no_exception(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, step("a", "ada"), keep_runs=2)
    last = ""
    for _ in range(4):
        last = ask(base, "desk").id
        run(base, 3)
    assert len(list_memories(base, "desk")) == 2
    assert run_of(base, last)["status"] == "done"


def test_a_person_may_edit_a_run(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, *FOUR)
    request = ask(base, "desk")
    tick(base)
    file = base / f"agents/desk/memory/run-{request.id}.json"
    plain = json.loads(file.read_text())
    plain["value"] |= {"at": "final", "doing": {}, "answers": {"draft": {"text": "my own draft"}}}
    fs.write_atomic(base, file.relative_to(base).as_posix(), dump_pretty(plain))
    reports = run(base, 4)
    assert "dan" in model_calls(reports)
    assert "cyd" not in model_calls(reports)
    assert answers(base)[0]["text"] == "dan says"


def test_an_edited_run_goes_on_though_nobody_answers_what_it_asked_before(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, step("first", "human"), step("final", "dan"))
    request = ask(base, "desk")
    run(base, 3)
    file = base / f"agents/desk/memory/run-{request.id}.json"
    plain = json.loads(file.read_text())
    plain["value"] |= {"at": "final", "doing": {}}
    fs.write_atomic(base, file.relative_to(base).as_posix(), dump_pretty(plain))
    assert model_calls(list(ticks_of(base, clock=FrozenClock(), until_quiet=True))) == ["dan"]
    assert answers(base)[0]["text"] == "dan says"
    assert list_person_inbox(base) == []


def test_a_run_that_was_edited_into_nonsense_is_named_and_left_alone(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, *FOUR)
    request = ask(base, "desk")
    tick(base)
    fs.write_atomic(base, f"agents/desk/memory/run-{request.id}.json",
               dump_pretty({"key": f"run-{request.id}", "value": {"request": request.id, "at": 7}}))  # fmt: skip
    failed = [turn for report in run(base, 2) for turn in report.turns if turn.status == "failed"]
    assert "at" in failed[0].reason
    assert f"run-{request.id}.json" in failed[0].reason
    assert run_of(base, request.id) == {"request": request.id, "at": 7}


def test_a_plan_that_is_wrong_fails_the_turn_with_its_line_and_goes_on_when_it_is_mended(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, step("a", "ada", then="nowhere"))
    (unasked,) = [turn for turn in tick(base).turns if turn.status == "failed"]
    assert 'no step "nowhere"' in unasked.reason
    ask(base, "desk")
    failed = [turn for turn in tick(base).turns if turn.status == "failed"]
    assert "agents/desk/plan.json" in failed[0].reason
    assert 'no step "nowhere"' in failed[0].reason
    write_plan(base, step("a", "ada"))
    run(base, 3)
    assert answers(base)[0]["text"] == "ada says"


def test_a_plan_may_be_a_step_of_another(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, {"name": "inner", "plan": "inner", "task": "{{start}}"}, step("b", "bob"))
    fs.write_atomic(base, "agents/inner/resume.json", dump_pretty(resume("inner", model={"key": "plan"})))
    write_plan(base, step("a", "ada"), agent="inner")
    ask(base, "desk")
    reports = run(base, 8)
    assert [name for name in model_calls(reports) if name != "inner"] == ["ada", "bob"]
    assert answers(base)[0]["text"] == "bob says"
    assert answers(base, "inner")[0]["text"] == "ada says"


def test_nobody_who_answers_in_time_fails_the_step(tmp_path: Path) -> None:
    base = quiet_org(tmp_path, step("may", "human", deadline=2))
    ask(base, "desk")
    reports = run(base, 6)
    assert answers(base)[0]["status"] == "failed"
    assert "nobody answered in time" in answers(base)[0]["text"]
    assert [report.is_quiet for report in reports] == [False, True, True, False, True, True]


def test_replay_and_verify_agree(tmp_path: Path) -> None:
    base = quiet_org(tmp_path / "org", {"name": "later", "wait": {"ticks": 2}}, *FOUR, keep_runs=1)
    for _ in range(3):
        ask(base, "desk")
        run(base, 11)
    assert len(answers(base)) == 3
    assert verify_org(base).findings == ()
    list(replay_ticks(base, journal_ticks(base)))
    list(replay_into(base, tmp_path / "again", list_replayable_ticks(base, None)))
    assert load_state_root(tmp_path / "again") == load_state_root(base)


@pytest.mark.parametrize("at_once", [2, 8])
def test_however_many_turns_run_at_once_the_files_are_the_same(tmp_path: Path, at_once: int) -> None:
    trees = []
    for most in (1, at_once):
        base = quiet_org(
            tmp_path / str(most),
            {"name": "both", "parallel": [step("x", "ada"), step("y", "bob")]},
            step("sum", "cyd", task="{{previous}}"),
        )
        fs.write_atomic(base, "config/org.json", dump_pretty({"max_parallel": most}))
        for number in range(3):
            ask(base, "desk", f"number {number}")
        for _ in range(12):
            run_once(base, clock=FrozenClock())
        fs.remove(base, "config/org.json")
        trees.append(tree(base))
    assert trees[0] == trees[1]


PAYS_AND_DIES = """
import os
from lemming.tools import tool

@tool
def pay() -> str:
    with open("paid", "a") as paid:
        paid.write("x")
    os.kill(os.getpid(), 9)
    return ""
"""


@pytest.mark.parametrize(
    ("mark", "comes_to"), [("done", "A person has found out"), ("failed", 'the plan failed at "pay"')]
)
def test_a_step_that_may_have_happened_waits_for_a_person_to_say_so(tmp_path: Path, mark: str, comes_to: str) -> None:
    base = quiet_org(tmp_path, step("pay", tool="pay"))
    may = {"read_outboxes": ["*"], "tools": ["pay"]}
    desk = resume("desk", model={"key": "plan"}, permissions=may)
    fs.write_atomic(base, "agents/desk/resume.json", dump_pretty(desk))
    fs.write_atomic(base, "config/org.json", dump_pretty({"tool_files": ["tools/*.py"]}))
    fs.write_atomic(base, "tools/pay.py", PAYS_AND_DIES.encode())
    first = ask(base, "desk", "bees")
    run(base, 3)
    assert run_of(base, first.id)["doing"]["pay"]["wait"] == {"call": "1/desk/0"}
    assert run(base, 1)[0].is_quiet
    assert answers(base) == []
    (call,) = find_unknown_calls(base, journal_ticks(base))
    assert (call.id, call.why) == ("1/desk/0", "pay: its process was ended by SIGKILL")
    second = ask(base, "desk", "wasps")  # its turns are for another run, and take no word of the first
    mark_call(base, call.id, happened=mark == "done")
    run(base, 3)
    (answer,) = answers(base)
    assert (answer["reply_to"], comes_to in answer["text"]) == (first.id, True)
    assert (base / "paid").read_text() == "xx"
    assert run_of(base, second.id)["status"] == "running"
    assert verify_org(base).findings == ()
    assert len(list(replay_ticks(base, journal_ticks(base)))) == len(journal_ticks(base))
