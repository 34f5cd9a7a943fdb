"""A strategy is a function of the draft: how a turn asks and acts. What comes of it is the same for all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemming.kernel.agents import load_agent
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import OutOfCredits
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.org.settings_blocks import LoopSettings
from lemming.kernel.providers import Message
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.strategy import Turn, react
from lemming.kernel.turn.turn_loop import finish_turn
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import Answer, Steps, TurnInputs
from lemming.testing import make_org, resume, say

AT = "2026-01-01T00:00:00.000Z"


class Said:
    """Answers that are these texts, one after another; after the last the credits are spent."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.asked: list[list[Message]] = []

    def ask(self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None) -> Answer:
        """Return the next text."""
        if call == len(self.texts):
            raise OutOfCredits("3 of 3 spent")
        self.asked.append(list(messages))
        return Answer(self.texts[call], AT, credits=1.0)

    everyone = ()

    def has_answer(self, call: int) -> bool:
        """Return whether the answer is recorded: none is."""
        return False

    def run_check(self, *_: Any) -> Any:
        raise AssertionError

    def take_urgent(self, *_: Any) -> dict[str, str]:
        return {}

    def start_calls(self, *_: Any) -> None:
        """Begin nothing before its result is asked for."""

    def call_tool(self, index: int, call: ToolCall, at: str, *_: Any) -> ToolResult:
        """Return what every tool gives."""
        return ToolResult(True, "given")

    def refuse(self, *_: Any) -> None:
        """Nothing is recorded."""

    def has_call(self, index: int) -> bool:
        """Nothing is recorded."""
        return False

    def had_side_effects(self, index: int) -> bool:
        """Nothing does."""
        return False


@pytest.fixture
def inputs(base: Path) -> TurnInputs:
    """What a turn of ada starts from; two steps, one correction."""
    make_org(base, resume("ada"))
    return TurnInputs(
        agent=load_agent(base, "ada"),
        tick=1,
        model=ModelEntry(provider="scripted"),
        allocation=AgentCredits(),
        max_steps=2,
        repairs=1,
        prompt=[{"role": "user", "content": "work"}],
        schema=None,
        state=AgentState(),
        read=ReadMark(),
    )


def draft_and_revise(turn: Turn) -> Steps:
    """Ask for a text, ask for a better one, and act on that one only."""
    messages = turn.prompt
    first = yield from turn.ask(messages)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "better?"}]
    yield from turn.act((yield from turn.ask_reply(messages)))
    return "done"


def test_a_strategy_of_ones_own_asks_as_it_likes_and_only_what_it_acts_on_leaves(inputs: TurnInputs) -> None:
    answers = Said("a sketch", json.dumps(say("the text")))
    outcome = finish_turn(TurnState(inputs, answers), draft_and_revise)
    assert [message["content"] for message in answers.asked[1]] == ["work", "a sketch", "better?"]
    assert [entry.payload["text"] for entry in outcome.entries] == ["the text"]
    assert (outcome.report.status, outcome.report.calls, outcome.state.credits) == ("done", 2, 2.0)


def test_whatever_its_strategy_a_turn_that_gets_no_reply_fails_and_pays_for_what_it_asked(inputs: TurnInputs) -> None:
    outcome = finish_turn(TurnState(replace(inputs, repairs=0), Said("a sketch", "no contract")), draft_and_revise)
    assert (outcome.report.status, outcome.report.error) == ("failed", "ContractError")
    assert (outcome.entries, outcome.effects, outcome.state.credits) == ((), (), 2.0)


def test_whatever_its_strategy_a_turn_keeps_what_it_has_when_the_credits_end(inputs: TurnInputs) -> None:
    call = {"tool": "file_list", "args": {}}
    outcome = finish_turn(TurnState(inputs, Said(json.dumps(say("first", tool_calls=[call])))), react)
    assert (outcome.report.status, outcome.report.end) == ("waiting", "out_of_credits")
    assert outcome.report.remarks == ["3 of 3 spent"]
    assert [entry.payload["text"] for entry in outcome.entries] == ["first"]
    assert [result["output"] for result in outcome.state.results] == ["given"]


class Recorded(Said):
    """Answers that a journal holds, all of them."""

    def has_answer(self, call: int) -> bool:
        """Return whether there is one."""
        return call < len(self.texts)


def test_a_turn_recorded_before_repeats_ended_turns_goes_on_as_it_did(inputs: TurnInputs) -> None:
    call = {"tool": "file_list", "args": {}}
    same = [json.dumps(say("again", tool_calls=[call]))] * 6
    outcome = finish_turn(TurnState(replace(inputs, max_steps=6), Recorded(*same)), react)
    assert (outcome.report.end, outcome.report.calls) == ("step_limit", 6)
    outcome = finish_turn(TurnState(replace(inputs, max_steps=6), Recorded(*same[:5], json.dumps(say("over")))), react)
    assert (outcome.report.end, outcome.report.calls) == ("done", 6)


@pytest.mark.parametrize(("loops", "questions"), [(None, 2), (LoopSettings(), 1)])
def test_a_turn_that_0_2_0_has_begun_is_read_as_it_was_read_then(
    inputs: TurnInputs, loops: LoopSettings | None, questions: int
) -> None:
    """Its record says nothing of loops. Read otherwise, the answers on record would be those of others."""
    unsound = json.dumps({**say("first"), "memory_updates": [{"key": "a b", "value": 1}]})
    answers = Said(unsound, json.dumps(say("second")))
    outcome = finish_turn(TurnState(replace(inputs, loops=loops), answers), react)
    assert len(answers.asked) == questions
    assert [entry.payload["text"] for entry in outcome.entries] == ["first" if loops else "second"]


class CutOff(Said):
    """Answers that the token limit has cut off."""

    def ask(self, call: int, messages: list[Message], *more: Any) -> Answer:
        return replace(super().ask(call, messages, *more), finish="length")


@pytest.mark.parametrize("end", ["}", ""])
def test_a_call_that_lacks_its_end_is_made_unless_the_reply_was_cut_off(inputs: TurnInputs, end: str) -> None:
    text = f'{{"name": "file_list", "arguments": {{"path": "."{end}'
    begun = replace(inputs, loops=LoopSettings(), repairs=0, max_steps=1)
    outcomes = [finish_turn(TurnState(begun, said(text)), react) for said in (Said, CutOff)]
    assert [len(outcome.report.tools) for outcome in outcomes] == [1, 0]
    assert [outcome.report.error for outcome in outcomes] == ["", "ContractError"]
