"""One turn of one agent, and the strategy by which it is taken: ask, act, ask again, within limits.

What a turn starts from are its `TurnInputs`; whatever it asks of the world goes through its `Answers`, which
give back the recorded answer where there is one. So a turn that was interrupted is taken again from its
record and comes to the same outcome, whatever its strategy: a function of the draft that knows no disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from lemming.contract import TurnReply
from lemming.errors import ContractError, OutOfCredits, ProviderError
from lemming.providers import Message
from lemming.turn.draft import Draft
from lemming.turn.prompt import correction, results_message, results_values
from lemming.turn.values import Answers, TurnInputs, TurnOutcome

REPLY_CHARS_QUOTED = 4000

Strategy = Callable[[Draft], Literal["done", "waiting"]]
"""Asks and acts until a turn is over; "waiting": for its next turn, which shows what this one did not."""


def steps(draft: Draft) -> Literal["done", "waiting"]:
    """Ask, do what the reply says, and ask again with the results, as often as the agent may in one turn."""
    if draft.task and draft.task.is_used_up:
        return draft.give_up()
    messages = list(draft.inputs.prompt)
    for _ in range(draft.inputs.max_steps):
        if draft.unshown:
            messages.append(_results(draft, messages))
        reply = _ask(draft, messages)
        messages.append(_said(draft.answers[-1].text))
        draft.act(reply)
        if not draft.unshown or draft.is_answered or draft.is_handed_on:
            return "done"
        if draft.asked:
            return "waiting"
    return "waiting"


def finish(draft: Draft, strategy: Strategy = steps) -> TurnOutcome:
    """Take a turn to its end. A turn whose credits end on the way keeps what it has come to."""
    try:
        return draft.end(strategy(draft))
    except OutOfCredits as error:
        if not draft.answers:
            return draft.end("skipped", error)
        draft.remarks.append(str(error))
        return draft.end("waiting")
    except (ContractError, ProviderError) as error:
        return draft.end("failed", error)


def take_turn(inputs: TurnInputs, answers: Answers) -> TurnOutcome:
    """Take one turn. Whatever the model does, this returns; a failing disk or a stop is raised."""
    return finish(Draft(inputs, answers))


def _results(draft: Draft, messages: list[Message]) -> Message:
    if draft.inputs.model.prompt == "values":
        return results_values(draft.unshown)
    return results_message(draft.unshown, messages)


def _ask(draft: Draft, messages: list[Message]) -> TurnReply:
    """Get a reply that is the contract, with corrections where the limits allow."""
    problem: ContractError | None = None
    for corrections_left in range(draft.inputs.repairs, -1, -1):
        try:
            answer = draft.ask(messages)
        except OutOfCredits as error:
            if problem is None:
                raise
            return _salvage(draft, f"; no correction: {error.message}")
        try:
            return draft.read(answer)
        except ContractError as error:
            if not corrections_left:
                return _salvage(draft)
            problem = error
            draft.remarks.append(f"asked again: {error}"[:500])
            messages += [_said(answer.text[:REPLY_CHARS_QUOTED]), correction(str(error)[:2000])]
    raise AssertionError("unreachable: the last correction returns or raises")


def _salvage(draft: Draft, why: str = "") -> TurnReply:
    """Read the last answer, which stays as it is, without its wrong parts; raise if nothing remains."""
    try:
        return draft.read(draft.answers[-1], keep="any" if draft.accepted else "some")
    except ContractError as error:
        raise ContractError(f"{error.message}{why}") from error


def _said(text: str) -> Message:
    return {"role": "assistant", "content": text}
