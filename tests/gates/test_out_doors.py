"""Gates at "out" look at all that a turn writes for others: payloads, tags, and what its tools write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gated import call, line

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say

SECRET = "4000123412341234"
DENIES = {"at": "out", "deny": ["[0-9]{16}"], "then": "block"}
REDACTS = {"at": "out", "redact": ["[0-9]{16}"], "then": "rewrite"}
ASKS = {"at": "out", "deny": ["[0-9]{16}"], "then": "ask"}
REMINDS = call("remind_me", text=f"pay with {SECRET}", after="1h")


def org(base: Path, gate: dict[str, Any], *entries: dict[str, Any], calls: tuple[Any, ...] = ()) -> Path:
    """Make an organisation of one agent whose first reply writes these entries and makes these calls."""
    ada = resume("ada", permissions={"tools": ["remind_me"]}, turn={"max_steps": 2})
    first = {"outbox_entries": [*entries], "tool_calls": [*calls]}
    human = resume("human", model={"key": "human"})
    script = [{"tick": 1, "step": 0, "reply": first}, {"reply": say("done", outbox_entries=[])}]
    models = {"human": {"provider": "human"}}
    return make_org(base, ada, human, script=script, models=models, org={"gates": [gate]})


def turn_of(base: Path) -> Any:
    return next(turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == "ada")


def tagged(*tags: str) -> dict[str, Any]:
    return {"kind": "report", "payload": {"text": "all is well"}, "tags": [*tags]}


def written(base: Path) -> str:
    return json.dumps([entry.as_json() for entry in read_outbox_entries(base, "ada")])


def test_a_tag_is_no_way_past_a_gate_that_denies(base: Path) -> None:
    org(base, DENIES, tagged("fine"), tagged(f"card-{SECRET}"))
    turn = turn_of(base)
    assert [entry.tags for entry in read_outbox_entries(base, "ada")] == [["fine"]]
    (verdict,) = turn.verdicts
    assert (verdict["line"], verdict["then"], verdict["about"]) == (line(0), "block", "tags of report")


def test_a_tag_is_rewritten_where_a_payload_would_be(base: Path) -> None:
    org(base, REDACTS, tagged("fine", f"card-{SECRET}"))
    turn_of(base)
    (entry,) = read_outbox_entries(base, "ada")
    assert entry.tags == ["fine", "card-[redacted]"]


def test_a_gate_that_lets_an_entry_pass_lets_its_tags_pass(base: Path) -> None:
    org(base, DENIES, tagged(f"card-{SECRET}"))
    passes = {"at": "out", "when": {"field": "kind", "op": "is", "value": "report"}, "then": "pass"}
    settings = base / "config/org.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "gates": [passes, DENIES]}))
    turn_of(base)
    assert SECRET in written(base)


@pytest.mark.parametrize("gate", [DENIES, REDACTS, ASKS], ids=lambda gate: str(gate["then"]))
def test_a_reminder_is_an_entry_to_them(base: Path, gate: dict[str, Any]) -> None:
    org(base, gate, calls=(REMINDS,))
    turn = turn_of(base)
    reminders = [entry for entry in read_outbox_entries(base, "ada") if "not_before" in entry.payload]
    assert SECRET not in json.dumps([entry.payload for entry in reminders])
    assert len(reminders) == (gate["then"] == "rewrite")
    assert turn.verdicts[0]["line"] == line(0)
    assert [it.tick for it in replay_ticks(base, [1])] == [1]


def test_a_reminder_that_no_gate_minds_is_written_as_ever(base: Path) -> None:
    org(base, DENIES, calls=(call("remind_me", text="water the plants", after="1h"),))
    assert turn_of(base).verdicts == []
    (entry,) = read_outbox_entries(base, "ada")
    assert entry.payload["text"] == "water the plants"


@pytest.mark.parametrize("gate", [DENIES, REDACTS])
@pytest.mark.parametrize("way", ["update", "tool"])
def test_the_key_of_a_memory_is_no_way_past_a_gate(base: Path, gate: dict[str, Any], way: str) -> None:
    memory = {"key": f"card-{SECRET}", "value": "paid"}
    first: dict[str, Any] = (
        {"memory_updates": [memory]} if way == "update" else {"tool_calls": [call("memory_write", **memory)]}
    )
    script = [{"tick": 1, "step": 0, "reply": first}, {"reply": say("done")}]
    make_org(base, resume("ada", turn={"max_steps": 2}), script=script, org={"gates": [gate]})
    (turn,) = run_once(base, clock=FrozenClock()).turns
    assert [*(base / "agents/ada/memory").glob("*.json")] == []
    assert turn.verdicts[0]["line"] == line(0)
    assert [replayed.turns for replayed in replay_ticks(base, [1])] == [1]


def test_an_answer_to_a_request_that_nobody_knows_may_leave_through_a_channel(base: Path) -> None:
    leaves = {"at": "out", "when": {"field": "leaves", "op": "is", "value": True}, "then": "ask"}
    answer = {"kind": "response", "payload": {"text": "paid", "reply_to": "0123456789ab"}, "tags": []}
    people = [resume(name, model={"key": name}) for name in ("human", "post")]
    models = {"human": {"provider": "human"}, "post": {"provider": "folder", "options": {"path": "post"}}}
    script = [{"tick": 1, "reply": {"outbox_entries": [answer]}}]
    make_org(base, resume("ada"), *people, script=script, models=models, org={"gates": [leaves]})
    turn_of(base)
    assert [entry.kind for entry in read_outbox_entries(base, "ada")] == ["request"]
