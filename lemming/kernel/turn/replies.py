"""Conversion of a model's answer into a reply: from text, from the backend's own calls, or both. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lemming.kernel.base.contract import Keep, NewEntry, ToolCall, TurnReply, parse_reply
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.reply_json import has_contract
from lemming.kernel.obligations.current_request import NOT_ANSWERED
from lemming.kernel.providers import require_usable_finish
from lemming.kernel.turn.effect_chain import EffectChain
from lemming.kernel.turn.forms.form_question import list_earlier_found_tools, map_found_names
from lemming.kernel.turn.forms.reply_reader import parse_form_reply
from lemming.kernel.turn.forms.reply_shapes import extract_calls
from lemming.kernel.turn.reply_schemas import list_actions
from lemming.kernel.turn.turn_effects import Allowed, CheckEntries, TakeReply
from lemming.kernel.turn.turn_prompt import native_tools
from lemming.kernel.turn.turn_state_values import TurnStateValues
from lemming.kernel.turn.turn_values import Answer, TurnInputs


def read_reply(turn_state: TurnStateValues, answer: Answer, keep: Keep) -> TurnReply:
    """Return the reply in an answer. Raises `ContractError` for an invalid reply."""
    require_usable_finish(answer.finish, answer.text)
    inputs, chain = turn_state.inputs, turn_state.chain
    needs_answer = bool(inputs.current_request and inputs.current_request.request) and not turn_state.may_skip_response
    try:
        reply = _parse(turn_state, answer, keep)
        if reply.tool_calls:
            reply = _limit_calls(reply, inputs.agent.turn.max_tool_calls)
        has_content = reply.outbox_entries or reply.tool_calls or reply.goes_on or turn_state.entries
        if keep == "all" and needs_answer and not has_content:
            raise ContractError(NOT_ANSWERED)
        if keep == "all" and TakeReply in chain.handled:
            passed = chain.decide(TakeReply(reply=reply))
            if not isinstance(passed, TakeReply):
                raise ContractError(passed.reason)
            reply = passed.reply
        if inputs.form and answer.finish == "length":
            # A plain text has no end that could be missed.
            remark = f"the reply was cut off at the token limit ({_cutoff_remedy(inputs)})"
            reply = reply._replace(remarks=(*reply.remarks, remark))
        return reply
    except ContractError as error:
        if answer.finish == "length":
            message = f"the reply was cut off at the token limit; be shorter ({error})"
            raise ContractError(message, hint=_cutoff_remedy(inputs)) from error
        raise


def _parse(turn_state: TurnStateValues, answer: Answer, keep: Keep) -> TurnReply:
    """Return the reply from the text and calls of an answer. Text beside calls is a note."""
    inputs, chain, limits = turn_state.inputs, turn_state.chain, turn_state.inputs.agent.turn
    has_request = inputs.current_request is not None or (inputs.form is not None and inputs.form.requests)
    kinds = (*limits.kinds, *({"response"}.difference(limits.kinds) if has_request else ()))
    # Turns of version 0.2.0 required every part.
    keep = "sound" if keep == "all" and inputs.loops is not None else keep
    validate = partial(_check_entries, chain) if CheckEntries in chain.handled else None
    parse_checked = partial(parse_reply, validate_entries=validate)
    parse = partial(parse_checked, kinds=kinds, max_entries=limits.max_entries, max_calls=None, keep=keep)
    declared_tools = native_tools(inputs.prompt)
    native = {tool["name"]: tool.get("tool", tool["name"]) for tool in declared_tools}
    found_tools = [*list_earlier_found_tools(inputs), *turn_state.results.found_tools]
    found_names = map_found_names(declared_tools, found_tools) if found_tools else {}
    native |= found_names if declared_tools else {}
    if inputs.form:
        actions = list_actions(inputs.schema) if inputs.schema else ()
        offered = [action["properties"]["do"]["const"] for action in actions]
        tools = native.values() or [*offered, *found_names]
        return parse_form_reply(inputs.form, answer, tools, native, parse, has_written=bool(turn_state.entries))
    if inputs.model.prompt == "tools":
        return parse(to_reply_text(answer.text, kinds))
    if not answer.calls:
        return _read_text(inputs, answer, parse)
    try:
        reply = parse(answer.text, has_calls=True)
    except ContractError:
        reply = TurnReply(notes=answer.text.strip())
    calls = [ToolCall(native.get(call["tool"], call["tool"]), call["args"], call["id"]) for call in answer.calls]
    return reply._replace(tool_calls=(*calls, *reply.tool_calls))


def _check_entries(chain: EffectChain, entries: list[NewEntry]) -> list[NewEntry | list[str]]:
    """Return each entry as it is written, or the problems of its payload."""
    outcome = chain.dispatch(CheckEntries(entries=entries))
    return [*outcome.answer] if isinstance(outcome, Allowed) else [[outcome.reason] for _ in entries]


def _read_text(inputs: TurnInputs, answer: Answer, read: Callable[[str], TurnReply]) -> TurnReply:
    """Return the reply in a text of four keys, including calls that models write beside or instead."""
    problem = None
    try:
        reply = read(answer.text)
    except ContractError as error:
        if has_contract(answer.text):
            raise
        reply, problem = TurnReply(), error
    if inputs.loops is not None and (problem or reply.remarks):
        names, is_cut_off = inputs.agent.permissions.tools, answer.finish == "length"
        raw_calls, other_text = extract_calls(answer.text, names, is_cut_off=is_cut_off)
        calls = [ToolCall(call.name, call.args) for call in raw_calls if isinstance(call.args, dict)]
        extra_calls = [call for call in calls if call not in reply.tool_calls]
        if extra_calls and len(calls) == len(raw_calls):
            notes = other_text if problem else reply.notes
            return reply._replace(tool_calls=(*reply.tool_calls, *extra_calls), notes=notes)
    if problem:
        raise problem
    return reply


def _cutoff_remedy(inputs: TurnInputs) -> str:
    key, max_tokens = inputs.agent.model.key, inputs.model.max_output_tokens
    return f'raise "max_output_tokens" ({max_tokens}) of "{key}" in config/models.json'


def _limit_calls(reply: TurnReply, max_calls: int) -> TurnReply:
    """Return a reply with the permitted number of tool calls, and a remark about the rest."""
    excess = len(reply.tool_calls) - max_calls
    if excess <= 0:
        return reply
    remark = (
        f"tool_calls: {excess} of {max_calls + excess} were left out, the limit is {max_calls} (turn.max_tool_calls)"
    )
    return reply._replace(tool_calls=reply.tool_calls[:max_calls], left_out=(*reply.left_out, remark))


SEND, DONE = "send_message", "done"

_FENCED = re.compile(r"(?:<tool_call>|```(?:json)?)(.*?)(?:</tool_call>|```|\Z)", re.DOTALL)


def to_reply_text(text: str, kinds: Sequence[str]) -> str:
    """Return an action as a reply of four keys. Any other text is unchanged.

    >>> to_reply_text('{"name": "file_read", "arguments": {"path": "x"}}', ["message"])
    '{"tool_calls":[{"tool":"file_read","args":{"path":"x"}}]}'
    >>> to_reply_text('<tool_call> {"name": "send_message", "arguments": {"text": "hi"}}', ["report"])
    '{"outbox_entries":[{"kind":"report","payload":{"text":"hi"}}]}'
    """
    action = _find_action(text)
    if action is None:
        return text
    name, arguments = action
    if name == DONE:
        return dump_compact({"outbox_entries": []}).decode()
    if name == SEND:
        kind = "message" if "message" in kinds else kinds[0]
        return dump_compact({"outbox_entries": [{"kind": kind, "payload": arguments}]}).decode()
    return dump_compact({"tool_calls": [{"tool": name, "args": arguments}]}).decode()


def _find_action(text: str) -> tuple[str, Any] | None:
    """Return the first action in a text (bare, fenced or in tags), or None."""
    match = _FENCED.search(text)
    for part in (text, match[1] if match else ""):
        try:
            raw = parse(part)
        except JsonProblem:
            continue
        if isinstance(raw, dict) and isinstance(raw.get("name"), str):
            arguments = raw.get("arguments", raw.get("parameters", {}))
            return raw["name"], {} if arguments is None else arguments
    return None
