"""The loop breaker, where an agent asks for the same again and again and has no answer that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.agents import load_agent
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TickReport
from lemming.testing import FrozenClock, make_org, resume, say

PAUSED = "4 of its turns asked for the same, and no answer came but that it failed"
ADDRESSED = {"run_every_n_ticks": 1, "phase_offset": 0, "wake": "addressed"}


def asks(target: Any = "bob", text: str = "Count the bees.", **more: Any) -> dict[str, Any]:
    entry = {"kind": "request", "payload": {"target": target, "text": text, **more}, "tags": []}
    return {"outbox_entries": [entry]}


def answers(**payload: Any) -> dict[str, Any]:
    return {"outbox_entries": [{"kind": "response", "payload": payload, "tags": []}]}


FAILED = answers(text="I cannot count.", status="failed")


def made(base: Path, ada: list[dict[str, Any]], bob: dict[str, Any], **blocks: Any) -> Path:
    lines = [{"agent": "ada", **line} for line in ada]
    return make_org(
        base,
        resume("ada", **blocks),
        resume("bob", schedule=ADDRESSED),
        script=[*lines, {"agent": "bob", "reply": bob}],
    )


def run(base: Path, ticks: int) -> list[TickReport]:
    return [run_once(base, clock=FrozenClock()) for _ in range(ticks)]


def calls_in(reports: list[TickReport]) -> int:
    return sum(turn.calls for report in reports for turn in report.turns)


@pytest.mark.parametrize(
    "bob",
    [FAILED, asks("ada", "What for?"), {"outbox_entries": []}],
    ids=["the answer is that it failed", "it is asked back", "no answer comes"],
)
def test_an_agent_that_asks_for_the_same_in_vain_is_paused(base: Path, bob: dict[str, Any]) -> None:
    made(base, [{"reply": asks()}], bob)
    assert calls_in(run(base, 20)) == 8
    assert load_agent(base, "ada").paused == f"since tick 4 by the loop breaker: {PAUSED}"


def test_two_agents_that_ask_each_other_are_both_paused(base: Path) -> None:
    made(base, [{"reply": asks()}], asks("ada", "What for?"))
    run(base, 5)
    assert load_agent(base, "bob").paused.endswith(PAUSED)


def test_it_is_told_before(base: Path) -> None:
    made(base, [{"reply": asks()}], FAILED)
    run(base, 4)
    said = [
        next(it for it in load_tick_record(base, tick).turns if it.agent == "ada").prompt[-1]["content"]
        for tick in (3, 4)
    ]
    assert ["WARNING: 3 of your turns" in prompt for prompt in said] == [False, True]


def test_turns_with_nothing_to_do_between_do_not_begin_the_count_anew(base: Path) -> None:
    ada = [{"tick": tick, "reply": {"outbox_entries": []}} for tick in (2, 4, 6)]
    made(base, [*ada, {"reply": asks()}], FAILED)
    run(base, 8)
    assert load_agent(base, "ada").paused.startswith("since tick 7 ")


def test_requests_by_turns_are_counted_apart(base: Path) -> None:
    ada = [{"tick": tick, "reply": asks(text="Count the ants.")} for tick in (1, 3, 5, 7)]
    made(base, [*ada, {"reply": asks()}], FAILED)
    run(base, 8)
    assert load_agent(base, "ada").paused.startswith("since tick 7 ")


HEALTHY = {
    "it is answered each time": (asks(), answers(text="Four.")),
    "a report is the answer": (asks(), say("four", kind="report")),
    "it reports beside": (
        {"outbox_entries": [*asks()["outbox_entries"], *say("nothing new", kind="report")["outbox_entries"]]},
        FAILED,
    ),
    "nobody is asked in particular": (
        {"outbox_entries": [{"kind": "request", "payload": {"text": "Anybody?"}, "tags": []}]},
        say("no", kind="report"),
    ),
}


@pytest.mark.parametrize(("ada", "bob"), HEALTHY.values(), ids=HEALTHY)
def test_an_agent_that_comes_further_is_not_paused(base: Path, ada: dict[str, Any], bob: dict[str, Any]) -> None:
    made(base, [{"reply": ada}], bob)
    run(base, 9)
    assert load_agent(base, "ada").paused == ""


def test_another_text_is_another_request(base: Path) -> None:
    made(base, [{"tick": tick, "reply": asks(text=f"Count hive {tick}.")} for tick in range(1, 9)], FAILED)
    run(base, 8)
    assert load_agent(base, "ada").paused == ""


def test_one_answer_that_helps_begins_the_count_anew(base: Path) -> None:
    made(base, [{"reply": asks()}], FAILED)
    script = base / "config/answers.jsonl"
    good = json.dumps({"agent": "bob", "tick": 3, "reply": answers(text="Four.")})
    script.write_text(f"{good}\n{script.read_text()}")
    run(base, 7)
    assert load_agent(base, "ada").paused == ""
    assert sum(read_state(base, "ada").loops.values()) == 3


def test_a_replay_agrees(base: Path) -> None:
    made(base, [{"reply": asks()}], FAILED)
    run(base, 4)
    assert [replayed.turns for replayed in replay_ticks(base, [1, 2, 3, 4])] == [2, 2, 2, 2]
