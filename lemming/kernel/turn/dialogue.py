"""The dialogue of a turn with its model: kept while a request waits, and gone on with in its next turn. Pure.

A turn for a request shows its model a prompt, then what both said since. The prompt is made anew in every
turn, from what holds then. The messages behind it, which only the model and its tools know, are kept in the
ledger as long as results of calls wait: for a person, for another agent, or for the next turn. So a result
comes under the call that wanted it, in whichever turn. They follow from the turn's record alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import compact, to_line
from lemming.kernel.base.quoting import fenced, mark_for, quoted
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.dialogue import Dialogue
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.mail.task import Ended, Task
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import Message
from lemming.kernel.turn.forms.asking import show_results
from lemming.kernel.turn.forms.found import attach_found, list_found
from lemming.kernel.turn.forms.reply_form import ReplyForm
from lemming.kernel.turn.forms.situation import describe_asked, describe_results
from lemming.kernel.turn.labels import Labels
from lemming.kernel.turn.notices import extract_notices, notices_message, without_notices
from lemming.kernel.turn.prompt import (
    ANSWERS,
    describe_ended,
    native_results,
    native_tools,
    results_message,
    results_values,
)
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.values import TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft

DIALOGUE_BYTES = 32 << 10
"""The most that is kept for one request, as JSON: a ledger has a line for every turn of its agent."""
DIALOGUES_BYTES = 512 << 10
"""The most that an agent keeps for all its requests."""
SHORT_CHARS = 200
"""The length to which a result is shortened to make room."""

HIDDEN = {"success": True, "output": "(no result)"}
"""The result in place of one that the model is not told: a backend wants one for each of its calls."""
CONTRACT, CONTRACT_NATIVE = "contract", "contract, native"
"""Styles of dialogues whose replies are the contract's four keys, beside those of `ReplyForm`."""
TOO_LONG = "what was said is too long to keep: the next turn begins anew, with the results that waited"
CallResults = Sequence[tuple[Mapping[str, Any], str]]
"""Results as a model is told of them, each with the id of the model's own call; empty without one."""


def dialogue_style(form: ReplyForm | None, prompt: Sequence[Message]) -> str:
    """Return the way in which a turn's messages are written: another one cannot go on with them."""
    if form:
        return form.style
    return CONTRACT_NATIVE if native_tools(prompt) else CONTRACT


# --- keeping ----------------------------------------------------------------------------------------


def keep_dialogue(draft: Draft) -> Dialogue | None:
    """Return the dialogue of a turn that ends while results of its calls wait; None if it is not kept.

    Programs and strategies put their questions together themselves.
    """
    inputs = draft.inputs
    if inputs.model.prompt == "values" or inputs.agent.turn.strategy:
        return None
    if draft.conversation is not None:
        # A request is shown again from its entry. What an inbox showed is read, and told nowhere else.
        begins = len(inputs.prompt) - (inputs.task is None)
        messages = drop_unanswered(draft.conversation[begins:])
    else:  # no model was asked: calls that were approved are asked about again
        messages = drop_unanswered(inputs.dialogue)
    if not messages:
        return None
    short = shorten(messages, _find_room(draft))
    if short is None:
        draft.remarks += [] if TOO_LONG in draft.remarks else [TOO_LONG]
        return None
    unique, renamed = give_own_ids(short)
    hidden = (draft.calls[it] for it in sorted(draft.untold) if it >= draft.shown and draft.calls[it])
    return Dialogue(
        style=dialogue_style(inputs.form, inputs.prompt),
        messages=tuple(unique),
        calls=tuple(renamed.get(id_, id_) for id_ in (draft.calls[it] for it in draft.unshown_places)),
        hidden=tuple(renamed.get(id_, id_) for id_ in hidden),
        trust=draft.trust,
    )


def drop_unanswered(messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages up to the model's latest answer: results behind it were not answered, and wait."""
    end = next((end for end in range(len(messages), 0, -1) if messages[end - 1]["role"] == "assistant"), 0)
    return messages[:end]


def _find_room(draft: Draft) -> int:
    """Return the number of bytes that the ledger has left for the dialogue."""
    own = draft.task.begun.key if draft.task else ""
    others = (it.dialogue for it in draft.inputs.state.requests if it.key != own and it.dialogue)
    return min(DIALOGUE_BYTES, DIALOGUES_BYTES - sum(len(compact(it.as_json())) for it in others))


def shorten(messages: Sequence[Message], room: int) -> list[Message] | None:
    """Return messages that fit into so many bytes of JSON, the oldest results shortened first; else None.

    What the model said stays whole: backends check their own values, and calls must be JSON.
    """
    short, beyond = [*messages], len(compact([*messages])) - room
    for place, message in enumerate(messages):
        if beyond <= 0:
            break
        if message["role"] == "assistant" or len(message["content"]) <= 2 * SHORT_CHARS:
            continue
        text = message["content"]
        cut = {**message, "content": f"{text[:SHORT_CHARS]}\n[cut: {SHORT_CHARS} of {len(text)} characters]"}
        beyond -= len(compact(message)) - len(compact(cut))
        short[place] = cut
    return short if beyond <= 0 else None


def give_own_ids(messages: Sequence[Message]) -> tuple[list[Message], Mapping[str, str]]:
    """Return messages in which every call has an id of its own, and the new ids of the last calls.

    Backends that give no ids number the calls of each turn from the start, and others refuse an id that comes
    twice. A message with values of its backend's own stays as it is: its ids are the backend's.
    """
    taken, renamed = set[str](), dict[str, str]()
    unique: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            unique.append({**message, "call": renamed.get(message["call"], message["call"])})
            continue
        if calls := message.get("calls"):
            renamed = {} if "kept" in message else {it["id"]: _free_id(it["id"], taken) for it in calls}
            message = {**message, "calls": [{**it, "id": renamed.get(it["id"], it["id"])} for it in calls]}
            taken |= {it["id"] for it in message["calls"]}
        unique.append(message)
    return unique, renamed


def _free_id(id_: str, taken: Collection[str]) -> str:
    return id_ if id_ not in taken else next(it for n in count(2) if (it := f"{id_}-{n}") not in taken)


# --- going on ---------------------------------------------------------------------------------------


def find_dialogue(task: Task, agent: Agent, style: str) -> Dialogue | None:
    """Return the dialogue with which a turn for a request goes on; None if it begins anew."""
    dialogue = task.begun.dialogue
    return dialogue if dialogue and dialogue.style == style and not agent.turn.strategy else None


def list_call_ids(begun: Begun) -> list[str]:
    """Return the id of the model's own call for each result that a request keeps; empty without one."""
    ids = begun.dialogue.calls if begun.dialogue else ()
    return [id_ for id_, _ in zip_longest(ids, begun.results, fillvalue="")][: len(begun.results)]


def tell_results(
    entry: ModelEntry, form: ReplyForm | None, messages: Sequence[Message], results: CallResults
) -> list[Message]:
    """Return the messages that show a model the results of its calls, after the messages so far."""
    calls = messages[-1].get("calls", ()) if messages else ()
    ids = {call["id"] for call in calls}
    by_id = {id_: result for result, id_ in results if id_ in ids}
    in_words = [result for result, id_ in results if id_ not in ids]
    others, notices = without_notices(in_words), extract_notices(in_words)
    if entry.prompt == "values":
        return [results_values(others, notices)] if in_words else []
    shown = native_results(calls, by_id, own=form.own if form else ())
    if form:
        return [*shown, *show_results(form, describe_results(others), notices, has_own=bool(shown))]
    if others:
        shown.append(results_message(others, [*messages, *shown]))
    return [*shown, *([notices_message(notices)] if notices else [])]


def pair_with_calls(begun: Begun, dialogue: Dialogue, results: Sequence[Mapping[str, Any]]) -> CallResults:
    """Return the results that a request keeps, each with the id of its call, and those that are hidden."""
    hidden = [(HIDDEN, id_) for id_ in dialogue.hidden]
    return [*zip(results, list_call_ids(begun), strict=True), *hidden]


class Waited(NamedTuple):
    """The parts of a turn that stand behind its dialogue: results of calls, and ends of what it asked."""

    results: Sequence[Mapping[str, Any]]
    asked: Sequence[Ended]


def split_seen(seen: Seen, state: AgentState, to_come: Collection[int]) -> tuple[Seen, Waited | None]:
    """Return the values that the prompt shows, and those that stand behind the dialogue, if there is one.

    `to_come`: places of results that come as the turn begins. They are shown then.
    """
    task = seen.task
    if seen.dialogue is None or task is None:
        results = [it for place, it in enumerate(seen.results) if place not in to_come] if to_come else ()
        return (replace(seen, results=results) if to_come else seen), None
    before = next((it for it in state.requests if it.key == task.begun.key), task.begun)
    ended = {it.key for it in before.asked if it.end}  # these are in the dialogue
    asked = [it for it in task.asked if not it.asked.call and it.asked.key not in ended]
    first = len(state.results)
    waited = Waited(seen.results[first:], asked if any(it.asked.end for it in asked) else ())
    return replace(seen, results=seen.results[:first], task=task._replace(asked=())), waited


def continue_dialogue(
    inputs: TurnInputs, dialogue: Dialogue, waited: Waited, labels: Labels
) -> list[Message]:
    """Return the messages behind the prompt of a turn that goes on: those said, and what came since."""
    assert inputs.task, "a turn that goes on is for something"
    results = pair_with_calls(inputs.task.begun, dialogue, waited.results)
    messages = [*inputs.prompt, *dialogue.messages]
    shown = tell_results(inputs.model, inputs.form, messages, results)
    shown = attach_found(shown, list_found(result for result, _ in results))
    return [*dialogue.messages, *shown, *_tell_answers(inputs.form, waited.asked, labels)]


def _tell_answers(form: ReplyForm | None, asked: Sequence[Ended], labels: Labels) -> list[Message]:
    """Return the message that shows what others answered to entries of the model's, if they did."""
    if not asked:
        return []
    if form:
        lines = [line for ended in asked for line in describe_asked(ended, labels)]
        return [{"role": "user", "content": "\n".join(lines)}]
    text = "\n".join(quoted(to_line(describe_ended(ended, labels))) for ended in asked)
    content = f"{ANSWERS}:\n{fenced(text, mark_for([text]))}\nContinue with one JSON object."
    return [{"role": "user", "content": content}]
