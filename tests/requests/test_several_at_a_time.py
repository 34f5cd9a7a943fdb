"""An agent that takes several requests in one tick, each in a turn of its own."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, org_of, tick
from patience import PATIENCE_S
from planned import planned_org, step
from terminal import Lemming

from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import AgentState, read_state, write_state
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.memory import load_memory
from lemming.kernel.messages import list_outbox
from lemming.kernel.providers import LLMProvider, register_provider
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.queries.views.tick_view import build_tick_view as tick_view
from lemming.testing import Crash, crash_at, journal_lines, resume, say, tree

ANSWER = say("done", kind="response")


IN_ORDER = ["file_write"]
"""A tool that changes files: turns with it are taken one after another."""


def desk(requests: int, tools: list[str], turn: dict[str, Any]) -> dict[str, Any]:
    return resume(
        "desk",
        permissions={"read_outboxes": ["*"], "tools": tools},
        schedule={"wake": "addressed"},
        turn={"take": "one", "requests": requests, **turn},
    )


def asked_org(base: Path, count: int, *, requests: int = 3, script: Any = None, tools: Any = (), **turn: Any) -> Path:
    """Make an organisation in which a person has asked the desk for so many things."""
    org_of(base, desk(requests, [*tools], turn), script=script or [{"reply": ANSWER}])
    for number in range(count):
        ask(base, "desk", f"question {number}", conversation=f"talk {number}")
    return base


def ledger_lines(base: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (base / "agents/desk/turns.jsonl").read_text().splitlines()]


def turns_in(report: TickReport) -> list[tuple[int, str]]:
    return [(turn.turn, turn.status) for turn in report.turns if turn.agent == "desk"]


def test_so_many_requests_are_taken_in_one_tick_each_in_a_turn_of_its_own(base: Path) -> None:
    asked_org(base, 5)
    assert turns_in(tick(base)) == [(0, "done"), (1, "done"), (2, "done")]
    assert turns_in(tick(base)) == [(0, "done"), (1, "done")]
    assert len(answers(base, "desk")) == 5
    assert turns_in(tick(base)) == [(0, "skipped")]


@pytest.mark.parametrize("requests", [1, 2])
def test_few_are_taken_as_exactly_as_many(base: Path, requests: int) -> None:
    asked_org(base, 4, requests=requests)
    assert len(turns_in(tick(base))) == requests
    assert len(answers(base, "desk")) == requests


def test_each_turn_is_shown_its_own_request_and_no_other(base: Path) -> None:
    asked_org(base, 3)
    tick(base)
    started = [line for line in journal_lines(base, 1) if line["type"] == "turn_started"]
    shown = [[f"question {number}" in line["prompt"][-1]["content"] for number in range(3)] for line in started]
    assert shown == [[True, False, False], [False, True, False], [False, False, True]]


def test_a_refused_call_of_a_later_turn_has_a_number_of_its_own(base: Path) -> None:
    team = {"ask": ["bob"], "may_be_absent": True}
    calls = [{"tool": "ask_bob", "args": {"message": "well?"}}]
    refused = {"outbox_entries": [], "tool_calls": calls, "memory_updates": [], "notes": ""}
    script = [{"step": number, "reply": refused} for number in (0, 100_000)] + [{"reply": ANSWER}]
    org_of(base, {**desk(2, [], {"max_steps": 2}), "team": team}, script=script)
    for number in range(2):
        ask(base, "desk", f"question {number}", conversation=f"talk {number}")
    assert turns_in(tick(base)) == [(0, "done"), (1, "done")]
    finished = [line for line in journal_lines(base, 1) if line["type"] == "tool_finished"]
    refusals = {(line["index"], line["outcome"]) for line in finished}  # both turns run at once, in either order
    assert refusals == {(0, "refused"), (100_000, "refused")}
    assert len(finished) == 2
    assert verify_org(base).findings == ()


def test_mails_through_one_agent_take_few_ticks_where_it_serves_several_at_a_time(base: Path) -> None:
    sort = step("sort", "ada", task="Sort {{item}}.", each="start.mails", at_once=8)
    planned_org(base, sort, script=[{"reply": ANSWER}], answer="{{steps.sort}}")
    ada = resume("ada", turn={"requests": 8}, schedule={"wake": "addressed"})
    fs.write_atomic(base, "agents/ada/resume.json", dump_pretty(ada))
    ask(base, "desk", "sort", mails=[f"mail {number}" for number in range(30)])
    ticks = 0
    while not answers(base, "desk"):
        tick(base)
        ticks += 1
        assert ticks <= 6
    assert ticks == 5
    calls = sum(
        line["type"] == "model_replied" and line["agent"] == "ada"
        for number in range(1, 1 + ticks)
        for line in journal_lines(base, number)
    )
    assert calls == 30


def test_an_agent_that_says_nothing_takes_one_request_and_its_journal_has_no_number(base: Path) -> None:
    org_of(base, resume("desk", turn={"take": "one"}), script=[{"reply": ANSWER}])
    for number in range(2):
        ask(base, "desk", f"question {number}")
    assert turns_in(tick(base)) == [(0, "done")]
    assert not [line for line in journal_lines(base, 1) if "turn" in line]


def test_one_that_fails_leaves_the_others_done_and_waits_for_the_next_tick(base: Path) -> None:
    script = [{"contains": "question 1", "reply": "no JSON", "tick": 1}, {"reply": ANSWER}]
    asked_org(base, 3, script=script, repairs=0)
    assert turns_in(tick(base)) == [(0, "done"), (1, "failed"), (2, "done")]
    assert read_state(base, "desk").failed == 1
    assert turns_in(tick(base)) == [(0, "done")]
    assert len(answers(base, "desk")) == 3


FIRST = [{"key": "last", "value": "first was here"}]
LATER = [{"key": "last", "value": "the other came later"}]
REMEMBERING = [
    {"contains": "question 0", "reply": {**ANSWER, "memory_updates": FIRST}},
    {"reply": {**ANSWER, "memory_updates": LATER}},
]


@pytest.mark.parametrize(("tools", "is_seen"), [(IN_ORDER, True), ([], False)])
def test_turns_with_tools_that_change_files_start_from_what_the_one_before_left_and_others_do_not(
    base: Path, tools: list[str], is_seen: bool
) -> None:
    asked_org(base, 2, script=REMEMBERING, tools=tools)
    tick(base)
    started = [line for line in journal_lines(base, 1) if line["type"] == "turn_started"]
    assert ("first was here" in started[1]["prompt"][-1]["content"]) is is_seen
    assert load_memory(base, "desk", "last") == "the other came later"


@pytest.mark.parametrize("tools", [IN_ORDER, []])
def test_what_all_turns_of_a_tick_came_to_adds_up_in_the_ledger(base: Path, tools: list[str]) -> None:
    asked_org(base, 3, tools=tools)
    report = tick(base)
    state = read_state(base, "desk")
    assert (state.turns, state.credits) == (3, 3.0)
    assert state.input_tokens == sum(turn.input_tokens for turn in report.turns if turn.agent == "desk")
    assert [line["turns"] for line in ledger_lines(base)] == [1, 2, 3]


def test_turns_that_nothing_connects_ask_their_models_at_the_same_time(base: Path) -> None:
    asked_org(base, 3)
    meeting = threading.Barrier(3)

    class Meets(LLMProvider):
        def call(self, *_: Any, **__: Any) -> str:
            meeting.wait(timeout=PATIENCE_S)
            return json.dumps(ANSWER)

    register_provider("meets", Meets)
    fs.write_atomic(
        base, "config/models.json", dump_pretty({"scripted": {"provider": "meets"}, "human": {"provider": "human"}})
    )
    assert turns_in(tick(base)) == [(0, "done"), (1, "done"), (2, "done")]


def test_no_more_turns_ask_at_the_same_time_than_may(base: Path) -> None:
    asked_org(base, 6, requests=6)
    under_way, most = [0], [0]

    class Counts(LLMProvider):
        def call(self, *_: Any, **__: Any) -> str:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            under_way[0] -= 1
            return json.dumps(ANSWER)

    register_provider("counts", Counts)
    models = {"scripted": {"provider": "counts"}, "human": {"provider": "human"}}
    fs.write_atomic(base, "config/models.json", dump_pretty(models))
    fs.write_atomic(base, "config/org.json", dump_pretty({"max_parallel": 2}))
    tick(base)
    assert len(answers(base, "desk")) == 6
    assert most[0] <= 2


@pytest.mark.parametrize("settings", [{"executor": "serial"}, {"max_parallel": 1}, {"max_parallel": 2}, {}])
def test_the_files_are_the_same_at_any_parallelism(base: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    trees = []
    for place, org in ((base, {"max_parallel": 8}), (tmp_path / "other", settings)):
        asked_org(place, 5, script=REMEMBERING)
        fs.write_atomic(place, "config/org.json", dump_pretty(org))
        for _ in range(3):
            tick(place)
        trees.append({file: raw for file, raw in tree(place).items() if file.startswith("agents/")})
    assert trees[0] == trees[1]


def test_credits_hold_over_all_turns_of_a_tick(base: Path) -> None:
    asked_org(base, 5, requests=5)
    fs.write_atomic(base, "config/credits.json", dump_pretty({"desk": {"max_credits": 3.0}}))
    assert turns_in(tick(base)) == [(0, "done"), (1, "done"), (2, "done")]
    assert read_state(base, "desk").credits == 3.0


def test_a_limit_per_agent_counts_the_turns_before_in_the_same_tick(base: Path) -> None:
    limit = {"at": "spend", "calls": 2, "per": "agent", "window": {"ticks": 1}, "then": "block"}
    asked_org(base, 4, requests=4)
    fs.write_atomic(base, "config/org.json", dump_pretty({"gates": [limit]}))
    tick(base)
    calls = [line for line in journal_lines(base, 1) if line["type"] == "model_replied"]
    assert len(calls) == 2


def test_entries_of_all_turns_have_ids_of_their_own_that_the_engine_knows_again(base: Path) -> None:
    asked_org(base, 3)
    tick(base)
    names = list_outbox(base, "desk")
    assert [name.number for name in names] == [0, 64, 128]
    assert [name.id[:2] for name in names[1:]] == ["01", "02"]


def test_calls_of_all_turns_are_told_apart_by_their_numbers(base: Path) -> None:
    asked_org(base, 3)
    tick(base)
    calls = [line["call"] for line in journal_lines(base, 1) if line["type"] == "model_replied"]
    assert sorted(calls) == [0, 100_000, 200_000]


def test_an_older_entry_for_the_inbox_waits_for_one_tick_at_most(base: Path) -> None:
    asked_org(base, 2, requests=8)
    ask(base, "desk", "by the way", kind="message")
    ask(base, "desk", "question 2", conversation="talk 2")
    assert turns_in(tick(base)) == [(0, "done"), (1, "done")]
    assert tick(base).turns[0].request == ""
    assert turns_in(tick(base)) == [(0, "done")]


@pytest.mark.parametrize("tools", [IN_ORDER, []])
def test_a_replay_takes_all_turns_again_and_makes_no_call(base: Path, tmp_path: Path, tools: list[str]) -> None:
    asked_org(base, 5, tools=tools)
    for _ in range(2):
        tick(base)
    (base / "config/answers.jsonl").unlink()
    assert [(it.tick, it.turns) for it in replay_ticks(base, [1, 2])] == [(1, 3), (2, 2)]
    assert [it.turns for it in replay_into(base, tmp_path / "again", list_replayable_ticks(base, None))] == [3, 2]


@pytest.mark.parametrize("tools", [IN_ORDER, []])
def test_what_was_spent_and_written_is_counted_of_all_turns(base: Path, lemming: Lemming, tools: list[str]) -> None:
    asked_org(base, 3, tools=tools)
    report = tick(base)
    assert report.totals["calls"] == 3
    assert load_tick_record(base, 1).totals["credits"] == 3.0
    assert verify_org(base).findings == ()
    assert verify_org(base).turns == 3
    assert lemming("cost", "--json").objects[-1]["turns"] == 3


def test_a_tick_shows_each_turn_and_why_leads_to_the_one_that_wrote_an_entry(base: Path, lemming: Lemming) -> None:
    asked_org(base, 3)
    tick(base)
    shown = lemming("tick", "1").out
    assert "desk#2  done" in shown
    last = read_outbox_entries(base, "desk")[-1]
    assert "question 2" in lemming("why", last.id).out


def test_a_fork_has_all_turns_up_to_its_tick(base: Path, tmp_path: Path, lemming: Lemming) -> None:
    asked_org(base, 5)
    for _ in range(2):
        tick(base)
    fork = tmp_path / "fork"
    assert lemming("fork", "--at", "1", str(fork)).status == 0
    written = (base / "agents/desk/turns.jsonl").read_text().splitlines()
    assert (fork / "agents/desk/turns.jsonl").read_text().splitlines() == written[:3]
    assert tree(fork / "agents/desk/outbox").items() <= tree(base / "agents/desk/outbox").items()
    assert len(read_outbox_entries(fork, "desk")) == 3


def test_what_is_left_of_a_row_that_was_interrupted_goes_on(base: Path) -> None:
    asked_org(base, 3, tools=IN_ORDER)
    with pytest.raises(Crash), crash_at(28):
        tick(base)
    begun = [line["type"] for line in journal_lines(base, 1)]
    assert "turn_committed" in begun
    assert turns_in(tick(base)) == [(0, "done"), (1, "done"), (2, "done")]
    assert len(answers(base, "desk")) == 3


def test_the_page_shows_each_turn_of_a_tick_by_its_key(base: Path) -> None:
    asked_org(base, 3)
    tick(base)
    shown = tick_view(base, number=1, agent="desk#2")
    assert [row["agent"] for row in shown["rows"]] == ["desk", "desk#1", "desk#2"]
    assert "question 2" in shown["turn"]["prompt"][-1]["content"]


def test_requests_that_share_a_budget_are_taken_one_after_another(base: Path) -> None:
    asked_org(base, 0)
    for number in range(3):
        ask(base, "desk", f"question {number}", conversation=f"talk {number}", budget=10)
    assert turns_in(tick(base)) == [(0, "done"), (1, "done"), (2, "done")]
    kinds = [line["type"] for line in journal_lines(base, 1) if line["type"].startswith("turn_")]
    assert kinds[:4] == ["turn_started", "turn_committed", "turn_started", "turn_committed"]


def test_credits_that_suffice_for_all_turns_let_them_be_taken_at_once(base: Path) -> None:
    asked_org(base, 3, repairs=0)
    started = []
    for number, most in ((1, 3.0), (2, 5.0)):
        fs.write_atomic(base, "config/credits.json", dump_pretty({"desk": {"max_credits": most}}))
        for asked in range(3):
            ask(base, "desk", f"again {asked}", conversation=f"{number} {asked}")
        tick(base)
        kinds = [it["type"] for it in journal_lines(base, number) if it["type"].startswith("turn_")]
        started.append(kinds.index("turn_committed"))
    assert started == [3, 1]


@pytest.mark.parametrize("tools", [IN_ORDER, []])
def test_a_turn_that_ends_the_engine_again_and_again_takes_no_other_with_it(base: Path, tools: list[str]) -> None:
    asked_org(base, 3, tools=tools)

    class Dies(LLMProvider):
        def call(self, model_name: str, messages: Any, *_: Any, **__: Any) -> str:
            if "question 1" in str(messages):
                raise Crash("the engine ends")
            return json.dumps(ANSWER)

    register_provider("dies", Dies)
    models = {"scripted": {"provider": "dies"}, "human": {"provider": "human"}}
    fs.write_atomic(base, "config/models.json", dump_pretty(models))
    for _ in range(3):
        with pytest.raises(Crash):
            tick(base)
    assert turns_in(tick(base)) == [(0, "done"), (1, "failed"), (2, "done")]


def test_the_lines_of_further_turns_stand_beside_each_other_whatever_else_they_say(base: Path) -> None:
    asked_org(base, 0)
    states = [AgentState(tick=4, turn=turn, loops={"said": 2}) for turn in range(3)]
    for state in (*states, states[2]):
        write_state(base, "desk", state)
    assert [line.get("turn", 0) for line in ledger_lines(base)] == [0, 1, 2]
    assert read_state(base, "desk", before_tick=4) == AgentState()
