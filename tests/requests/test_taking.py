"""Which request a turn is for, what it is shown, and what counts as its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, open_of, org_of, prompts, said, tick, tried_once

from lemming.kernel.org.config import load_config
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.queries.tick_preview import preview_tick
from lemming.testing import journal_lines, resume, say

ONE = {"turn": {"take": "one"}}


def reply(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"outbox_entries": [*entries], "tool_calls": [], "memory_updates": [], "notes": "", **more}


def entry(kind: str, text: str, **payload: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": {"text": text, **payload}, "tags": []}


def test_a_turn_is_for_one_request_and_shows_no_other(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", **ONE), script=[{"reply": say("here", kind="response")}])
    first, second = ask(org, "ada", "the first"), ask(org, "ada", "the second")
    tick(org)
    assert "the first" in prompts(org, 1)["ada"]
    assert "the second" not in prompts(org, 1)["ada"]
    assert answers(org, "ada").keys() == {first.id}
    tick(org)
    assert answers(org, "ada").keys() == {first.id, second.id}
    assert prompts(org, 2)["ada"].count("the second") == 1  # not among what was said before it, too


def test_the_prompt_that_is_looked_at_before_is_the_turns_also_where_others_are_no_news(tmp_path: Path) -> None:
    quiet = resume("ada", schedule={"wake": "addressed"}, **ONE)
    org = org_of(tmp_path, quiet, script=[{"reply": say("here", kind="response")}])
    ask(org, "ada", "the first")
    tick(org)
    payload = {"text": "to nobody by name"}
    write_person_entry(org, "human", tick=load_tick(org), kind="message", payload=payload, tags=[], created_at="")
    tick(org)
    ask(org, "ada", "the second")
    before = preview_tick(org, load_config(org)).build_prompt("ada").inputs.prompt[-1]["content"]
    tick(org)
    assert before == prompts(org, 3)["ada"]


def test_a_message_is_taken_for_the_answer_of_a_model_that_knows_no_other_kind(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", turn={"take": "one", "kinds": ["message"]}))
    request = ask(org, "ada")
    tick(org)
    assert said(org, "ada") == [
        ("response", {"text": "hello", "reply_to": request.id, "conversation": "talk", "target": "human"})
    ]


def test_what_is_written_before_and_after_the_answer_stays_in_its_place(tmp_path: Path) -> None:
    before, after = entry("message", "first", target="zoe"), entry("message", "last", target="zoe")
    script = [{"agent": "ada", "reply": reply(before, entry("message", "here", target="human"), after)}]
    org = org_of(tmp_path, resume("ada", **ONE), resume("zoe", schedule={"wake": "addressed"}), script=script)
    request = ask(org, "ada")
    tick(org)
    assert [(kind, payload["text"]) for kind, payload in said(org, "ada")] == [
        ("message", "first"),
        ("response", "here"),
        ("message", "last"),
    ]
    assert answers(org, "ada").keys() == {request.id}


def test_an_answer_is_owed_to_whoever_asked_whatever_the_model_says(tmp_path: Path) -> None:
    script = [{"reply": reply(entry("response", "here", target="bob"))}]
    org = org_of(tmp_path, resume("ada", **ONE), resume("bob", schedule={"wake": "addressed"}), script=script)
    request = ask(org, "ada")
    tick(org)
    assert answers(org, "ada")[request.id]["target"] == "human"


def test_what_is_asked_for_a_request_is_its_child_and_comes_back_to_it(tmp_path: Path) -> None:
    script = [
        {"agent": "ada", "contains": "What you asked for it", "reply": say("seven", kind="response")},
        {"agent": "ada", "reply": reply(entry("request", "how many?", target="bob"))},
        {"agent": "bob", "reply": say("7", kind="response")},
    ]
    quiet = {"schedule": {"wake": "addressed"}}
    org = org_of(tmp_path, resume("ada", **quiet, **ONE), resume("bob", **quiet, **ONE), script=script)
    request = ask(org, "ada", "count them")
    turns = [turn for _ in range(4) for turn in tick(org).turns if turn.calls]
    child = next(entry for entry in read_outbox_entries(org, "ada") if entry.kind == "request")
    assert child.payload["parent"] == request.id
    assert answers(org, "bob")[child.id]["target"] == "ada"
    assert answers(org, "ada")[request.id]["text"] == "seven"
    assert [(turn.agent, turn.request) for turn in turns] == [
        ("ada", request.identity), ("bob", child.identity), ("ada", request.identity),
    ]  # fmt: skip
    assert open_of(org, "ada") == open_of(org, "bob") == []


def test_an_agent_that_waits_takes_other_requests_meanwhile(tmp_path: Path) -> None:
    script = [
        {"agent": "ada", "contains": "hard", "reply": reply(entry("request", "help", target="bob"))},
        {"agent": "ada", "reply": say("easy", kind="response")},
    ]
    bob = resume("bob", schedule={"run_every_n_ticks": 1000, "phase_offset": 1})
    org = org_of(tmp_path, resume("ada", **ONE), bob, script=script)
    hard, easy = ask(org, "ada", "hard"), ask(org, "ada", "plain", conversation="other")
    tick(org)
    tick(org)
    assert answers(org, "ada").keys() == {easy.id}
    assert open_of(org, "ada") == [hard.identity]


def test_tool_results_come_in_the_next_turn_of_the_same_request(tmp_path: Path) -> None:
    script = [
        {"contains": '"tool": "list_agents"', "reply": say("two of us", kind="response")},
        {"contains": "who is here", "reply": reply(tool_calls=[{"tool": "list_agents", "args": {}}])},
        {"reply": say("other", kind="response")},
    ]
    org = org_of(tmp_path, resume("ada", **ONE), script=script)
    first = ask(org, "ada", "who is here")
    second = ask(org, "ada", "something else", conversation="other")
    tick(org)
    tick(org)
    assert answers(org, "ada")[first.id]["text"] == "two of us"
    tick(org)
    assert answers(org, "ada")[second.id]["text"] == "other"
    assert '"tool"' not in prompts(org, 3)["ada"].split("# Your reply")[0]


def test_a_request_past_its_deadline_is_never_taken(tmp_path: Path) -> None:
    slow = resume("ada", schedule={"run_every_n_ticks": 5, "phase_offset": 1, "wake": "addressed"}, **ONE)
    org = org_of(tmp_path, slow)
    ask(org, "ada", deadline=2)
    for _ in range(6):
        assert not any(turn.calls for turn in tick(org).turns)


def test_an_asker_goes_on_when_time_is_up_though_nothing_has_changed(tmp_path: Path) -> None:
    script = [
        {"agent": "ada", "contains": '"end": "expired"', "reply": say("without bob", kind="response")},
        {"agent": "ada", "reply": reply(entry("request", "help", target="bob", deadline=2, default="none"))},
    ]
    bob = resume("bob", schedule={"run_every_n_ticks": 1000, "phase_offset": 1})
    ada = resume("ada", schedule={"wake": "addressed"}, **ONE)
    org = org_of(tmp_path, ada, bob, script=script)
    request = ask(org, "ada")
    calls = [sum(turn.calls for turn in tick(org).turns) for _ in range(5)]
    assert calls == [1, 0, 0, 1, 0]
    assert '"answer": {"text": "none"}' in prompts(org, 4)["ada"]
    assert answers(org, "ada")[request.id]["text"] == "without bob"


def test_what_is_asked_for_a_request_has_its_deadline(tmp_path: Path) -> None:
    script = [{"agent": "ada", "reply": reply(entry("request", "help", target="bob", deadline=50))}]
    bob = resume("bob", schedule={"run_every_n_ticks": 1000, "phase_offset": 1})
    org = org_of(tmp_path, resume("ada", **ONE), bob, script=script)
    ask(org, "ada", deadline=4)
    tick(org)
    assert said(org, "ada")[0][1]["deadline"] == 4


@pytest.mark.parametrize("by", ["human", "eve"])
def test_a_cancelled_request_is_not_taken(tmp_path: Path, by: str) -> None:
    org = org_of(tmp_path, resume("ada", **ONE), resume("eve", model={"key": "human"}))
    request = ask(org, "ada")
    payload = {"cancels": [request.id], "target": "ada"}
    write_person_entry(org, by, tick=load_tick(org), kind="status", payload=payload, tags=[], created_at="")
    tick(org)
    report = tick(org)
    assert answers(org, "ada") == {}
    assert request.id in (org / request.file).read_text()
    assert all(not turn.request for turn in report.turns)


def test_a_reply_with_nothing_in_it_is_asked_for_again_and_then_fails(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", **ONE), script=[{"reply": reply()}])
    request = ask(org, "ada")
    turn = tick(org).turns[0]
    assert turn.calls == 2
    assert answers(org, "ada")[request.id] == {
        "reply_to": request.id, "status": "failed", "text": "no answer was given", "conversation": "talk",
        "target": "human",
    }  # fmt: skip


def test_a_model_that_never_gives_a_reply_fails_the_request_at_the_third_turn(tmp_path: Path) -> None:
    ada = resume("ada", turn={"take": "one", "repairs": 0}, schedule={"wake": "addressed"})
    org = org_of(tmp_path, ada, script=[{"reply": "no json"}])
    request = ask(org, "ada")
    assert [tick(org).turns[0].status for _ in range(4)] == ["failed", "failed", "done", "skipped"]
    assert answers(org, "ada")[request.id]["status"] == "failed"


def test_a_provider_that_is_down_does_not_fail_a_request(tmp_path: Path) -> None:
    ada = resume("ada", **ONE)
    org = org_of(tmp_path, ada, script=[{"error": "Unavailable"}])
    ask(tried_once(org), "ada")
    assert [tick(org).turns[0].status for _ in range(5)] == ["failed"] * 5
    assert said(org, "ada") == []


def test_an_addressed_agent_sleeps_through_what_is_not_for_it(tmp_path: Path) -> None:
    bob = resume("bob", schedule={"wake": "addressed"})
    org = org_of(tmp_path, resume("ada"), bob)
    for _ in range(3):
        report = tick(org)
        assert [turn.agent for turn in report.turns if turn.calls] == ["ada"]
    assert "nothing was addressed to it" in report.turns[1].reason
    write_person_entry(
        org,
        "human",
        tick=load_tick(org),
        kind="message",
        payload={"text": "x", "target": "bob"},
        tags=[],
        created_at="",
    )
    assert [turn.agent for turn in tick(org).turns if turn.calls] == ["ada", "bob"]
    assert [turn.agent for turn in tick(org).turns if turn.calls] == ["ada"]


def test_requests_do_not_keep_an_older_entry_waiting_for_ever(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", **ONE), script=[{"reply": say("yes", kind="response")}])
    write_person_entry(
        org, "human", tick=load_tick(org), kind="message", payload={"text": "news"}, tags=[], created_at=""
    )
    for number in range(3):
        ask(org, "ada", f"question {number}")
    for _ in range(4):
        tick(org)
    asked = ["# Asked of you" in prompts(org, number)["ada"] for number in range(1, 5)]
    assert asked == [True, False, True, True]
    assert "news" in prompts(org, 2)["ada"]


def test_a_conversation_shows_what_was_said_before_in_it_and_nothing_of_others(tmp_path: Path) -> None:
    script = [{"contains": "one", "reply": say("1", kind="response")}, {"reply": say("2", kind="response")}]
    org = org_of(tmp_path, resume("ada", **ONE), script=script)
    for conversation, text in (("a", "one"), ("b", "two"), ("a", "three")):
        ask(org, "ada", text, conversation=conversation)
        tick(org)
    last = prompts(org, 3)["ada"]
    assert "one" in last
    assert '"1"' in last
    assert "two" not in last


def test_a_request_of_a_person_who_does_not_wait_is_part_of_the_inbox_as_ever(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada"))
    write_person_entry(
        org,
        "human",
        tick=load_tick(org),
        kind="request",
        payload={"text": "q", "target": "ada"},
        tags=[],
        created_at="",
    )
    tick(org)
    assert "# New entries in your inbox" in prompts(org, 1)["ada"]
    assert said(org, "ada") == [("message", {"text": "hello"})]


def test_an_agent_that_takes_all_finds_what_is_asked_of_it_in_a_section_until_it_has_answered(tmp_path: Path) -> None:
    script = [{"tick": 2, "reply": say("here", kind="response")}, {"reply": reply(entry("status", "busy"))}]
    org = org_of(tmp_path, resume("ada", turn={"take": "all"}), script=script)
    request = ask(org, "ada", "how many?")
    for _ in range(3):
        tick(org)
    sections = [prompts(org, number)["ada"].partition("# Asked of you")[2] for number in (1, 2, 3)]
    assert ["how many?" in section for section in sections] == [True, True, False]
    assert answers(org, "ada")[request.id] == {"text": "here", "reply_to": request.id, "target": "human"}


def test_an_agent_that_takes_all_keeps_what_it_leaves_open_once(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", turn={"take": "all"}), script=[{"reply": reply(entry("status", "busy"))}])
    request = ask(org, "ada", "how many?")
    for _ in range(3):
        tick(org)
    assert open_of(org, "ada") == [request.identity]


def test_an_agent_that_takes_all_keeps_nothing_of_what_it_has_answered(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", turn={"take": "all"}), script=[{"reply": say("here", kind="response")}])
    request = ask(org, "ada", "how many?")
    tick(org)
    assert (open_of(org, "ada"), answers(org, "ada").keys()) == ([], {request.id})


def test_a_request_that_fails_has_the_time_of_the_models_last_answer(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", **ONE), script=[{"reply": reply()}])
    ask(org, "ada")
    for _ in range(3):
        tick(org)
    answered_at = [line["at"] for line in journal_lines(org, 3) if line["type"] == "model_replied"]
    failure = read_outbox_entries(org, "ada")[-1]
    assert (failure.payload["status"], failure.created_at) == ("failed", answered_at[-1])


def test_an_agent_that_takes_all_is_not_asked_what_was_cancelled_before_it_answered(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", turn={"take": "all"}), script=[{"reply": reply(entry("status", "busy"))}])
    request = ask(org, "ada", "how many?")
    tick(org)
    ask(org, "ada", "never mind", kind="status", cancels=request.id)
    tick(org)
    assert "how many?" in prompts(org, 1)["ada"].partition("# Asked of you")[2]
    assert "# Asked of you" not in prompts(org, 2)["ada"]


def test_an_agent_that_takes_all_is_shown_answers_apart_from_other_news(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", turn={"take": "all"}))
    ask(org, "ada", "yes", kind="response", reply_to="0123456789ab")
    write_person_entry(
        org, "human", tick=load_tick(org), kind="message", payload={"text": "hm"}, tags=[], created_at=""
    )
    tick(org)
    answered, new = prompts(org, 1)["ada"].split("# New entries in your inbox")
    assert '"yes"' in answered.partition("# Answers to what you asked")[2]
    assert '"hm"' in new


def test_a_person_whom_the_holder_may_not_read_cancels_nothing(tmp_path: Path) -> None:
    ada = resume("ada", permissions={"read_outboxes": ["human"]}, **ONE)
    org = org_of(tmp_path, ada, resume("eve", model={"key": "human"}))
    request = ask(org, "ada")
    payload = {"cancels": [request.id], "target": "ada"}
    write_person_entry(org, "eve", tick=load_tick(org), kind="status", payload=payload, tags=[], created_at="")
    tick(org)
    assert request.id in answers(org, "ada")
