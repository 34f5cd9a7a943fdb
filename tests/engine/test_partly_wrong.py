"""Replies of which a part is wrong: what is right of them is kept, and what is wrong is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base import paths
from lemming.kernel.memory import load_memory
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import make_org, resume, say

SOUND = {"kind": "message", "payload": {"text": "sound"}, "tags": []}


OPTIONAL_PARTS = {
    "a memory key": (
        {"memory_updates": [{"key": "a b", "value": 1}, {"key": "k", "value": 2}]},
        f'memory_updates: key: {paths.MEMORY_KEY_RULE}, got "a b"; it was not kept',
    ),
    "a call": (
        {"tool_calls": [{"tool": 7}], "outbox_entries": [SOUND]},
        "tool_calls: tool: expected the name of a tool; it was not kept",
    ),
    "arguments of a call under keys that nobody knows": (
        {"tool_calls": [{"tool": "list_agents", "city": "Oslo"}], "outbox_entries": [SOUND]},
        'tool_calls: unknown key "city", the keys are tool, args, args_json; it was not kept',
    ),
    "tags": (
        {"outbox_entries": [SOUND, {**SOUND, "payload": {"text": "more"}, "tags": "urgent"}]},
        "outbox_entries 2: tags: expected a list of words; it was not kept",
    ),
    "a key of an entry": (
        {"outbox_entries": [{**SOUND, "mood": "glad"}]},
        'outbox_entries: unknown key "mood", the keys are kind, payload, tags; it was not kept',
    ),
    "a list": (
        {"memory_updates": "none", "outbox_entries": [SOUND]},
        "memory_updates: expected a list; it was not kept",
    ),
    "a key": (
        {"thoughts": "hm", "outbox_entries": [SOUND]},
        'unknown key "thoughts": the keys are outbox_entries, tool_calls, memory_updates, notes; it was not kept',
    ),
    "notes": ({"notes": ["hm"], "outbox_entries": [SOUND]}, "notes: expected text; it was not kept"),
    "a value": (
        {"memory_updates": [{"key": "w", "value_json": "{"}, {"key": "k", "value": 2}]},
        "memory_updates: value_json: unexpected end of JSON; it was not kept",
    ),
}
WRONG_PARTS = {
    "a kind": ({"outbox_entries": [{**SOUND, "kind": "shout"}, SOUND]}, "outbox_entries: kind: expected one of"),
    "a key that changes who is reached": (
        {"outbox_entries": [{**SOUND, "to": "zed"}, SOUND]},
        'outbox_entries: unknown key "to", "to" belongs into the payload; it was not kept',
    ),
    "nine of ten": (
        {"outbox_entries": [*[{**SOUND, "kind": "shout"}] * 9, SOUND]},
        "outbox_entries 9: kind: expected one of",
    ),
}


@pytest.mark.parametrize(("reply", "problem"), OPTIONAL_PARTS.values(), ids=OPTIONAL_PARTS)
def test_an_optional_part_that_is_wrong_costs_itself_and_no_question(
    base: Path, reply: dict[str, Any], problem: str
) -> None:
    make_org(
        base,
        resume("ada", turn={"max_steps": 8}),
        script=[{"tick": 1, "reply": json.dumps(reply)}, {"reply": say("on")}],
    )
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls) == ("done", 1)
    kept = [entry.payload["text"] for entry in read_outbox_entries(base, "ada")]
    assert kept == [entry["payload"]["text"] for entry in reply.get("outbox_entries", [])]
    assert load_memory(base, "ada", "k") == (2 if "outbox_entries" not in reply else None)
    assert load_memory(base, "ada", "w") is None
    assert f"left out: {problem}" in turn.remarks
    run_once(base)
    prompt = load_tick_record(base, 2).turns[0].prompt[-1]["content"].replace('\\"', '"')
    assert f"In your last reply: {problem}" in prompt
    assert [replayed.turns for replayed in replay_ticks(base, [1, 2])] == [1, 1]


@pytest.mark.parametrize(("reply", "problem"), WRONG_PARTS.values(), ids=WRONG_PARTS)
def test_an_entry_that_is_still_wrong_after_the_correction_loses_only_itself(
    base: Path, reply: dict[str, Any], problem: str
) -> None:
    make_org(base, resume("ada"), script=[{"tick": 1, "reply": json.dumps(reply)}, {"reply": say("on")}])
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls) == ("done", 2)
    assert [entry.payload["text"] for entry in read_outbox_entries(base, "ada")] == ["sound"]
    assert any(remark.startswith(f"left out: {problem}") for remark in turn.remarks)
    run_once(base)
    assert problem in load_tick_record(base, 2).turns[0].prompt[-1]["content"].replace('\\"', '"')
    assert [replayed.turns for replayed in replay_ticks(base, [1, 2])] == [1, 1]
    (record,) = load_tick_record(base, 1).turns
    assert sorted(record.writes) == sorted(file["path"] for file in turn.files)


def test_a_later_reply_with_nothing_right_in_it_does_not_undo_the_turn(base: Path) -> None:
    bad = {"memory_updates": [{"key": "a b", "value": 1}]}
    first = say("first", tool_calls=[{"tool": "list_agents", "args": {}}])
    make_org(
        base,
        resume("ada", turn={"max_steps": 2, "repairs": 0}),
        script=[{"step": 0, "reply": first}, {"reply": json.dumps(bad)}],
    )
    (turn,) = run_once(base).turns
    assert (turn.status, len(turn.entries)) == ("waiting", 1)
    assert [entry.payload["text"] for entry in load_tick_record(base, 1).turns[0].entries] == ["first"]


def test_a_reply_whose_correction_cannot_be_paid_for_keeps_what_is_right(base: Path) -> None:
    reply = json.dumps({"outbox_entries": [SOUND, {**SOUND, "kind": "shout"}]})
    make_org(base, resume("ada", credits={"max_credits": 1}), script=[{"reply": reply}])
    (turn,) = run_once(base).turns
    assert (turn.status, len(turn.entries)) == ("done", 1)
    assert len(load_tick_record(base, 1).turns[0].entries) == 1
    assert [replayed.turns for replayed in replay_ticks(base, [1])] == [1]


def test_a_reply_with_nothing_right_in_it_fails_its_turn(base: Path) -> None:
    bad = json.dumps({"memory_updates": [{"key": "a b", "value": 1}], "notes": "hm"})
    make_org(base, resume("ada"), script=[{"reply": bad}])
    (turn,) = run_once(base).turns
    assert (turn.status, turn.error) == ("failed", "ContractError")


MANY_STEPS = {"max_steps": 8, "repairs": 1}


def test_a_part_that_is_left_out_is_no_reason_to_ask_the_model_again(base: Path) -> None:
    reply = json.dumps({"outbox_entries": [SOUND], "memory_updates": [{"key": "a b", "value": 1}]})
    make_org(base, resume("ada", turn=MANY_STEPS), script=[{"reply": reply}])
    (turn,) = run_once(base).turns
    assert turn.calls == 1
    assert len(turn.entries) == 1


def test_what_was_left_out_is_told_once_and_in_words_of_the_engine(base: Path) -> None:
    reply = json.dumps({"outbox_entries": [SOUND], "memory_updates": [{"key": "a b", "value": 1}]})
    make_org(base, resume("ada"), script=[{"tick": 1, "reply": reply}, {"reply": say("on")}])
    for _ in range(3):
        run_once(base)
    second, third = (load_tick_record(base, tick).turns[0].prompt[-1]["content"] for tick in (2, 3))
    assert "WARNING: In your last reply: memory_updates: key: a memory key has" in second
    assert "Results of your earlier tool calls" not in second
    assert "left out" not in third


def test_a_memory_that_is_not_kept_is_no_reason_to_ask_the_model_again(base: Path) -> None:
    reply = {"outbox_entries": [SOUND], "memory_updates": [{"key": "k", "value": "x" * 300_000}]}
    make_org(base, resume("ada", turn=MANY_STEPS), script=[{"reply": reply}])
    (turn,) = run_once(base).turns
    assert turn.calls == 1
    assert turn.remarks[0].startswith("not kept: ")
    run_once(base)
    assert 'WARNING: memory "k": ' in load_tick_record(base, 2).turns[0].prompt[-1]["content"]


def test_an_entry_for_no_moment_is_no_reason_to_ask_the_model_again(base: Path) -> None:
    soon = {**SOUND, "payload": {"text": "hi", "not_before": "soon"}}
    make_org(base, resume("ada", turn=MANY_STEPS), script=[{"reply": {"outbox_entries": [soon]}}])
    (turn,) = run_once(base).turns
    assert turn.calls == 1
    assert "not_before is no moment" in turn.remarks[0]


def test_an_entry_that_equals_one_of_the_same_turn_is_dropped(base: Path) -> None:
    call = {"tool": "list_agents", "args": {}}
    first = {"outbox_entries": [SOUND, SOUND], "tool_calls": [call]}
    other = {**SOUND, "payload": {"text": "other"}}
    script = [{"step": 0, "reply": first}, {"reply": {"outbox_entries": [SOUND, other]}}]
    make_org(base, resume("ada", turn=MANY_STEPS), script=script)
    (turn,) = run_once(base).turns
    texts = [entry.payload["text"] for entry in read_outbox_entries(base, "ada")]
    assert sorted(texts) == ["other", "sound"]
    assert turn.remarks.count("outbox_entries: one that is equal to another of the turn was dropped") == 2


def test_useless_replies_end_a_turn_at_the_second_in_a_row(base: Path) -> None:
    bad = json.dumps({"memory_updates": [{"key": "a b", "value": 1}]})
    first = say("first", tool_calls=[{"tool": "list_agents", "args": {}}])
    script = [{"step": 0, "reply": first}, {"reply": bad}]
    make_org(base, resume("ada", turn={"max_steps": 8, "repairs": 0}), script=script)
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls, len(turn.entries)) == ("done", 3, 1)
