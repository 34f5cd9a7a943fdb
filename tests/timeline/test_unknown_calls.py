"""Calls that may or may not have happened, because the engine died: listed, and marked by a person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from broken import Repair, interrupt
from typed import bell

from lemming.engine import run_once
from lemming.journal_tools.repair.unknown_calls import mark_call
from lemming.kernel.journal.ledger import read_state
from lemming.testing import Crash, crash_at, journal_lines, make_org, resume, say


def with_unknown_call(base: Path) -> Path:
    ring = say("ringing", tool_calls=[{"tool": "bell", "args": {"loud": True}}])
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": [], "tools": ["bell"]}, schedule={"wake": "changed"}),
        script=[{"agent": "ada", "tick": 1, "reply": ring}, {"reply": say("quiet")}],
    )
    with bell(dies=True), pytest.raises(Crash):
        run_once(base)
    return base


def test_a_call_whose_outcome_is_unknown_is_listed(base: Path, repair: Repair) -> None:
    run_once(with_unknown_call(base))
    ran = repair()
    assert ran.status == 0
    assert '1/ada/0: ada called bell {"loud":true} in tick 1; the engine stopped while this ran' in ran.out
    assert "`lemming repair --mark done 1/ada/0` or `--mark failed 1/ada/0`" in ran.out
    (told,) = repair("--json").objects
    assert told["call"] == {
        "id": "1/ada/0",
        "tick": 1,
        "agent": "ada",
        "index": 0,
        "tool": "bell",
        "args": {"loud": True},
        "was_retried": False,
        "request": "",
        "why": "the engine stopped while this ran",
    }
    assert told["is_for_a_person"] is True


@pytest.mark.parametrize(("mark", "words"), [("done", "it did happen"), ("failed", "it did not happen")])
def test_what_a_person_found_out_is_in_the_agents_next_prompt(
    base: Path, repair: Repair, mark: str, words: str
) -> None:
    run_once(with_unknown_call(base))
    run_once(base)
    ran = repair("--mark", mark, "1/ada/0")
    assert ran.status == 0
    assert ran.err.startswith('ada will be told in its next prompt that bell {"loud":true} did ')
    assert repair().err == "nothing to repair\n"
    report = run_once(base)
    assert report.turns[0].status == "done"
    started = next(r for r in journal_lines(base, report.tick) if r["type"] == "turn_started")
    assert f"A person has found out about this call of tick 1: {words}." in started["prompt"][-1]["content"]
    assert read_state(base, "ada").results == ()
    assert repair().err == "nothing to repair\n"  # the journal remembers the mark


def test_a_mark_waits_until_the_tick_is_finished(base: Path, repair: Repair) -> None:
    run_once(with_unknown_call(base))
    interrupt(base, "ada")
    ran = repair("--mark", "done", "1/ada/0")
    assert ran.status == 2
    assert "tick 2 is unfinished" in ran.err


@pytest.mark.parametrize("number", range(1, 5))
def test_a_mark_that_dies_costs_the_agent_nothing_it_knew(base: Path, repair: Repair, number: int) -> None:
    run_once(with_unknown_call(base))
    before = read_state(base, "ada")
    with pytest.raises(Crash), crash_at(number):
        mark_call(base, "1/ada/0", happened=True)
    after = read_state(base, "ada")
    assert replace(after, results=()) == replace(before, results=())
    assert after.results[: len(before.results)] == before.results


@pytest.mark.parametrize("words", [["--mark", "done"], ["1/ada/0"], ["--mark", "done", "1/ada/7"]])
def test_a_mark_needs_a_call_that_is_unknown(base: Path, repair: Repair, words: list[str]) -> None:
    run_once(with_unknown_call(base))
    assert repair(*words).status == 2
