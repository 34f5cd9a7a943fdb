"""Ticks that follow each other at once while something new is addressed to an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from desk import PERSON
from terminal import Lemming

from lemming.engine import ticks
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, make_org, resume, say, tree

QUIET = {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": "nothing"}
PEOPLE = {"human": {"provider": "human"}}
NAMES = ("ada", "bob", "cyd")  # in the order of a tick: what cyd says bob hears in the next one


def to(target: str | None, text: str) -> dict[str, Any]:
    reply = say(text)
    reply["outbox_entries"][0]["payload"]["target"] = target
    return reply


def organisation(base: Path, *script: dict[str, Any], org: dict[str, Any] | None = None, **blocks: Any) -> Path:
    changed = {"schedule": {"wake": "changed"}, **blocks}
    lines = [*script, {"reply": QUIET}]
    people = resume("human", **PERSON)
    return make_org(base, *(resume(name, **changed) for name in NAMES), people, script=lines, models=PEOPLE, org=org)


def ask(base: Path, target: str, text: str) -> None:
    payload = {"text": text, "target": target}
    write_person_entry(base, "human", tick=load_tick(base), kind="message", payload=payload, tags=[], created_at="x")


CHAIN = (
    {"agent": "cyd", "contains": "begin", "reply": to("bob", "second")},
    {"agent": "bob", "contains": "second", "reply": to("ada", "third")},
)


def run(base: Path, **options: Any) -> list[TickReport]:
    return list(ticks(base, clock=FrozenClock(), until_quiet=True, **options))


def test_ticks_follow_each_other_until_nothing_new_is_addressed_to_anybody(base: Path) -> None:
    organisation(base, *CHAIN)
    run(base)
    ask(base, "cyd", "begin")
    reports = run(base)
    asked = [[turn.agent for turn in report.turns if turn.calls] for report in reports]
    assert asked == [["cyd"], ["bob"], ["ada"]]


def test_what_is_said_to_everybody_hurries_nobody(base: Path) -> None:
    organisation(base, {"agent": "cyd", "contains": "begin", "reply": to(None, "to all")})
    run(base)
    ask(base, "cyd", "begin")
    assert len(run(base)) == 1


def test_a_tools_result_is_a_reason_and_that_of_one_that_only_writes_is_none(base: Path) -> None:
    read = {**QUIET, "tool_calls": [{"tool": "memory_read", "args": {"key": "x"}}]}
    write = {**QUIET, "tool_calls": [{"tool": "memory_write", "args": {"key": "x", "value": 1}}]}
    organisation(base, {"agent": "cyd", "tick": 3, "reply": read}, {"contains": "write it", "reply": write})
    run(base)
    ask(base, "cyd", "write it")
    assert len(run(base)) == 1
    ask(base, "cyd", "read it")
    assert len(run(base)) == 2


def test_ticks_in_which_nobody_is_due_go_by(base: Path) -> None:
    late = {"schedule": {"wake": "changed", "run_every_n_ticks": 5, "phase_offset": 0}}
    organisation(base, **late)
    run(base)
    ask(base, "cyd", "hello")
    assert run(base)[-1].tick % 5 == 0


def test_who_fails_is_paused_or_may_spend_no_more_is_no_reason(base: Path) -> None:
    organisation(base, {"agent": "cyd", "contains": "begin", "error": "AuthenticationFailed"})
    run(base)
    ask(base, "cyd", "begin")
    assert len(run(base)) == 1
    (base / "config/credits.json").write_text('{"bob": {"max_credits": 1}}')
    ask(base, "bob", "hello")
    assert len(run(base)) == 1


def test_there_is_a_limit_in_a_row_and_it_is_said(base: Path) -> None:
    for_ever = ({"agent": "cyd", "reply": to("bob", "you")}, {"agent": "bob", "reply": to("cyd", "you")})
    organisation(base, *for_ever, org={"ticks_in_a_row": 7})
    heard: list[Event] = []
    assert len(run(base, notify=heard.append)) == 7
    problems = [event.problem for event in heard if isinstance(event, ProblemFound)]
    assert [problem.pointer for problem in problems] == ["/ticks_in_a_row"]
    assert "7 ticks ran without a pause" in problems[0].message


def test_run_forever_is_eager_when_told(base: Path) -> None:
    organisation(base, *CHAIN)
    run(base)
    ask(base, "cyd", "begin")
    reports = ticks(base, clock=FrozenClock(), eager=True, interval_s=3600, max_ticks=3)
    assert [[turn.agent for turn in it.turns if turn.calls] for it in reports] == [["cyd"], ["bob"], ["ada"]]


def test_run_once_goes_on_until_it_is_quiet(base: Path, lemming: Lemming) -> None:
    organisation(base, *CHAIN)
    assert lemming("run-once", "-q").status == 0
    ask(base, "cyd", "begin")
    ran = lemming("run-once", "--until-quiet", "--json")
    assert [it["tick"] for it in ran.objects if it["type"] == "tick_committed"] == [2, 3, 4]


@pytest.mark.parametrize("parallel", [1, 2, 8, 64])
def test_the_files_are_the_same_however_many_turns_run_at_once(base: Path, parallel: int, tmp_path: Path) -> None:
    trees = []
    for folder, at_once in ((base, parallel), (tmp_path / "other", 1)):
        organisation(folder, *CHAIN, org={"max_parallel": at_once})
        run(folder)
        payload = {"text": "begin", "target": "cyd"}
        write_person_entry(folder, "human", tick=2, kind="message", payload=payload, tags=[], created_at="x")
        run(folder)
        trees.append({path: raw for path, raw in tree(folder).items() if path != "config/org.json"})
    assert trees[0] == trees[1]


def test_an_organisation_that_is_not_eager_is_not_looked_at(base: Path) -> None:
    organisation(base, *CHAIN)
    assert [it.tick for it in ticks(base, clock=FrozenClock(), interval_s=0, max_ticks=2)] == [1, 2]
