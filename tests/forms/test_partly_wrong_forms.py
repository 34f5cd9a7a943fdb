"""Actions of which one is wrong, and the samples of prompts, which are replies themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.recorded_tick import load_tick_record
from lemming.kernel.base.contract import parse_reply
from lemming.kernel.base.entry_kinds import MESSAGE_KINDS
from lemming.kernel.base.reply_json import CONTRACT_KEYS, find_objects
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.memory import load_memory
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import SCRIPT_FILE, FrozenClock, make_org, resume, write_script

BOB = resume("bob", model={"key": "human"}, permissions={"read_outboxes": ["ada"]})


def org(base: Path, *script: dict[str, Any], prompt: str = "fit", **blocks: Any) -> Path:
    """Make an organisation of an agent with tools and a memory, and a person who reads it."""
    tools = ["file_read", "memory_write"]
    ada = resume("ada", model={"key": "fit"}, permissions={"tools": tools}, **blocks)
    fit = {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "prompt": prompt}
    models = {"fit": fit, "human": {"provider": "human"}}
    made = make_org(base, ada, BOB, models=models, script=[*script, {"reply": {"do": "done"}}])
    (base / "agents/ada/workspace").mkdir(parents=True)
    (base / "agents/ada/workspace/n.txt").write_text("21")
    return made


def take_turn(base: Path) -> TurnReport:
    """Run a tick and return ada's turn."""
    return next(turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == "ada")


READS = {"do": "file_read", "path": "n.txt"}
SENDS = {"do": "send", "text": "hi"}
KEEPS = {"do": "remember", "key": "k", "value": "v"}
WRONG = {
    "a key that is none": {"do": "remember", "key": "a b", "value": "v"},
    "no key": {"do": "remember", "value": "v"},
    "a text for arguments": {"name": "remember", "arguments": "green"},
    "a list for arguments": {"name": "remember", "arguments": ["k", "v"]},
}


@pytest.mark.parametrize("beside", [READS, SENDS, KEEPS], ids=["a call", "a message", "a memory"])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_memory_that_is_none_is_left_out_beside_a_sound_action(
    base: Path, wrong: dict[str, Any], beside: dict[str, Any]
) -> None:
    turn = take_turn(org(base, {"step": 0, "reply": json.dumps([wrong, beside])}))
    assert turn.status == "done"
    assert not [remark for remark in turn.remarks if remark.startswith("asked again")]
    assert [it for it in turn.remarks if it.startswith("left out: remember: key: a memory key has")]
    assert [used["tool"] for used in turn.tools] == (["file_read"] if beside == READS else [])
    assert len(read_outbox_entries(base, "ada")) == (beside == SENDS)
    assert load_memory(base, "ada", "k") == ("v" if beside == KEEPS else None)


def test_an_answer_to_a_request_that_is_none_is_asked_for_again_with_the_nearest(base: Path) -> None:
    fit = {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "prompt": "fit"}
    asks = [{"kind": "request", "payload": {"text": text, "target": "ada"}, "tags": []} for text in ("one", "two")]
    ada = resume("ada", model={"key": "fit"}, permissions={"read_outboxes": ["zoe"]}, turn={"take": "all"})
    zoe = resume("zoe", permissions={"read_outboxes": ["ada"]}, turn={"kinds": ["request"]})
    script = [{"agent": "zoe", "tick": 1, "reply": {"outbox_entries": asks}}, {"reply": {"outbox_entries": []}}]
    make_org(base, ada, zoe, models={"fit": fit}, script=script)
    run_once(base, clock=FrozenClock())
    first, second = sorted(entry.id for entry in read_outbox_entries(base, "zoe"))
    answers = [{"do": "answer", "request": name, "text": "so"} for name in (first[:-2], second)]
    write_script(
        base,
        [{"agent": "ada", "step": step, "reply": answer} for step, answer in enumerate(answers)]
        + [{"agent": "ada", "reply": {"do": "done"}}, {"reply": {"outbox_entries": []}}],
    )
    turn = take_turn(base)
    assert f'got "{first[:-2]}" (did you mean "{first}"?)' in turn.remarks[0]
    assert [entry.payload["reply_to"] for entry in read_outbox_entries(base, "ada")] == [second]


TELLS = 'A call looks so: {"name": "weather", "arguments": {"city": "Oslo"}}'


@pytest.mark.parametrize(
    ("reply", "said"),
    [(TELLS, TELLS), ('Sure: {"do": "send", "text": "hi"}', "hi"), ('{"do": "send", "text": "hi"}', "hi")],
    ids=["tells of a call", "prose and an action", "an action"],
)
def test_where_nothing_can_be_called_a_text_may_tell_of_calls(base: Path, reply: str, said: str) -> None:
    fit = {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "prompt": "fit"}
    ada = resume("ada", model={"key": "fit"})
    turn = take_turn(make_org(base, ada, models={"fit": fit}, script=[{"reply": reply}]))
    assert (turn.status, turn.tools) == ("done", [])
    assert [entry.payload["text"] for entry in read_outbox_entries(base, "ada")] == [said]


def samples_in(base: Path) -> list[dict[str, Any]]:
    """Return the objects that ada's prompt shows, those of a schema apart."""
    messages = load_tick_record(Organisation.from_path(base), 1).started["ada"].prompt
    text = "\n".join(message["content"] for message in messages)
    values = [found.value for found in find_objects(text, is_strict=True)]
    return [value for value in values if "do" in value or not CONTRACT_KEYS.isdisjoint(value)]


BLOCKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with examples": {"examples": [{"input": "Is it cold?", "output": "Very."}]},
    "with a form": {
        "output": {
            "schema": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "price": {"type": "number"}},
                "required": ["text", "price"],
                "additionalProperties": False,
            }
        }
    },
}


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("prompt", ["fit", "brief", "full"])
def test_each_sample_of_a_prompt_is_a_valid_reply(tmp_path: Path, prompt: str, blocks: dict[str, Any]) -> None:
    run_once(org(tmp_path / "first", prompt=prompt, **blocks), clock=FrozenClock())
    samples = samples_in(tmp_path / "first")
    assert samples
    for number, sample in enumerate(samples):
        base = org(tmp_path / str(number), {"step": 0, "reply": json.dumps(sample)}, prompt=prompt, **blocks)
        remarks = take_turn(base).remarks
        assert not [remark for remark in remarks if remark.startswith(("asked again", "left out"))], sample
        if not CONTRACT_KEYS.isdisjoint(sample):
            assert parse_reply(json.dumps(sample), kinds=MESSAGE_KINDS, keep="all").left_out == ()
