"""Asking one's team, and handing a request on to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, open_of, org_of, prompts, said, tick, tried_once

from lemming.cli import run
from lemming.engine import run_forever, run_once, ticks
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.agents import survey_agents
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.journal_records import ToolFinished
from lemming.kernel.org.config import load_config
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.queries.org_validation import validate_agents
from lemming.testing import FrozenClock, journal_lines, resume, say

QUIET = {"schedule": {"wake": "addressed"}}


def calls(*tools: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [{"tool": tool, "args": args} for tool, args in tools]
    return {"outbox_entries": [], "tool_calls": made, "memory_updates": [], "notes": ""}


def desk(*ask_of: Any, **more: Any) -> dict[str, Any]:
    return resume("desk", team={"ask": list(ask_of), **more}, **QUIET)


def turns(org: Path, ticks: int) -> list[str]:
    return [turn.agent for _ in range(ticks) for turn in tick(org).turns if turn.calls]


def test_answers_come_back_as_results_of_the_calls_that_asked(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": "it is 7", "reply": say("seven and eight", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}), ("ask_bob", {"message": "b?"}))},
        {"agent": "ann", "reply": say("it is 7")},
        {"agent": "bob", "reply": say("it is 8")},
    ]
    org = org_of(tmp_path, desk("ann", "bob"), resume("ann", **QUIET), resume("bob", **QUIET), script=script)
    request = ask(org, "desk")
    assert turns(org, 4) == ["desk", "ann", "bob", "desk"]
    assert answers(org, "desk")[request.id]["text"] == "seven and eight"
    last = prompts(org, 2)["desk"]
    assert '"tool": "ask_ann", "args": {"message": "a?"}, "success": true, "output": "it is 7"' in last
    assert '"output": "it is 8"' in last


def test_a_call_fails_whose_member_the_asker_may_not_read_any_more(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": "FAILED", "reply": say("ann is gone", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}))},
        {"agent": "ann", "reply": calls(("list_agents", {}))},
    ]
    org = org_of(tmp_path, desk("ann"), resume("ann", **QUIET), script=script)
    request = ask(org, "desk")
    tick(org)
    file = org / "agents/desk/resume.json"
    plain = json.loads(file.read_text())
    file.write_text(json.dumps({**plain, "permissions": {"read_outboxes": ["human"]}, "team": {}}))
    tick(org)
    assert answers(org, "desk")[request.id]["text"] == "ann is gone"


def test_nobody_is_woken_twice_while_answers_come_in(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": '"output": "', "reply": say("done", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}), ("ask_bob", {"message": "b?"}))},
        {"reply": say("here")},
    ]
    slow = resume("bob", schedule={"wake": "addressed", "run_every_n_ticks": 4})
    org = org_of(tmp_path, desk("ann", "bob"), resume("ann", **QUIET), slow, script=script)
    ask(org, "desk")
    assert turns(org, 7) == ["desk", "ann", "bob", "desk"]


@pytest.mark.parametrize(("wait", "expected"), [("first", 2), (1, 2), (2, 5), ("all", 5)])
def test_a_turn_may_wait_for_the_first_or_for_some(tmp_path: Path, wait: str | int, expected: int) -> None:
    asked = calls(("ask_ann", {"message": "a?", "wait": wait}), ("ask_bob", {"message": "b?"}))
    script = [
        {"agent": "desk", "contains": '"output": "', "reply": say("done", kind="response")},
        {"agent": "desk", "reply": asked},
        {"reply": say("here")},
    ]
    slow = resume("bob", schedule={"wake": "addressed", "run_every_n_ticks": 4})
    org = org_of(tmp_path, desk("ann", "bob"), resume("ann", **QUIET), slow, script=script)
    request = ask(org, "desk")
    turns(org, expected)
    assert request.id in answers(org, "desk") or expected == 2
    turns(org, 1)
    assert request.id in answers(org, "desk")


def test_what_fails_or_runs_out_is_a_result_in_words(tmp_path: Path) -> None:
    asked = calls(("ask_ann", {"message": "a?"}), ("ask_bob", {"message": "b?", "deadline": 2}))
    refused = {"kind": "response", "payload": {"text": "not mine", "status": "refused"}, "tags": []}
    script = [
        {"agent": "desk", "contains": "REFUSED", "reply": say("done", kind="response")},
        {"agent": "desk", "reply": asked},
        {"agent": "ann", "reply": {**calls(), "outbox_entries": [refused]}},
    ]
    never = resume("bob", schedule={"run_every_n_ticks": 100, "phase_offset": 1})
    org = org_of(tmp_path, desk("ann", "bob"), resume("ann", **QUIET), never, script=script)
    ask(org, "desk")
    turns(org, 4)
    last = prompts(org, 4)["desk"]
    assert '"success": false, "output": "REFUSED: not mine"' in last
    assert '"success": false, "output": "EXPIRED: bob did not answer by tick 3"' in last


def test_a_circle_is_refused_by_name(tmp_path: Path) -> None:
    script = [
        {"agent": "ann", "contains": "circle", "reply": say("alone", kind="response")},
        {"agent": "ann", "reply": calls(("ask_desk", {"message": "you?"}))},
        {"agent": "desk", "contains": '"output": "alone"', "reply": say("done", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}))},
    ]
    ann = resume("ann", team={"ask": ["desk"]}, **QUIET)
    org = org_of(tmp_path, desk("ann"), ann, script=script)
    request = ask(org, "desk")
    turns(org, 5)
    assert "refused: it would go round in a circle: desk asks ann asks desk" in prompts(org, 3)["ann"]
    assert answers(org, "desk")[request.id]["text"] == "done"


def test_depth_and_number_of_questions_have_limits(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": "refused", "reply": say("done", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}), ("ask_ann", {"message": "again?"}))},
        {"agent": "ann", "contains": "refused: 2 agents wait", "reply": say("alone", kind="response")},
        {"agent": "ann", "reply": calls(("ask_bob", {"message": "b?"}))},
    ]
    ann = resume("ann", team={"ask": ["bob"], "max_depth": 2}, **QUIET)
    org = org_of(tmp_path, desk("ann", max_asked=1), ann, resume("bob", **QUIET), script=script)
    ask(org, "desk")
    turns(org, 5)
    assert "refused: 1 questions have been asked" in prompts(org, 3)["desk"]
    assert answers(org, "ann") != {}
    assert said(org, "bob") == []


def test_one_who_cannot_be_reached_is_not_asked(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": "cannot read", "reply": say("done", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}), ("ask_nobody", {"message": "?"}))},
    ]
    deaf = resume("ann", permissions={"read_outboxes": []}, **QUIET)
    asking = desk("ann", "nobody")
    asking["team"]["may_be_absent"] = True
    org = org_of(tmp_path, asking, deaf, script=script)
    ask(org, "desk")
    turns(org, 2)
    assert 'ann cannot read desk: \\"desk\\" is missing in its read_outboxes' in prompts(org, 2)["desk"]
    assert 'there is no agent \\"nobody\\"' in prompts(org, 2)["desk"]
    assert [kind for kind, _ in said(org, "desk")] == ["response"]


def test_a_request_that_is_handed_on_is_answered_to_whoever_asked_first(tmp_path: Path) -> None:
    handed = calls(("hand_to_billing", {"message": "a bill"}), ("ask_ann", {"message": "skipped"}))
    script = [{"agent": "desk", "reply": handed}, {"agent": "billing", "reply": say("paid")}]
    others = resume("billing", **QUIET), resume("ann", **QUIET)
    org = org_of(tmp_path, desk("ann", hand_to=["billing"]), *others, script=script)
    request = ask(org, "desk", "where is my bill?")
    assert turns(org, 3) == ["desk", "billing"] or turns(org, 1) == []
    assert answers(org, "billing")[request.id]["target"] == "human"
    assert "where is my bill?" in prompts(org, 2)["billing"]
    assert "a bill" in prompts(org, 2)["billing"]
    assert open_of(org, "desk") == open_of(org, "billing") == []
    assert said(org, "ann") == []


def test_the_answer_to_a_request_that_was_handed_on_reaches_the_agent_that_asked(tmp_path: Path) -> None:
    script = [
        {"agent": "boss", "contains": '"output": "paid"', "reply": say("settled", kind="response")},
        {"agent": "boss", "reply": calls(("ask_desk", {"message": "the bill?"}))},
        {"agent": "desk", "reply": calls(("hand_to_billing", {"message": "a bill"}))},
        {"agent": "billing", "reply": say("paid")},
    ]
    boss = resume("boss", team={"ask": ["desk"]}, **QUIET)
    org = org_of(tmp_path, boss, desk(hand_to=["billing"]), resume("billing", **QUIET), script=script)
    request = ask(org, "boss")
    turns(org, 5)
    assert answers(org, "boss")[request.id]["text"] == "settled"


def test_what_an_agent_asks_on_its_own_account_comes_back_as_well(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": '"output": "it is 7"', "reply": say("noted")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}))},
        {"agent": "ann", "reply": say("it is 7")},
    ]
    org = org_of(tmp_path, desk("ann"), resume("ann", **QUIET), script=script)
    write_person_entry(org, "human", tick=load_tick(org), kind="message", payload={"text": "hi", "target": "desk"},
         tags=[], created_at="")  # fmt: skip
    assert turns(org, 4) == ["desk", "ann", "desk"]
    assert said(org, "desk")[-1] == ("message", {"text": "noted"})
    assert open_of(org, "desk") == []


def test_one_of_several_gets_a_request_and_another_when_it_takes_too_long(tmp_path: Path) -> None:
    pool = [resume(name, turn={"take": "one"}, **QUIET) for name in ("ann", "bob")]
    org = org_of(tmp_path, *pool, script=[{"error": "Unavailable"}])
    ask(tried_once(org), "ann", target=["ann", "bob"], join="first", within=2)
    tried = [[turn.agent for turn in tick(org).turns if turn.status == "failed"] for _ in range(4)]
    assert sorted(map(tuple, tried)) == [("ann",), ("ann",), ("bob",), ("bob",)]
    assert tried[0] == tried[1] != tried[2] == tried[3]


@pytest.mark.parametrize(
    ("team", "said_of_it"),
    [
        ({"ask": [{"agent": "ann", "ass": "x"}]}, "ass"),
        ({"ask": [{"as": "x"}]}, 'must have "agent"'),
        ({"ask": ["ann", {"agent": "bob", "as": "ann"}]}, 'names must be unique, got "ann" twice'),
    ],
)
def test_a_team_that_makes_no_sense_is_refused(tmp_path: Path, team: dict[str, Any], said_of_it: str) -> None:
    org = org_of(tmp_path, resume("desk", team=team))
    assert said_of_it in str(survey_agents(org).broken["desk"])


def test_a_team_at_work_writes_the_same_bytes_however_many_turns_run_at_once(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": '"output": "', "reply": say("done", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}), ("ask_bob", {"message": "b?"}))},
        {"reply": say("here")},
    ]
    written = []
    for at_once in (1, 2, 8):
        others = resume("ann", **QUIET), resume("bob", **QUIET)
        org = org_of(tmp_path / str(at_once), desk("ann", "bob"), *others, script=script)
        (org / "config/org.json").write_text(f'{{"max_parallel": {at_once}}}')
        for number in range(3):
            ask(org, "desk", f"question {number}", conversation=f"c{number}")
        run_forever(org, max_ticks=12, interval_s=0, clock=FrozenClock())
        found = [entry.content for name in ("desk", "ann", "bob") for entry in read_outbox_entries(org, name)]
        ledgers = [(org / f"agents/{name}/turns.jsonl").read_bytes() for name in ("desk", "ann", "bob")]
        written.append((found, ledgers))
    assert written[0] == written[1] == written[2]
    assert len(answers(org, "desk")) == 3


def test_ticks_do_not_follow_each_other_for_an_answer_that_waits_for_another(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}), ("ask_bob", {"message": "b?"}))},
        {"reply": say("here")},
    ]
    org = org_of(tmp_path, desk("ann", "bob"), resume("ann", **QUIET), resume("bob", **QUIET), script=script)
    ask(org, "desk")
    tick(org)
    (org / "agents/bob/resume.json").write_text("{")
    assert len([*ticks(org, until_quiet=True, clock=FrozenClock())]) <= 2


@pytest.mark.parametrize("steps", [1, 3])
def test_a_refused_call_is_told_counted_and_not_asked_for_without_end(tmp_path: Path, steps: int) -> None:
    team = {"ask": ["ann"], "max_depth": 1}
    lead = resume("desk", team=team, turn={"max_steps": steps}, **QUIET)
    again = calls(("ask_ann", {"message": "a?"}))
    script = [{"agent": "desk", "reply": again}, {"reply": say("x")}]
    org = org_of(tmp_path, lead, resume("ann", **QUIET), script=script)
    request = ask(org, "desk")
    taken = [turn for _ in range(10) for turn in tick(org).turns if turn.agent == "desk" and turn.calls]
    assert sum(turn.calls for turn in taken) <= 6
    assert {(use["tool"], use["outcome"]) for turn in taken for use in turn.tools} == {("ask_ann", "refused")}
    assert "agents wait for each other already" in taken[0].remarks[0]
    assert "again and again" in answers(org, "desk")[request.id]["text"]
    assert "ask_ann has given the same three times" in "".join(prompts(org, it)["desk"] for it in ticks_of(org))
    assert [it.tick for it in replay_ticks(org, ticks_of(org))] == ticks_of(org)


def ticks_of(org: Path) -> list[int]:
    return [it for it in journal_ticks(org) if "desk" in prompts(org, it)]


def test_failures_that_differ_or_are_few_end_nothing(tmp_path: Path) -> None:
    wrong = [calls(("file_read", {"path": f"./workspace/{number}.txt"})) for number in range(6)]
    script = [{"agent": "desk", "tick": 1 + at, "reply": reply} for at, reply in enumerate(wrong)]
    may = {"read_outboxes": ["*"], "tools": ["file_read"]}
    reader = resume("desk", permissions=may, turn={"take": "one"}, **QUIET)
    org = org_of(tmp_path, reader, script=[*script, {"reply": say("there is none", kind="response")}])
    request = ask(org, "desk")
    for _ in range(8):
        tick(org)
    assert answers(org, "desk")[request.id]["text"] == "there is none"


def test_what_is_asked_in_the_turn_that_answers_is_said_to_be_in_vain(tmp_path: Path) -> None:
    asked = calls(("ask_ada", {"message": "what?"}))
    reply = {**asked, "outbox_entries": say("here", kind="response")["outbox_entries"]}
    org = org_of(tmp_path, desk("ada"), resume("ada", **QUIET), script=[{"agent": "desk", "reply": reply}])
    ask(org, "desk")
    (turn,) = (turn for turn in tick(org).turns if turn.calls)
    assert turn.remarks == [f"{turn.entries[1]['id']}: asked in vain, for this turn answers"]
    assert turns(org, 3) == []


def test_a_request_that_is_handed_on_keeps_its_deadline_and_its_moment(tmp_path: Path) -> None:
    script = [{"agent": "desk", "reply": calls(("hand_to_billing", {"message": "a bill"}))}]
    org = org_of(tmp_path, desk(hand_to=["billing"]), resume("billing", **QUIET), script=script)
    ask(org, "desk", deadline=5, not_after="2026-12-01T12:00:00.000Z")
    turns(org, 1)
    ((kind, payload),) = said(org, "desk")
    assert (kind, payload["deadline"], payload["not_after"]) == (
        "request", 5, "2026-12-01T12:00:00.000Z")  # fmt: skip


def test_a_team_in_which_one_cannot_read_the_other_is_named_before_it_runs(tmp_path: Path) -> None:
    deaf = resume("ann", permissions={"read_outboxes": []})
    asking = resume("desk", team={"ask": ["ann"]}, permissions={"read_outboxes": ["human"]})
    org = org_of(tmp_path, asking, deaf)
    found = [it for it in validate_agents(org, load_config(org), "desk") if it.pointer == "/team/ask/0"]
    assert [it.message for it in found] == ["ann may not read the requests", "desk may not read the answers"]
    assert [it.hint for it in found] == [
        'add "desk" to read_outboxes in agents/ann/resume.json',
        'add "ann" to read_outboxes in agents/desk/resume.json',
    ]


def test_nobody_is_in_its_own_team(tmp_path: Path) -> None:
    org = org_of(tmp_path, desk("desk"))
    (turn,) = (turn for turn in tick(org).turns if turn.agent == "desk")
    assert (turn.status, turn.error, turn.calls) == ("failed", "ConfigError", 0)
    assert "an agent must not be in its own team (remove it)" in turn.reason


@pytest.mark.parametrize(
    ("team", "tool", "args", "outcome"),
    [
        ({"ask": ["ann"], "max_asked": 1}, "ask_ann", {"message": "again?"}, "refused"),
        ({"ask": ["ann"], "max_asked": 1}, "ask_ann", {"massage": "x"}, "invalid_args"),
        ({"ask": ["ann"], "hand_to": ["bob"]}, "hand_to_bob", {"message": "x"}, "refused"),
    ],
)
def test_a_call_to_the_team_that_is_refused_is_on_record(
    tmp_path: Path, team: dict[str, Any], tool: str, args: dict[str, Any], outcome: str
) -> None:
    asked = calls(("ask_ann", {"message": "a?"}), (tool, args))
    script = [{"agent": "desk", "reply": asked}, {"reply": say("7", kind="response")}]
    deaf = resume("bob", permissions={"read_outboxes": []}, **QUIET)
    org = org_of(tmp_path, resume("desk", team=team, **QUIET), resume("ann", **QUIET), deaf, script=script)
    heard: list[Any] = []
    ask(org, "desk")
    run_once(org, clock=FrozenClock(), notify=heard.append)
    records = [it for it in journal_lines(org, 1) if it["type"] == "tool_finished" and it["agent"] == "desk"]
    assert [(it["tool"], it["outcome"], it["index"]) for it in records] == [(tool, outcome, 1)]
    assert [it.tool for it in heard if isinstance(it, ToolFinished)] == [tool]
    assert run(["-C", str(org), "replay"]) == 0
    assert run(["-C", str(org), "verify"]) == 0
