"""Calls that a model writes as text, beside the four keys or instead of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from optional_parts import uses

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import SCRIPT_FILE, make_org, resume, say

CALL = '{"name": "file_list", "arguments": {"path": "."}}'
WRITTEN = {
    "bare": CALL,
    "after prose": f"I look first.\n{CALL}",
    "in a fence": f"```json\n{CALL}\n```",
    "in tags": f"<tool_call>\n{CALL}\n</tool_call>",
    "in our own words": '{"do": "file_list", "path": "."}',
    "as a signature": 'file_list(path=".")',
    "as Python": str(json.loads(CALL)),
}


def agent() -> dict[str, object]:
    return resume("ada", model={"key": "full"}, permissions={"tools": ["file_list"]}, turn={"max_steps": 3})


MODELS = {"full": {"provider": "scripted", "prompt": "full", "options": {"file": SCRIPT_FILE}}}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_call_that_stands_in_place_of_the_four_keys_is_made(base: Path, text: str) -> None:
    make_org(base, agent(), models=MODELS, script=[{"step": 0, "reply": text}, {"reply": say("done")}])
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls) == ("done", 2)
    assert [(used["tool"], used["success"]) for used in turn.tools] == [("file_list", True)]
    assert [entry.payload["text"] for entry in read_outbox_entries(base, "ada")] == ["done"]
    assert [replayed.turns for replayed in replay_ticks(base, [1])] == [1]


def test_a_call_beside_the_four_keys_is_made_too(base: Path) -> None:
    first = f"{json.dumps(say('I look'))}\n{CALL}"
    make_org(base, agent(), models=MODELS, script=[{"step": 0, "reply": first}, {"reply": say("done")}])
    (turn,) = run_once(base).turns
    assert [used["tool"] for used in turn.tools] == ["file_list"]
    texts = [entry.payload["text"] for entry in read_outbox_entries(base, "ada")]
    assert sorted(texts) == ["I look", "done"]


def test_the_prose_around_a_call_is_a_note(base: Path) -> None:
    make_org(
        base,
        agent(),
        models=MODELS,
        script=[{"step": 0, "reply": f"I look first.\n{CALL}"}, {"reply": {"outbox_entries": []}}],
    )
    run_once(base)
    assert load_tick_record(base, 1).turns[0].report.notes == "I look first."


def test_a_call_of_a_tool_that_is_none_is_told_and_not_asked_again(base: Path) -> None:
    text = '{"name": "file_lst", "arguments": {"path": "."}}'
    make_org(base, agent(), models=MODELS, script=[{"step": 0, "reply": text}, {"reply": say("done")}])
    (turn,) = run_once(base).turns
    assert (turn.status, turn.calls) == ("done", 2)
    assert [used["outcome"] for used in turn.tools] == ["not_found"]


@uses("gates")
@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_call_in_text_passes_gates_as_any_other(base: Path, text: str) -> None:
    gate = {"at": "call", "tool": "file_list", "then": "block"}
    script = [{"step": 0, "reply": text}, {"reply": say("done")}]
    make_org(base, agent(), models=MODELS, script=script, org={"gates": [gate]})
    (turn,) = run_once(base).turns
    assert [used["outcome"] for used in turn.tools] == ["refused"]
