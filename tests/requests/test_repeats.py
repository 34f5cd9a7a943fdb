"""What is done the same way turn after turn comes to an end."""

from __future__ import annotations

from pathlib import Path

import pytest
from asked import ask, person
from waited import ADDRESSED, NOTHING, Json, called, calling, clocked, paid, run

from lemming.client.ask_client import ask as put
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.loop_breaker import RepeatDetector
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.obligations.org_requests import load_requests
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say


def holding_on(base: Path, *script: Json) -> Path:
    """Make an organisation in which bob says that it will come, unless the script has something else."""
    soon = {"outbox_entries": [{"kind": "status", "payload": {"text": "soon"}, "tags": []}]}
    return make_org(
        base,
        person(),
        resume("bob", schedule=ADDRESSED, permissions={"read_outboxes": ["*"], "tools": ["file_read"]}),
        resume("helper", schedule=ADDRESSED),
        script=[
            {"agent": "helper", "reply": say("here it is", kind="response")},
            *script,
            {"reply": {**NOTHING, **soon}},
        ],
        models={"human": {"provider": "human"}},
    )


def test_who_comes_no_further_is_asked_again_by_the_clock_only(base: Path) -> None:
    holding_on(base, {"contains": "urgent", "reply": say("yes", kind="response")})
    outcome = put(base, "bob", "when?", clock=FrozenClock())
    assert (outcome.why, load_tick(base)) == ("nothing_to_do", 2)
    assert outcome.reason.startswith("bob made no progress in its last turn")
    assert put(base, "helper", "well?", clock=FrozenClock()).answer == "here it is"
    assert [called(base, tick, "bob") for tick in journal_ticks(base)] == [True, False]
    assert paid([*clocked(base, 3)]) == ["bob"] * 3
    assert put(base, "bob", "urgent?", clock=FrozenClock()).answer == "yes"  # not after what stands still
    assert not called(base, load_tick(base) - 1, "helper")
    ask(base, "bob", "by the way", kind="message")
    assert paid(run(base)) == ["bob", "bob"]  # for the message, and for what it may help with
    assert len(load_requests(base).requests.unresolved_requests) == 1


def test_what_gives_the_same_turn_after_turn_is_over_at_the_fourth_time(base: Path) -> None:
    holding_on(base, {"agent": "bob", "reply": calling("file_read", path="./workspace/list.txt")})
    fs.write_atomic(base, "agents/bob/workspace/list.txt", b"nothing yet")
    outcome = put(base, "bob", "watch it", clock=FrozenClock())
    assert (outcome.end, load_tick(base)) == ("failed", 5)
    assert outcome.reason == "the same call was made again and again, and gave the same"


@pytest.mark.sample(3)
@pytest.mark.parametrize(("native", "steps"), [(True, None), (False, 3), (False, 20), (False, 1)])
def test_a_question_costs_25_calls_at_most_however_many_steps_a_turn_has(
    base: Path, native: bool, steps: int | None
) -> None:
    looks = [
        {"tick": tick, "step": step, "reply": calling("file_read", path=f"./shared/{tick}-{step}.txt")}
        for tick in range(1, 30)
        for step in range(20)
    ]
    model = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}}
    may = {"read_outboxes": ["human"], "tools": ["file_read"], "file_access": {"allow_read": ["./shared"]}}
    make_org(
        base,
        person(),
        resume("bob", model={"key": "own"}, permissions=may, turn={"max_steps": steps} if steps else {}),
        script=looks,
        models={"human": {"provider": "human"}, "own": {**model, **({"tools": "native"} if native else {})}},
    )
    outcome = put(base, "bob", "what?", clock=FrozenClock())
    assert outcome.end == "failed"
    assert "no answer was given in 25 calls of models" in outcome.reason
    replies = [it for n in range(1, load_tick(base)) for it in journal_lines(base, n)]
    assert sum(it["type"] == "model_replied" for it in replies) == 25


def test_settings_say_how_many_calls_a_question_may_cost(base: Path) -> None:
    looks = [{"tick": tick, "reply": calling("file_read", path=f"./shared/{tick}.txt")} for tick in range(1, 30)]
    may = {"read_outboxes": ["human"], "tools": ["file_read"], "file_access": {"allow_read": ["./shared"]}}
    bob = resume("bob", permissions=may, loops={"max_calls": 5})
    make_org(base, person(), bob, script=looks, models={"human": {"provider": "human"}})
    outcome = put(base, "bob", "what?", clock=FrozenClock())
    assert "in 5 calls of models" in outcome.reason
    assert load_tick(base) == 6


def test_who_asks_back_whoever_asked_is_told_and_then_the_request_fails(base: Path) -> None:
    back = {"kind": "request", "payload": {"text": "you do it", "target": "ann"}, "tags": []}
    asks = {"kind": "request", "payload": {"text": "do it", "target": "bob"}, "tags": []}
    once = {"tick": 1, "agent": "ann", "reply": {**NOTHING, "outbox_entries": [asks]}}
    make_org(
        base,
        resume("ann", schedule=ADDRESSED | {"wake": "always"}, permissions={"read_outboxes": ["bob"]}),
        resume("bob", permissions={"read_outboxes": ["ann"]}, turn={"take": "one"}, schedule=ADDRESSED),
        script=[once, {"agent": "bob", "reply": {**NOTHING, "outbox_entries": [back]}}, {"reply": NOTHING}],
    )
    turns = [turn for report in clocked(base, 8) for turn in report.turns if turn.agent == "bob"]
    assert sum(turn.calls for turn in turns) == 4
    told = load_tick_record(base, 4).turns[-1].prompt[-1]["content"]
    assert "WARNING: outbox_entries has given the same three times" in told
    (answer,) = [it for it in read_outbox_entries(base, "bob") if it.kind == "response"]
    assert (answer.payload["status"], "again and again" in answer.payload["text"]) == ("failed", True)


def test_a_message_too_is_no_reason_to_make_the_same_call_for_ever(base: Path) -> None:
    holding_on(base, {"agent": "bob", "reply": calling("file_read", path="./workspace/list.txt")})
    fs.write_atomic(base, "agents/bob/workspace/list.txt", b"nothing yet")
    ask(base, "bob", "watch it", kind="message")
    reports = run(base)
    assert paid(reports) == ["bob"] * 4
    assert reports[-1].turns[0].end == "repeats"
    ask(base, "bob", "again", kind="message")
    assert paid(run(base)) == ["bob"] * 4


def test_polling_what_changes_is_no_repeat(base: Path) -> None:
    holding_on(base, {"agent": "bob", "reply": calling("file_read", path="./workspace/list.txt")})
    request = ask(base, "bob", "watch it")
    for number in range(6):
        fs.write_atomic(base, "agents/bob/workspace/list.txt", b"%d" % number)
        assert paid([*clocked(base, 1)]) == ["bob"]
    assert load_requests(base).requests.find_matches(request.id)[0].is_open


def test_who_goes_on_with_its_work_may_look_at_the_same_file_in_each_turn() -> None:
    look, result, before = ToolCall("file_read", {"path": "notes.md"}), ToolResult(True, "plan"), {}
    for number in range(6):
        turn = RepeatDetector(before)
        turn.count(look, result)
        turn.record_memory("step", number)
        assert not turn.is_cycling
        before = turn.repeat_counts
    turn = RepeatDetector(before)
    turn.count(look, result)
    turn.record_memory("step", 5)
    assert turn.is_cycling
