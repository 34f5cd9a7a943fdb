"""Each kind of finding: an organisation that has it, and one that only looks as if."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from circling import NOTHING, by_ticks, calls, found_in, kinds, org_of, person, run, tells

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.libraries.outbox_files import write_person_entry
from lemming.queries.findings.finding_rules import apply_rules
from lemming.queries.findings.finding_scan import scan_ticks
from lemming.testing import resume, say

GAUGE = {"read_outboxes": [], "tools": ["read_gauge", "file_write"]}
ASKED = {"read_outboxes": ["*"], "tools": []}


def ask(base: Path, whom: str, text: str = "what?", *, tick: int = 1, **payload: Any) -> str:
    """Write a request as a person, and return its id."""
    plain = {"text": text, "target": whom, "conversation": text, **payload}
    return write_person_entry(base, "human", tick=tick, kind="request", payload=plain, tags=[], created_at="").id


# --- repeats itself --------------------------------------------------------------------------------


def test_the_same_text_in_three_turns_is_a_repetition_whatever_its_capitals_and_signs(base: Path) -> None:
    org_of(base, resume("ada"), script=by_ticks("ada", "All is well.", "all is  well", "ALL IS WELL!"))
    (found,) = found_in(base, 3)
    assert (found.kind, found.agents, found.tick) == ("repeats", ("ada",), 1)
    assert found.evidence == ("1/ada", "2/ada", "3/ada")


def test_two_turns_that_say_the_same_are_not_enough(base: Path) -> None:
    org_of(base, resume("ada"), script=by_ticks("ada", "well", "well", "it rains"))
    assert found_in(base, 3) == []


def test_what_comes_round_rarely_is_no_repetition(base: Path) -> None:
    texts = [("spring", "summer", "autumn", "winter")[tick % 4] for tick in range(12)]
    org_of(base, resume("ada"), script=by_ticks("ada", *texts))
    assert found_in(base, 12) == []


def test_a_call_that_gives_the_same_in_three_turns_is_a_repetition(base: Path) -> None:
    script = [{"reply": calls("read_gauge", moves=False)}]
    org_of(base, resume("ada", permissions=GAUGE), script=script)
    assert kinds(found_in(base, 3)) == ["repeats"]


def test_polling_that_is_given_something_else_is_no_repetition(base: Path) -> None:
    org_of(base, resume("ada", permissions=GAUGE), script=[{"reply": calls("read_gauge", moves=True)}])
    assert found_in(base, 4) == []


def test_a_call_that_gives_the_same_on_the_way_to_something_new_is_no_repetition(base: Path) -> None:
    looks = calls("read_gauge", moves=False)["tool_calls"]
    script = [{"tick": tick, "reply": say(f"page {tick} is done", tool_calls=looks)} for tick in range(1, 5)]
    org_of(base, resume("ada", permissions=GAUGE), script=script)
    assert found_in(base, 4) == []


def test_the_same_answer_to_several_requests_is_no_repetition(base: Path) -> None:
    org_of(base, person(), resume("ada", permissions=ASKED), script=[{"reply": say("yes", kind="response")}])
    for text in ("is it?", "is it now?", "and now?", "still?"):
        ask(base, "ada", text)
    assert found_in(base, 4) == []


# --- ping-pong -------------------------------------------------------------------------------------


def ping_pong(base: Path, *, notes: bool = False) -> Path:
    """Two agents who answer each other, in other words each time, and may note what they were told."""
    script = []
    for one, other in (("ada", "bob"), ("bob", "ada")):
        for tick in range(1, 9):
            memory = [{"key": "told", "value": tick}] if notes else []
            reply = {**tells(other, f"{one} says {tick}"), "memory_updates": memory}
            script.append({"agent": one, "tick": tick, "reply": reply})
    each_other = {name: {"read_outboxes": [other]} for name, other in (("ada", "bob"), ("bob", "ada"))}
    return org_of(base, *(resume(name, permissions=it) for name, it in each_other.items()), script=script)


def test_two_who_do_nothing_but_answer_each_other_play_ping_pong(base: Path) -> None:
    (found,) = found_in(ping_pong(base), 6)
    assert (found.kind, found.agents) == ("ping_pong", ("ada", "bob"))
    assert found.message.startswith("ada and bob have answered each other 11 times in a row")


def test_a_few_rounds_are_a_conversation(base: Path) -> None:
    assert found_in(ping_pong(base), 3) == []


def test_who_keeps_notes_of_what_is_said_does_not_play_ping_pong(base: Path) -> None:
    assert found_in(ping_pong(base, notes=True), 6) == []


def test_two_who_hear_of_a_third_on_the_way_do_not_play_ping_pong(base: Path) -> None:
    ping_pong(base)
    for name in ("ada", "bob"):
        fs.write_atomic(base, f"agents/{name}/resume.json", dump_pretty(resume(name, permissions=ASKED)))
    fs.write_atomic(base, "agents/human/resume.json", dump_pretty(person()))
    for tick in (2, 4, 6):
        payload = {"text": "go on", "target": ["ada", "bob"]}
        write_person_entry(base, "human", tick=tick, kind="message", payload=payload, tags=[], created_at="")
    assert found_in(base, 7) == []


# --- works on after the end, spends without progress -----------------------------------------------


def test_who_has_answered_and_takes_turns_that_leave_nothing_works_on_after_the_end(base: Path) -> None:
    script = [{"tick": 1, "reply": say("so", kind="response")}, {"reply": NOTHING}]
    org_of(base, person(), resume("ada", permissions=ASKED), script=script)
    ask(base, "ada")
    (found,) = found_in(base, 5)
    assert (found.kind, found.tick, found.evidence[0]) == ("works_on", 2, "1/ada")


def test_who_has_answered_and_leaves_something_new_does_not_work_on_after_the_end(base: Path) -> None:
    script = [{"tick": 1, "reply": say("so", kind="response")}, *by_ticks("ada", "", "b", "c", "d", "e")[1:]]
    org_of(base, person(), resume("ada", permissions=ASKED), script=script)
    ask(base, "ada")
    assert found_in(base, 5) == []


def test_turns_that_cost_credits_and_leave_nothing_are_spending_without_progress(base: Path) -> None:
    org_of(base, resume("ada"), script=[{"reply": NOTHING}], no_progress=4)
    (found,) = found_in(base, 5)
    assert (found.kind, found.tick) == ("no_progress", 1)
    assert "5 credits in 5 turns" in found.message


def test_a_turn_that_learns_something_is_progress(base: Path) -> None:
    script = [{"tick": 3, "reply": calls("read_gauge", moves=True)}, {"reply": NOTHING}]
    org_of(base, resume("ada", permissions=GAUGE), script=script, no_progress=4)
    assert found_in(base, 6) == []


def test_turns_that_cost_nothing_are_no_spending(base: Path) -> None:
    org_of(base, resume("ada"), script=[{"reply": NOTHING}], no_progress=4)
    free = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "per_call": 0}
    fs.write_atomic(base, "config/models.json", dump_pretty({"scripted": free}))
    assert found_in(base, 6) == []


# --- dropped requests ------------------------------------------------------------------------------


def desk(base: Path, *, reply: dict[str, Any], **blocks: Any) -> Path:
    """An agent that is asked by a person, and always answers with this."""
    ada = resume("ada", permissions=ASKED, turn={"take": "all"}, **blocks)
    return org_of(base, person(), ada, script=[{"reply": reply}], dropped=3, no_progress=100, repeats=100)


def test_a_request_that_nobody_works_on_is_dropped(base: Path) -> None:
    asked = ask(desk(base, reply=say("la la")), "ada", "how much?")
    (found,) = found_in(base, 3)
    assert (found.kind, found.agents, found.tick) == ("dropped", ("ada", "human"), 1)
    assert asked in found.evidence[0]
    assert '"how much?"' in found.message


def test_a_request_that_was_handed_on_is_not_dropped_while_its_holder_works_on_it(base: Path) -> None:
    hands_on, turn = calls("hand_to_bob", message="yours"), {"take": "one"}
    ada = resume("ada", permissions=ASKED, turn=turn, team={"hand_to": ["bob"]})
    bob = resume("bob", permissions={"read_outboxes": ["human", "ada"], "tools": ["read_gauge"]}, turn=turn)
    script = [{"agent": "ada", "reply": hands_on}, {"reply": calls("read_gauge", moves=True)}]
    ask(org_of(base, person(), ada, bob, script=script, dropped=3), "ada", "how much?")
    assert "dropped" not in kinds(found_in(base, 6))


def test_a_request_is_not_dropped_before_its_time(base: Path) -> None:
    ask(desk(base, reply=say("la la")), "ada")
    assert found_in(base, 2) == []


def test_nobody_is_said_to_have_dropped_what_ticks_that_were_not_read_may_tell(base: Path) -> None:
    ask(desk(base, reply=say("la la")), "ada")
    run(base, 4)
    assert kinds(apply_rules(scan_ticks(base, max_turns=4))) == ["dropped"]
    assert apply_rules(scan_ticks(base, max_turns=2)) == []


def test_who_lets_the_asker_know_of_something_has_not_dropped_the_request(base: Path) -> None:
    ask(desk(base, reply=tells("human", "I am at it")), "ada")
    assert found_in(base, 4) == []


def test_a_request_that_waits_for_a_person_is_not_dropped(base: Path) -> None:
    human = {**person(), "permissions": {"read_outboxes": ["*"]}}
    reply = {**tells("human", "may I?"), "outbox_entries": [
        {"kind": "request", "payload": {"text": "may I?", "target": "human"}, "tags": []}
    ]}  # fmt: skip
    org_of(base, human, resume("ada"), script=[{"tick": 1, "reply": reply}, {"reply": NOTHING}], dropped=3)
    assert found_in(base, 5) == []


def test_a_request_that_expired_without_an_answer_was_dropped(base: Path) -> None:
    ask(desk(base, reply=say("la la")), "ada", "quick!", deadline=1)
    (found,) = found_in(base, 3)
    assert (found.kind, "expired" in found.message) == ("dropped", True)


def test_a_request_that_expired_with_a_default_was_not_dropped(base: Path) -> None:
    ask(desk(base, reply=say("la la")), "ada", "quick!", deadline=1, default="no")
    assert found_in(base, 3) == []


def test_a_slow_holder_has_twice_its_time(base: Path) -> None:
    ask(desk(base, reply=say("la la"), schedule={"run_every_n_ticks": 4, "phase_offset": 0}), "ada")
    assert found_in(base, 6) == []
    assert kinds(found_in(base, 2)) == ["dropped"]


# --- unread ----------------------------------------------------------------------------------------


def crowded(base: Path, limit: int) -> Path:
    """An agent that many write to, and that is shown so many entries at a time."""
    script = [{"agent": "bob", "tick": tick, "reply": tells("ada", f"news {tick}")} for tick in range(1, 9)]
    script += [{"agent": "cyd", "tick": tick, "reply": tells("ada", f"gossip {tick}")} for tick in range(1, 9)]
    script += by_ticks("ada", *"abcdefgh")
    agents = [resume(name, permissions={"read_outboxes": []}) for name in ("bob", "cyd")]
    org_of(base, resume("ada"), *agents, script=script)
    settings = {"inbox_limit": limit, "durability": "off", "findings": {"unread": 2}}
    fs.write_atomic(base, "config/org.json", dump_pretty(settings))
    return base


def test_entries_that_wait_behind_others_turn_after_turn_are_unread(base: Path) -> None:
    (found,) = found_in(crowded(base, 1), 7)
    assert (found.kind, found.agents) == ("unread", ("ada",))
    assert found.evidence[0].startswith(("agents/bob/outbox/", "agents/cyd/outbox/"))


def test_entries_that_are_shown_in_time_are_not_unread(base: Path) -> None:
    assert found_in(crowded(base, 50), 7) == []


def test_entries_that_were_removed_before_their_reader_saw_them_are_unread(base: Path) -> None:
    failing = [{"agent": "bob", "tick": tick, "error": "AuthenticationFailed"} for tick in range(1, 6)]
    script = [*by_ticks("ada", *"abcdef"), *failing, {"reply": say("back")}]
    reader = resume("bob", permissions={"read_outboxes": ["ada"]})
    org_of(base, resume("ada", permissions={}), reader, script=script)
    fs.write_atomic(base, "config/org.json", dump_pretty({"durability": "off", "retention_ticks": 1}))
    (found,) = found_in(base, 6)
    assert (found.kind, found.agents, "removed" in found.message) == ("unread", ("bob",), True)
    assert found.evidence[0].startswith("logs/ticks/")


# --- says, but does not do -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "I saved the figures to report.md.",
        "Done. I've written everything down in `shared/report.md`",
        "Saved as report.md",
        "I have just updated the table in figures.csv and will go on.",
        "I called read_gauge and it shows 12 bar.",
        "Used the tool `read_gauge`: 12 bar",
    ],
)
def test_a_claim_that_the_journal_does_not_bear_out_is_found(base: Path, text: str) -> None:
    org_of(base, resume("ada", permissions=GAUGE), script=[{"reply": say(text)}])
    (found,) = found_in(base, 1)
    assert (found.kind, found.evidence[0]) == ("claims", "1/ada")


@pytest.mark.parametrize(
    "text",
    [
        "I will save the figures to report.md.",
        "I could not save the figures to report.md.",
        "I saved nothing; see report.md.",
        "bob saved the figures to report.md.",
        "Have I saved the figures to report.md?",
        "The file report.md was written by bob.",
        "Please write it to report.md.",
        "Created by bob, see report.md",
        "I saved it.",
        "I used the gauge.",
        "I used web_search.",
        "Updated the plan. See report.md for more.",
    ],
)
def test_what_is_no_plain_claim_of_its_own_is_left_alone(base: Path, text: str) -> None:
    org_of(base, resume("ada", permissions=GAUGE), script=[{"reply": say(text)}])
    assert found_in(base, 1) == []


def test_a_claim_that_the_journal_bears_out_is_none(base: Path) -> None:
    looks = calls("read_gauge", moves=False)["tool_calls"]
    writes = {"tool": "file_write", "args": {"path": "report.md", "content": "12"}}
    text = "I called read_gauge. I saved what it shows to workspace/report.md"
    script = [{"tick": 1, "reply": say(text, tool_calls=[*looks, writes])}, {"reply": say("As I said: " + text)}]
    org_of(base, resume("ada", permissions=GAUGE), script=script)
    assert found_in(base, 2) == []


def test_a_claim_of_a_file_that_is_there_is_none(base: Path) -> None:
    org_of(base, resume("ada"), script=[{"reply": say("I saved it to shared/report.md")}])
    fs.write_atomic(base, "shared/report.md", b"by hand")
    assert found_in(base, 1) == []


# --- not verified ----------------------------------------------------------------------------------


def judged(base: Path, *, passes: bool, **verify: Any) -> Path:
    """An agent whose judge says always the same."""
    verdict = {"contains": "Judge the draft", "reply": {"passes": passes, "reason": "so"}}
    ada = resume("ada", verify={"by": "critic", "max": 1, **verify}, permissions=ASKED)
    return org_of(base, ada, person(), resume("critic", paused="judges"), script=[verdict, {"reply": say("draft")}])


def test_what_left_though_the_judge_did_not_pass_it_is_not_verified(base: Path) -> None:
    (found,) = found_in(judged(base, passes=False), 1)
    assert (found.kind, found.agents, "critic" in found.message) == ("unverified", ("ada",), True)


def test_what_then_fail_kept_from_leaving_is_no_finding(base: Path) -> None:
    judged(base, passes=False, then="fail")
    ask(base, "ada")
    assert found_in(base, 1) == []


def test_what_the_judge_passed_is_verified(base: Path) -> None:
    assert found_in(judged(base, passes=True), 1) == []


def test_an_answer_to_a_request_that_says_expect_and_that_nobody_judged_is_not_verified(base: Path) -> None:
    org_of(base, person(), resume("ada", permissions=ASKED), script=[{"reply": say("yes", kind="response")}])
    ask(base, "ada", expect="a number")
    (found,) = found_in(base, 1)
    assert (found.kind, found.agents) == ("unverified", ("ada", "human"))


def test_an_answer_to_a_request_that_expects_nothing_needs_no_judge(base: Path) -> None:
    org_of(base, person(), resume("ada", permissions=ASKED), script=[{"reply": say("yes", kind="response")}])
    ask(base, "ada")
    assert found_in(base, 1) == []


def test_an_agent_that_wakes_by_changes_is_not_advised_to_wake_by_changes(base: Path) -> None:
    advice = []
    for wake in ("always", "changed"):
        ada = resume("ada", schedule={"wake": wake})
        script = [{"agent": "ada", "reply": calls("read_gauge", moves=False)}]
        org_of(base / wake, ada, script=script, repeats=2)
        (finding,) = found_in(base / wake, 3)
        advice.append('"wake": "changed"' in finding.hint)
    assert advice == [True, False]
