"""Dialogue of a turn with the model: stored while a request waits, and continued in the next turn. Pure.

A request's turn shows the model a prompt, then the messages of both sides. Every turn builds the prompt anew
from the current state. The messages behind the prompt, known only to the model and the tools, stay in the
ledger while results of calls wait for a person, another agent or the next turn. So a result follows the call
that requested the result, in any turn. All messages follow from the turn's record alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import dump_compact, to_line
from lemming.kernel.base.untrusted_quoting import escape_markers, fence_text, make_marker
from lemming.kernel.inboxes.turn_agenda import RequestOutcome, Task
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import Dialogue, OpenRequest
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Message
from lemming.kernel.turn.forms.form_question import attach_found_tools, list_found_tools, render_action_results
from lemming.kernel.turn.forms.form_user_message import describe_results, describe_sub_request
from lemming.kernel.turn.forms.reply_form import ReplyForm
from lemming.kernel.turn.prompt_input import PromptInput, PromptLabels
from lemming.kernel.turn.tool_results import extract_notices, notices_message, without_notices
from lemming.kernel.turn.turn_prompt import (
    ANSWERS_TITLE,
    describe_outcome,
    native_results,
    native_tools,
    results_as_values,
    results_message,
)
from lemming.kernel.turn.turn_values import TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState

MAX_DIALOGUE_BYTES = 32 << 10
"""Maximum bytes stored for one request, as JSON: a ledger has a line for every turn of its agent."""
MAX_DIALOGUES_BYTES = 512 << 10
"""The most that an agent keeps for all its requests."""
SHORT_CHARS = 200
"""The length to which a result is shortened to make room."""

HIDDEN_RESULT = {"success": True, "output": "(no result)"}
"""The result in place of one that the model is not told: a backend wants one for each of its calls."""
CONTRACT, CONTRACT_NATIVE = "contract", "contract, native"
"""Styles with replies of the contract's four keys, besides those of `ReplyForm`."""
TOO_LONG_REMARK = "what was said is too long to keep: the next turn begins anew, with the results that waited"
CallResults = Sequence[tuple[Mapping[str, Any], str]]
"""Results as the model sees them, each with the id of the model's own call; empty without one."""


def dialogue_style(form: ReplyForm | None, prompt: Sequence[Message]) -> str:
    """Return the message style of a turn. A dialogue continues only in the same style."""
    if form:
        return form.style
    return CONTRACT_NATIVE if native_tools(prompt) else CONTRACT


# --- keeping ----------------------------------------------------------------------------------------


def make_dialogue(turn_state: TurnState) -> Dialogue | None:
    """Return the dialogue to store for a turn with waiting results, or None.

    Programs and strategies build their own prompts and have no stored dialogue.
    """
    inputs = turn_state.inputs
    if inputs.model.prompt == "values" or inputs.agent.turn.strategy:
        return None
    if conversation := turn_state.strategy_turn.conversation:
        # A request is shown again from its entry. Inbox entries are marked as read and never shown again.
        start = len(inputs.prompt) - (inputs.current_request is None)
        messages = drop_unanswered(conversation[start:])
    else:  # no model was called: approved calls need another approval
        messages = drop_unanswered(inputs.dialogue)
    if not messages:
        return None
    own_key = inputs.current_request.begun.key if inputs.current_request else ""
    other_requests = (request for request in inputs.state.requests if request.key != own_key and request.dialogue)
    used_bytes = sum(len(dump_compact(request.dialogue.as_json())) for request in other_requests if request.dialogue)
    short = shorten_messages(messages, min(MAX_DIALOGUE_BYTES, MAX_DIALOGUES_BYTES - used_bytes))
    if short is None:
        if TOO_LONG_REMARK not in turn_state.remarks:
            turn_state.remark(TOO_LONG_REMARK)
        return None
    unique, renamed = make_ids_unique(short)
    hidden = (
        turn_state.results.call_ids[index]
        for index in sorted(turn_state.results.hidden)
        if index >= turn_state.results.shown_count and turn_state.results.call_ids[index]
    )
    return Dialogue(
        style=dialogue_style(inputs.form, inputs.prompt),
        messages=tuple(unique),
        calls=tuple(
            renamed.get(call_id, call_id)
            for call_id in (turn_state.results.call_ids[index] for index in turn_state.results.unshown_indexes)
        ),
        hidden=tuple(renamed.get(call_id, call_id) for call_id in hidden),
        trust=turn_state.trust_label,
    )


def drop_unanswered(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages up to the model's latest answer. Later results are unanswered and wait."""
    end = next((end for end in range(len(messages), 0, -1) if messages[end - 1]["role"] == "assistant"), 0)
    return messages[:end]


def shorten_messages(messages: Sequence[Message], room: int) -> list[Message] | None:
    """Return messages that fit into `room` bytes of JSON, with the oldest results shortened first, or None.

    Messages of the model stay complete: backends check their own values, and calls must be JSON.
    """
    short, excess = [*messages], len(dump_compact([*messages])) - room
    for index, message in enumerate(messages):
        if excess <= 0:
            break
        if message["role"] == "assistant" or len(message["content"]) <= 2 * SHORT_CHARS:
            continue
        text = message["content"]
        shortened = {**message, "content": f"{text[:SHORT_CHARS]}\n[cut: {SHORT_CHARS} of {len(text)} characters]"}
        excess -= len(dump_compact(message)) - len(dump_compact(shortened))
        short[index] = shortened
    return short if excess <= 0 else None


def make_ids_unique(messages: Sequence[Message]) -> tuple[list[Message], Mapping[str, str]]:
    """Return messages with a unique id for every call, and the new ids of the last calls.

    Some backends number the calls of each turn from the start, and others refuse a repeated id. A message
    with backend values is unchanged, because the ids belong to the backend.
    """
    used_ids, renamed = set[str](), dict[str, str]()
    unique: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            unique.append({**message, "call": renamed.get(message["call"], message["call"])})
            continue
        if calls := message.get("calls"):
            renamed = {}
            for call_id in () if "kept" in message else [call["id"] for call in calls]:
                numbered = (f"{call_id}-{number}" for number in count(2))
                renamed[call_id] = next(item for item in chain([call_id], numbered) if item not in used_ids)
            message = {**message, "calls": [{**call, "id": renamed.get(call["id"], call["id"])} for call in calls]}
            used_ids |= {call["id"] for call in message["calls"]}
        unique.append(message)
    return unique, renamed


# --- going on ---------------------------------------------------------------------------------------


def find_dialogue(task: Task, agent: Agent, style: str) -> Dialogue | None:
    """Return the stored dialogue that a request's turn continues, or None for a fresh start."""
    dialogue = task.open_request.dialogue
    return dialogue if dialogue and dialogue.style == style and not agent.turn.strategy else None


def list_call_ids(open_request: OpenRequest) -> list[str]:
    """Return the model's call id for each stored result of a request, or an empty string."""
    ids = open_request.dialogue.calls if open_request.dialogue else ()
    return [call_id for call_id, _ in zip_longest(ids, open_request.results, fillvalue="")][: len(open_request.results)]


def render_results(
    entry: ModelEntry, form: ReplyForm | None, messages: Sequence[Message], results: CallResults
) -> list[Message]:
    """Return the messages that show a model the results of the calls, after the messages up to now."""
    calls = messages[-1].get("calls", ()) if messages else ()
    ids = {call["id"] for call in calls}
    by_id = {call_id: result for result, call_id in results if call_id in ids}
    text_results = [result for result, call_id in results if call_id not in ids]
    tool_results, notices = without_notices(text_results), extract_notices(text_results)
    if entry.prompt == "values":
        return [results_as_values(tool_results, notices)] if text_results else []
    rendered = native_results(calls, by_id, engine_actions=form.own if form else ())
    if form:
        action_results = describe_results(tool_results)
        return [*rendered, *render_action_results(form, action_results, notices, has_own=bool(rendered))]
    if tool_results:
        rendered.append(results_message(tool_results, [*messages, *rendered]))
    return [*rendered, *([notices_message(notices)] if notices else [])]


def pair_with_calls(open_request: OpenRequest, dialogue: Dialogue, results: Sequence[Mapping[str, Any]]) -> CallResults:
    """Return the stored results of a request, each with a call id, and placeholders for hidden results."""
    hidden = [(HIDDEN_RESULT, call_id) for call_id in dialogue.hidden]
    return [*zip(results, list_call_ids(open_request), strict=True), *hidden]


class PendingParts(NamedTuple):
    """Parts of a turn that follow the dialogue: results of calls and outcomes of sub-requests."""

    results: Sequence[Mapping[str, Any]]
    outcomes: Sequence[RequestOutcome]


def split_prompt_input(
    prompt_input: PromptInput, state: AgentState, pending_indexes: Collection[int]
) -> tuple[PromptInput, PendingParts | None]:
    """Return the values for the prompt, and the parts that follow the dialogue, if there is a dialogue.

    `pending_indexes`: indexes of results that arrive as the turn begins and are shown then.
    """
    task = prompt_input.task
    if prompt_input.dialogue is None or task is None:
        results = (
            [item for index, item in enumerate(prompt_input.results) if index not in pending_indexes]
            if pending_indexes
            else ()
        )
        return (replace(prompt_input, results=results) if pending_indexes else prompt_input), None
    old_request = next((item for item in state.requests if item.key == task.open_request.key), task.open_request)
    closed_keys = {item.key for item in old_request.asked if item.end}  # these are in the dialogue
    outcomes = [item for item in task.outcomes if not item.sub_request.call and item.sub_request.key not in closed_keys]
    first = len(state.results)
    pending = PendingParts(
        prompt_input.results[first:], outcomes if any(item.sub_request.end for item in outcomes) else ()
    )
    return replace(prompt_input, results=prompt_input.results[:first], task=task._replace(outcomes=())), pending


def continue_dialogue(
    inputs: TurnInputs, dialogue: Dialogue, pending: PendingParts, labels: PromptLabels
) -> list[Message]:
    """Return the messages behind the prompt of a continued turn: the stored messages, then the new ones."""
    assert inputs.current_request, "a continued turn has a request"
    results = pair_with_calls(inputs.current_request.begun, dialogue, pending.results)
    messages = [*inputs.prompt, *dialogue.messages]
    rendered = render_results(inputs.model, inputs.form, messages, results)
    rendered = attach_found_tools(rendered, list_found_tools(result for result, _ in results))
    return [*dialogue.messages, *rendered, *_render_answers(inputs.form, pending.outcomes, labels)]


def _render_answers(form: ReplyForm | None, outcomes: Sequence[RequestOutcome], labels: PromptLabels) -> list[Message]:
    """Return the message that shows answers of other agents to the model's entries, if any."""
    if not outcomes:
        return []
    if form:
        lines = [line for outcome in outcomes for line in describe_sub_request(outcome, labels)]
        return [{"role": "user", "content": "\n".join(lines)}]
    text = "\n".join(escape_markers(to_line(describe_outcome(outcome, labels))) for outcome in outcomes)
    content = f"{ANSWERS_TITLE}:\n{fence_text(text, make_marker([text]))}\nContinue with one JSON object."
    return [{"role": "user", "content": content}]
