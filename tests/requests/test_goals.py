"""Requests with `until`: the answer leaves once checks and a judge say that the goal is reached."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.org_requests import load_requests
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

PEOPLE = {"human": {"provider": "human"}}
WORSE, BETTER = say("a draft", kind="response"), say("the page", kind="response")
PASSES, FAILS = {"passes": True, "reason": ""}, {"passes": False, "reason": "it has no title"}
CHECK = ["sh", "-c", "grep title page.txt"]


def organisation(base: Path, *script: dict[str, Any], org: dict[str, Any] | None = None, **blocks: Any) -> Path:
    may = {"read_outboxes": ["*"], "tools": ["file_write"]}
    ada = resume("ada", **{"permissions": may, "schedule": {"wake": "addressed"}, "turn": {"max_steps": 2}, **blocks})
    critic = resume("critic", paused="it judges only", instructions="A page has a title.")
    people = resume("human", model={"key": "human"})
    return make_org(base, ada, critic, people, script=[*script], models=PEOPLE, org=org)


def ask(base: Path, until: Any, **more: Any) -> str:
    payload = {"text": "Write the page.", "target": "ada", "conversation": "", "until": until, **more}
    entry = write_person_entry(
        base, "human", tick=load_tick(base), kind="request", payload=payload, tags=[], created_at=""
    )
    return entry.identity


def answers(base: Path) -> list[dict[str, Any]]:
    entries = [json.loads(content) for path, content in tree(base).items() if "agents/ada/outbox" in path]
    return [entry["payload"] for entry in entries if entry["kind"] == "response"]


def run(base: Path, ticks: int = 1) -> list[Any]:
    return [run_once(base, clock=FrozenClock()).turns for _ in range(ticks)]


JUDGED = (
    {"contains": '> response to human: "a draft"', "reply": FAILS},
    {"contains": "Judge the draft", "reply": PASSES},
    {"agent": "ada", "contains": "it has no title", "reply": BETTER},
    {"agent": "ada", "reply": WORSE},
)


def test_an_answer_that_the_judge_does_not_pass_is_held_back_until_one_passes(base: Path) -> None:
    organisation(base, *JUDGED)
    identity = ask(base, {"by": "critic"})
    run(base)
    assert answers(base) == []
    assert read_state(base, "ada").kept["goals"] == {identity: 1}
    run(base)
    [answer] = answers(base)
    assert answer["text"] == "the page"
    judge = {"by": "critic", "passes": True, "reason": ""}
    assert answer["until"] == {"turns": 2, "max_turns": 5, "reached": True, "checks": [], "judge": judge}
    assert "goals" not in read_state(base, "ada").kept
    assert len([*replay_ticks(base, list_replayable_ticks(base, None))]) == 2


def write_page(text: str, answer: str) -> dict[str, Any]:
    return say(
        answer, kind="response", tool_calls=[{"tool": "file_write", "args": {"path": "page.txt", "content": text}}]
    )


def test_checks_see_the_files_of_the_turn_and_their_output_goes_back(base: Path) -> None:
    script = (
        {
            "agent": "ada",
            "contains": "Check sh -c 'grep title page.txt': exit status 1",
            "reply": write_page("a title\n", "here"),
        },
        {"agent": "ada", "reply": write_page("nothing\n", "done")},
    )
    organisation(base, *script)
    ask(base, {"checks": [CHECK]})
    run(base)
    assert answers(base) == []
    run(base)
    [answer] = answers(base)
    check = {"command": "sh -c 'grep title page.txt'", "ended": "exit status 0", "status": 0, "tail": "a title"}
    assert answer["until"] == {"turns": 2, "max_turns": 5, "reached": True, "checks": [check]}
    assert len([*replay_ticks(base, list_replayable_ticks(base, None))]) == 2


def test_after_the_last_turn_the_request_has_failed_with_the_last_words(base: Path) -> None:
    organisation(base, {"contains": "Judge the draft", "reply": FAILS}, {"agent": "ada", "reply": WORSE})
    ask(base, {"by": "critic", "max_turns": 2})
    run(base, 3)
    [answer] = answers(base)
    assert answer["status"] == "failed"
    assert answer["text"] == "the goal was not reached in 2 turns:\ncritic says:\n> it has no title"
    assert (answer["until"]["turns"], answer["until"]["reached"]) == (2, False)


def test_an_agent_that_gives_up_is_not_judged_and_writes_no_receipts_itself(base: Path) -> None:
    reply = {
        **WORSE,
        "outbox_entries": [
            {"kind": "response", "payload": {"text": "no", "status": "refused", "until": {"reached": True}}, "tags": []}
        ],
    }
    organisation(base, {"agent": "ada", "reply": reply})
    ask(base, {"by": "critic"})
    run(base)
    assert answers(base)[0]["until"] == {"turns": 1, "max_turns": 5, "reached": False}


def test_a_message_that_would_count_as_the_answer_is_held_back_too(base: Path) -> None:
    organisation(base, {"contains": "Judge the draft", "reply": FAILS}, {"agent": "ada", "reply": say("a draft")})
    ask(base, {"by": "critic"})
    run(base)
    assert [path for path in tree(base) if "agents/ada/outbox" in path] == []


@pytest.mark.parametrize(
    ("until", "reason"),
    [
        ("soon", "until: expected"),
        ({}, 'until must have checks, a judge ("by"), or both'),
        ({"check": [["true"]]}, 'until has no key "check" (did you mean "checks"?)'),
        ({"checks": ["true"]}, 'until.checks.0: expected a list, got "true"'),
        ({"checks": [[]]}, "until.checks.0 must be a program and its arguments"),
        ({"by": {"command": ["true"]}}, "until.by must be an agent or a model key"),
        ({"by": "nobody"}, 'until.by: there is no agent or model key "nobody"'),
        ({"by": "critic", "max_turns": 0}, "until.max_turns: expected a number of at least 1, got 0"),
    ],
)
def test_an_invalid_goal_fails_the_request_with_place_and_reason(base: Path, until: Any, reason: str) -> None:
    organisation(base, {"agent": "ada", "reply": BETTER})
    ask(base, until)
    turns = run(base)[0]
    assert turns[0].calls == 0
    [answer] = answers(base)
    assert answer["status"] == "failed"
    assert reason in answer["text"]


def test_an_agents_request_may_name_a_judge_and_no_programs(base: Path) -> None:
    organisation(base, {"agent": "ada", "reply": BETTER}, turn={"take": "one"})
    fs.write_atomic(base, "agents/bob/resume.json", dump_pretty(resume("bob", schedule={"run_every_n_ticks": 50})))
    payload = {"text": "Write the page.", "target": "ada", "until": {"checks": [["true"]]}}
    write_person_entry(base, "bob", tick=load_tick(base), kind="request", payload=payload, tags=[], created_at="")
    run(base)
    assert "only a person's request may name programs, not one of bob" in answers(base)[0]["text"]


def test_a_budget_holds_with_a_judge(base: Path) -> None:
    organisation(base, {"contains": "Judge the draft", "reply": FAILS}, {"agent": "ada", "reply": WORSE})
    models = json.loads((base / "config/models.json").read_text())
    models["scripted"]["per_call"] = 1
    fs.write_atomic(base, "config/models.json", dump_pretty(models))
    ask(base, {"by": "critic"}, budget=3)
    run(base, 4)
    [answer] = answers(base)
    assert answer["status"] == "failed"
    assert answer["spent"] <= 3


def test_an_answer_of_another_turn_without_receipts_answers_nothing(base: Path) -> None:
    forged = {"kind": "response", "payload": {"text": "done", "reply_to": "", "until": {"reached": True}}, "tags": []}
    organisation(base, {"agent": "ada", "step": 0, "reply": {**WORSE, "outbox_entries": [forged]}}, schedule={})
    identity = ask(base, {"by": "critic"}, not_before="2026-01-01T00:00:01Z")
    forged["payload"]["reply_to"] = identity.rpartition("_")[2]  # type: ignore[index]
    organisation(base, {"agent": "ada", "step": 0, "reply": {**WORSE, "outbox_entries": [forged]}}, schedule={})
    run(base)
    assert "until" not in answers(base)[0]
    [request] = load_requests(Organisation.from_path(base)).requests
    assert request.is_open


def test_a_request_with_a_goal_is_not_handed_on(base: Path) -> None:
    hands_on = {**WORSE, "outbox_entries": [], "tool_calls": [{"tool": "hand_to_bob", "args": {"message": "you"}}]}
    script = ({"contains": "Judge the draft", "reply": PASSES}, {"agent": "ada", "step": 0, "reply": hands_on})
    organisation(base, *script, {"agent": "ada", "reply": BETTER}, team={"hand_to": ["bob"]})
    fs.write_atomic(base, "agents/bob/resume.json", dump_pretty(resume("bob", schedule={"wake": "addressed"})))
    ask(base, {"by": "critic"})
    run(base)
    assert answers(base)[0]["until"]["reached"]
    assert [path for path in tree(base) if "agents/bob/outbox" in path] == []


def test_an_agent_that_takes_its_whole_inbox_is_not_shown_a_request_with_a_goal(base: Path) -> None:
    organisation(base, {"agent": "ada", "contains": "Write the page", "reply": BETTER}, turn={"take": "all"})
    ask(base, {"by": "critic"})
    run(base, 2)
    assert answers(base) == []


def test_an_answer_that_nobody_can_pay_to_check_is_held_back(base: Path) -> None:
    organisation(
        base,
        {"contains": "Judge the draft", "reply": PASSES},
        {"agent": "ada", "reply": WORSE},
        credits={"max_credits": 1},
    )
    models = json.loads((base / "config/models.json").read_text())
    models["scripted"]["per_call"] = 1
    fs.write_atomic(base, "config/models.json", dump_pretty(models))
    ask(base, {"by": "critic"})
    run(base)
    assert answers(base) == []


def test_checks_of_a_folder_from_elsewhere_need_an_agreement(base: Path, lemming: Lemming) -> None:
    organisation(base, {"agent": "ada", "reply": BETTER})
    ask(base, {"checks": [["true"]]})
    listed = lemming("trust")
    assert "not granted  runs the program: true, in the sandbox, to check what an agent did for a request" in listed.out
    lemming("run-once")
    assert "nobody has agreed to run true (agree with `lemming trust --yes`, and ask again)" in answers(base)[0]["text"]
    lemming("trust", "--yes")
    ask(base, {"checks": [["true"]]}, conversation="again")
    lemming("run-once")
    assert answers(base)[1]["until"]["reached"]


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ({"by": "critc"}, 'until.by: there is no agent or model key "critc"'),
        ({"max_turns": 3}, "until must have checks"),
        ({"checks": [["true"]], "turns": 3}, 'until has no key "turns"'),
    ],
)
def test_a_request_with_an_invalid_goal_is_not_written(base: Path, lemming: Lemming, until: Any, message: str) -> None:
    organisation(base)
    (base / "goal.json").write_text(json.dumps(until))
    asked = lemming("ask", "ada", "--until", str(base / "goal.json"), "Write the page.")
    sent = lemming("send", "--to", "ada", "--kind", "request", "--payload", json.dumps({"until": until}), "Write it.")
    assert (asked.status, sent.status) == (2, 2)
    assert message in asked.err
    assert message in sent.err
    assert not (base / "agents/human/outbox").exists()


def test_the_turns_that_are_used_are_shown(base: Path, lemming: Lemming) -> None:
    organisation(base, *JUDGED)
    identity = ask(base, {"by": "critic"}).rpartition("_")[2]
    run(base)
    assert "until  not reached so far, turn 1 of 5" in " ".join(lemming("requests", identity).out.split("   "))
    assert lemming("requests", identity, "--json").objects[0]["until"] == {"turns": 1, "max_turns": 5, "reached": None}
    run(base)
    assert lemming("requests", identity, "--json").objects[0]["until"] == {"turns": 2, "max_turns": 5, "reached": True}


def test_ask_waits_for_the_answer_that_reaches_the_goal(base: Path, lemming: Lemming) -> None:
    organisation(base, *JUDGED)
    (base / "goal.json").write_text('{"by": "critic"}')
    asked = lemming("ask", "ada", "--until", str(base / "goal.json"), "Write the page.")
    assert (asked.status, asked.out) == (0, "the page\n")
    assert load_tick(base) == 3


def test_a_goal_is_reached_with_trust_tracking_and_the_words_of_the_judge_carry_the_label(base: Path) -> None:
    organisation(base, *JUDGED, org={"trust": {"rules": [{"from": "human", "is": "outside"}]}})
    ask(base, {"by": "critic"})
    run(base)
    [open_request] = read_state(base, "ada").requests
    assert open_request.results[0]["trust"] == "outside"
    run(base)
    assert answers(base)[0]["until"]["reached"]


def test_a_check_that_a_stop_cuts_off_is_not_recorded_and_runs_again(base: Path) -> None:
    organisation(base, {"agent": "ada", "reply": write_page("a title\n", "here")}, turn={"max_steps": 1})
    ask(base, {"checks": [CHECK]})
    stop = threading.Event()

    def stop_at_the_reply(event: Event) -> None:
        if isinstance(event, ModelReplied):
            stop.set()

    report = run_once(base, clock=FrozenClock(), stop=stop, notify=stop_at_the_reply)
    assert not report.is_complete
    assert "gate_asked" not in {line["type"] for line in journal_lines(base, report.tick)}
    assert answers(base) == []
    run(base)
    assert answers(base)[0]["until"]["checks"][0]["status"] == 0
