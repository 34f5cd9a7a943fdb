"""A limit that asks: a person approves spending more, or does not, and nothing is spent before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_into, replay_ticks
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.obligations.waiting_items import list_person_inbox
from lemming.obligations.write_decisions import find_pending_request
from lemming.operations.agent_pause import pause_agent
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

LINE = "config/org.json#/gates/0"
LOOK = say("more", tool_calls=[{"tool": "list_agents", "args": {}}])


def asking(
    base: Path,
    *names: str,
    script: Any = None,
    steps: int = 1,
    further: Any = (),
    take: str | None = None,
    **limit: Any,
) -> Path:
    gate = {"at": "spend", "then": "ask", "because": "dear", **limit}
    agents = [resume(name, turn={"max_steps": steps, "repairs": 0, "take": take}) for name in names or ("ada",)]
    human = resume("human", model={"key": "human"})
    return make_org(
        base, *agents, human, script=script, org={"gates": [gate, *further]}, models={"human": {"provider": "human"}}
    )


def turns(base: Path) -> dict[str, TurnReport]:
    return {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}


def calls(base: Path, ticks: int, agent: str = "ada") -> list[int]:
    return [turns(base)[agent].calls for _ in range(ticks)]


def requests(base: Path, agent: str = "ada") -> list[OutboxEntry]:
    return [entry for entry in read_outbox_entries(base, agent) if entry.kind == "request"]


def decide(base: Path, request: OutboxEntry, word: str, **more: Any) -> None:
    payload = {"reply_to": request.id, "target": request.agent, "decision": word, **more}
    write_person_entry(base, "human", tick=load_tick(base), kind="response", payload=payload, tags=[], created_at="")


def test_approval_to_spend_more_is_asked_for_once_and_lets_the_agent_go_on(base: Path) -> None:
    asking(base, credits=2, per="agent")
    assert calls(base, 3) == [1, 1, 0]
    turn = turns(base)["ada"]
    assert (turn.status, turn.error) == ("skipped", "LimitReached")
    (request,) = requests(base)
    assert request.targets == {"human"}
    assert request.payload["call"]["tool"] == "spend"
    assert request.payload["call"]["args"] == {"credits": 2.0, "of": "agent"}
    assert (request.payload["call"]["gate"], request.payload["call"]["why"]) == (LINE, "dear")
    (waits,) = list_person_inbox(base)
    assert waits.id == request.id
    decide(base, request, "approve")
    assert calls(base, 4) == [1, 1, 0, 0]
    assert len(requests(base)) == 2


def test_a_turn_that_has_come_to_something_keeps_it_and_asks(base: Path) -> None:
    asking(base, script=[{"reply": LOOK}], steps=4, calls=2, per="agent")
    turn = turns(base)["ada"]
    assert (turn.status, turn.calls, turn.end) == ("waiting", 2, "out_of_credits")
    (request,) = requests(base)
    decide(base, request, "approve")
    assert turns(base)["ada"].calls == 2


def test_nothing_that_was_new_is_lost_while_an_agent_waits(base: Path) -> None:
    asking(base, credits=1, per="agent")
    assert calls(base, 1) == [1]
    write_person_entry(base, "human", tick=load_tick(base), kind="message", payload={"text": "the ferry is late"}, tags=[],
         created_at="")  # fmt: skip
    assert calls(base, 2) == [0, 0]
    decide(base, requests(base)[0], "approve")
    assert calls(base, 1) == [1]
    started = next(it for it in journal_lines(base, 4) if it["type"] == "turn_started")
    assert "the ferry is late" in started["prompt"][-1]["content"]


def test_a_person_may_approve_another_amount(base: Path) -> None:
    asking(base, credits=1, per="agent")
    assert calls(base, 2) == [1, 0]
    edited = {"credits": 3, "of": "organisation", "dollars": 9, "tool": "shell"}
    decide(base, requests(base)[0], "approve", args=edited)
    assert calls(base, 5) == [1, 1, 1, 0, 0]


def test_what_was_given_stays_given_when_the_request_for_it_is_gone(base: Path) -> None:
    asking(base, credits=2, per="agent")
    assert calls(base, 3) == [1, 1, 0]
    (request,) = requests(base)
    decide(base, request, "approve")
    assert calls(base, 1) == [1]
    (base / request.file).unlink()
    assert calls(base, 2) == [1, 0]


def test_a_no_is_a_no(base: Path) -> None:
    asking(base, credits=1, per="agent")
    assert calls(base, 2) == [1, 0]
    decide(base, requests(base)[0], "deny")
    assert calls(base, 3) == [0, 0, 0]
    assert len(requests(base)) == 1


def test_a_no_about_one_limit_is_none_about_another(base: Path) -> None:
    total = {"at": "spend", "then": "ask", "because": "all in all", "credits": 2, "per": "agent"}
    asking(base, further=[total], credits=2, per="agent", window={"ticks": 3})
    assert calls(base, 3) == [1, 1, 0]
    decide(base, requests(base)[0], "deny")
    assert calls(base, 2) == [0, 0]
    assert [it.payload["call"]["gate"][-1] for it in requests(base)] == ["0", "1"]


def test_a_yes_that_comes_too_late_is_a_no(base: Path) -> None:
    asking(base, credits=1, per="agent", expires=1)
    assert calls(base, 4) == [1, 0, 0, 0]
    decide(base, requests(base)[0], "approve")
    assert calls(base, 2) == [0, 0]


def test_what_one_was_given_for_all_counts_for_all(base: Path) -> None:
    asking(base, "ada", "bob", calls=2, per="organisation")
    assert [turn.calls for turn in turns(base).values()][:2] == [1, 1]
    assert [turn.calls for turn in turns(base).values()][:2] == [0, 0]
    decide(base, requests(base)[0], "approve")
    assert [turn.calls for turn in turns(base).values()][:2] == [1, 0]
    pause_agent(base, "ada", "enough")
    assert [turn.calls for turn in turns(base).values()][:2] == [1, 0]  # bob, and ada
    assert [turn.calls for turn in turns(base).values()][:2] == [0, 0]


def test_it_is_replayed_and_the_same_for_turns_at_once(tmp_path: Path) -> None:
    found = []
    for at_once in (1, 2, 8, 64):
        base = tmp_path / str(at_once)
        asking(base, "ada", "bob", "cyd", calls=4, per="organisation")
        org = base / "config/org.json"
        org.write_text(org.read_text().replace("{", f'{{"max_parallel": {at_once},', 1))
        for _ in range(3):
            turns(base)
        for name in ("ada", "bob"):
            for request in requests(base, name):
                decide(base, request, "approve")
        for _ in range(3):
            turns(base)
        found.append(tree(base, without=("logs", ".lemming", "config")))
        assert [it.tick for it in replay_ticks(base, [1, 2, 3, 4, 5, 6])] == [1, 2, 3, 4, 5, 6]
        assert [it.tick for it in replay_into(base, tmp_path / f"again{at_once}", [1, 2, 3, 4, 5, 6])]
    assert found[1:] == found[:1] * 3


def test_where_nobody_can_be_asked_it_blocks(base: Path) -> None:
    asking(base, credits=1, per="agent", persons=["nobody"], may_be_absent=True)
    assert calls(base, 3) == [1, 0, 0]
    assert requests(base) == []


def test_it_is_one_of_the_things_that_wait(base: Path) -> None:
    asking(base, credits=1, per="agent")
    calls(base, 2)
    (request,) = requests(base)
    assert find_pending_request(base, request.id)[1].identity == request.identity


def test_a_request_that_a_model_made_up_raises_nothing(base: Path) -> None:
    """Who says yes to words of a model approves no more than that: the ledger counts, not the entry."""
    call = {"id": "1/ada/spend", "tool": "spend", "args": {"credits": 1e6, "of": "agent"}, "gate": LINE}
    payload = {"text": "may I publish?", "target": "human", "call": {**call, "sha256": "", "binds": {}, "why": ""}}
    forged = {**say("x"), "outbox_entries": [{"kind": "request", "payload": payload, "tags": []}]}
    asking(base, script=[{"reply": forged}], credits=1, per="agent")
    assert calls(base, 1) == [1]
    decide(base, requests(base)[0], "approve")
    assert calls(base, 3) == [0, 0, 0]


def test_what_a_person_gave_one_turn_counts_for_that_turn(base: Path) -> None:
    looks = [say("more", tool_calls=[{"tool": "list_agents", "args": {"page": it}}]) for it in range(9)]
    asking(base, script=[{"step": at, "reply": it} for at, it in enumerate(looks)], steps=9, calls=2, per="turn")
    assert calls(base, 1) == [2]
    decide(base, requests(base)[-1], "approve")
    assert calls(base, 1) == [4]
    decide(base, requests(base)[-1], "deny")
    assert calls(base, 1) == [2]


def test_what_a_person_gave_for_one_request_is_for_no_other(base: Path) -> None:
    works = say("at work", kind="status")
    asking(base, script=[{"reply": works}], calls=1, per="request", take="one")
    for text in ("first", "second"):
        payload = {"text": text, "target": "ada"}
        write_person_entry(base, "human", tick=load_tick(base), kind="request", payload=payload, tags=[], created_at="")
    assert sum(calls(base, 4)) == 2
    decide(base, requests(base)[0], "approve")
    assert sum(calls(base, 4)) == 1
