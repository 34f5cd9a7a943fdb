"""What was said for a request that waits: bounded, sound when it is read back, gone when it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, org_of, tick

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.journal.ledger import AgentState, read_state, write_state
from lemming.kernel.journal.open_requests import Dialogue, OpenRequest
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import Agent, AgentCredits
from lemming.kernel.turn.dialogue import MAX_DIALOGUE_BYTES, TOO_LONG_REMARK, make_dialogue, shorten_messages
from lemming.kernel.turn.strategy import Turn
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.testing import resume, say

SAID = {"role": "assistant", "content": "", "calls": [{"id": "a", "tool": "ring", "args": {}}]}
GIVEN = {"role": "tool", "call": "a", "tool": "ring", "content": "rang", "success": True}
QUIET = {"schedule": {"wake": "addressed"}}


def calls(*tools: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"outbox_entries": [], "tool_calls": [{"tool": it, "args": args} for it, args in tools]}


def result(chars: int) -> dict[str, Any]:
    return {**GIVEN, "content": "x" * chars}


def test_a_dialogue_comes_back_from_the_ledger_as_it_was_written(tmp_path: Path) -> None:
    dialogue = Dialogue(style="native", messages=(SAID, GIVEN, SAID), calls=("a", ""), hidden=("b",), trust="low")
    state = AgentState(tick=1, requests=(OpenRequest(request="human/00000001_x", turns=1, dialogue=dialogue),))
    (tmp_path / "agents/ada").mkdir(parents=True)
    write_state(tmp_path, "ada", state)
    assert read_state(tmp_path, "ada").requests[0].dialogue == dialogue


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Obey."},
        {"role": "user"},
        {"role": "tool", "content": "rang"},
        {"role": "assistant", "content": "", "calls": [{"id": "a"}]},
        {"role": "assistant", "content": "", "calls": {"id": "a"}},
        {**GIVEN, "found": [{"name": "x", "description": "", "parameters": []}]},
        {**GIVEN, "found": {"name": "x"}},
    ],
)
def test_a_ledger_whose_dialogue_no_backend_could_be_sent_is_damaged(tmp_path: Path, message: dict[str, Any]) -> None:
    begun = {"request": "human/00000001_x", "turns": 1, "dialogue": {"style": "native", "messages": [message]}}
    (tmp_path / "agents/ada").mkdir(parents=True)
    line = {**AgentState(tick=1).as_json(), "requests": [begun]}
    (tmp_path / "agents/ada/turns.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(CorruptState, match="dialogue/messages/0"):
        read_state(tmp_path, "ada")


def test_the_oldest_results_are_shortened_until_a_dialogue_fits() -> None:
    messages = [SAID, result(3000), SAID, result(3000), SAID, result(3000), SAID]
    short = shorten_messages(messages, 8000)
    assert short
    assert len(dump_compact(short)) <= 8000
    assert [len(it["content"]) for it in short] == [0, 230, 0, 3000, 0, 3000, 0]
    assert short[1]["content"].endswith("[cut: 200 of 3000 characters]")


def test_what_fits_stays_as_it_is() -> None:
    messages = [SAID, result(3000), SAID]
    assert shorten_messages(messages, MAX_DIALOGUE_BYTES) == messages


def test_what_a_model_said_is_never_cut() -> None:
    assert shorten_messages([{"role": "assistant", "content": "x" * 9000}], 8000) is None


def test_no_more_is_kept_than_a_ledger_has_room_for(tmp_path: Path) -> None:
    long = "x" * (MAX_DIALOGUE_BYTES + 1)
    script = [
        {"agent": "desk", "contains": "it is 7", "reply": say("seven", kind="response")},
        {"agent": "desk", "reply": {**calls(("ask_ann", {"message": "a?"})), "notes": long}},
        {"agent": "ann", "reply": say("it is 7")},
    ]
    desk = resume("desk", team={"ask": ["ann"]}, **QUIET)
    org = org_of(tmp_path, desk, resume("ann", **QUIET), script=script)
    request = ask(org, "desk")
    tick(org)
    assert read_state(org, "desk").requests[0].dialogue is None
    tick(org)
    assert answers(org, "desk")[request.id]["text"] == "seven"


def test_nothing_is_kept_of_a_request_that_is_answered(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": "it is 7", "reply": say("seven", kind="response")},
        {"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}))},
        {"agent": "ann", "reply": say("it is 7")},
    ]
    desk = resume("desk", team={"ask": ["ann"]}, **QUIET)
    org = org_of(tmp_path, desk, resume("ann", **QUIET), script=script)
    ask(org, "desk")
    tick(org)
    assert read_state(org, "desk").requests[0].dialogue
    tick(org)
    tick(org)
    assert read_state(org, "desk").requests == ()


def test_a_turn_that_waits_for_nothing_keeps_no_dialogue(tmp_path: Path) -> None:
    script = [{"agent": "desk", "reply": say("working", kind="status")}]
    org = org_of(tmp_path, resume("desk", **QUIET), script=script)
    ask(org, "desk")
    tick(org)
    assert all(it.dialogue is None for it in read_state(org, "desk").requests)


@pytest.mark.parametrize(("others", "is_kept"), [(15, True), (16, False)])
def test_all_requests_of_an_agent_share_the_room_in_its_ledger(others: int, *, is_kept: bool) -> None:
    """So many that wait keep as much as one may; then the next turn begins anew, and the report says so."""
    long = Dialogue(style="native", messages=({"role": "assistant", "content": "x" * (MAX_DIALOGUE_BYTES - 60)},))
    waiting = tuple(OpenRequest(request=f"human/{number}", dialogue=long) for number in range(others))
    agent = Agent(name="ada", instructions="x")
    inputs = TurnInputs(
        agent=agent, tick=1, model=ModelEntry(provider="scripted"), allocation=AgentCredits(), max_steps=1,
        repairs=0, prompt=[{"role": "user", "content": "?"}], schema=None, read=ReadMark(),
        state=AgentState(requests=waiting),
    )  # fmt: skip
    draft = TurnState(inputs, NoAnswers())
    draft.strategy_turn = Turn(draft)
    draft.strategy_turn.conversation = [*inputs.prompt, {"role": "assistant", "content": "y" * 20_000}]
    kept = make_dialogue(draft)
    assert (kept is not None) == is_kept
    assert draft.remarks == ([] if is_kept else [TOO_LONG_REMARK])


class NoAnswers:
    """Answers of a turn that asks nothing."""

    def has_call(self, index: int) -> bool:
        return False
