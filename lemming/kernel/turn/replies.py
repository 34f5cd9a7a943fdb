"""A model's answer as the reply that it is: by its text, by its backend's own calls, or by both. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from lemming.kernel.base.contract import Keep, ToolCall, TurnReply, has_contract, parse_reply
from lemming.kernel.base.errors import ContractError
from lemming.kernel.providers import require_reply
from lemming.kernel.turn.actions import as_reply
from lemming.kernel.turn.forms.found import map_found_names
from lemming.kernel.turn.forms.reading import read_form
from lemming.kernel.turn.forms.shapes import read_calls
from lemming.kernel.turn.forms.signatures import list_actions
from lemming.kernel.turn.hooks import Seams
from lemming.kernel.turn.prompt import native_tools
from lemming.kernel.turn.values import Answer, TurnInputs


def read_reply(
    inputs: TurnInputs,
    seams: Seams,
    answer: Answer,
    *,
    keep: Keep = "all",
    has_written: bool = False,
    found: Sequence[Mapping[str, Any]] = (),
) -> TurnReply:
    """Return the reply that an answer is; raise `ContractError` for what is none.

    `has_written`: the turn has written an entry already. `found`: the tools that a search of it has found.
    """
    require_reply(answer.finish, answer.text)
    limits = inputs.agent.turn
    is_asked = inputs.task is not None or (inputs.form is not None and inputs.form.requests)
    kinds = [*limits.kinds, *{"response"}.difference(limits.kinds)] if is_asked else limits.kinds
    try:
        reply = _parsed(inputs, seams, answer, kinds, keep, has_written=has_written, found=found)
        if reply.tool_calls:
            reply = _limited(reply, limits.max_tool_calls)
        for reads in seams.reads if keep == "all" else ():
            reads(reply)
        if inputs.form and answer.finish == "length":
            # A plain text has no end that could be missed.
            more = f"the reply was cut off at the token limit ({_how_to_have_more(inputs)})"
            reply = reply._replace(remarks=(*reply.remarks, more))
        return reply
    except ContractError as error:
        if answer.finish == "length":
            cut_off = f"the reply was cut off at the token limit; be shorter ({error})"
            raise ContractError(cut_off, hint=_how_to_have_more(inputs)) from error
        raise


def _parsed(
    inputs: TurnInputs,
    seams: Seams,
    answer: Answer,
    kinds: Iterable[str],
    keep: Keep,
    *,
    has_written: bool,
    found: Sequence[Mapping[str, Any]],
) -> TurnReply:
    """Return what an answer asks for by text and calls; beside calls, other text is a note."""
    limit, kinds = inputs.agent.turn.max_entries, tuple(kinds)
    fit = seams.fits[0] if seams.fits else None
    read = partial(
        parse_reply, kinds=kinds, max_entries=limit, max_calls=None, keep=_kept(inputs, keep), fit=fit
    )
    told = native_tools(inputs.prompt)
    native = {tool["name"]: tool.get("tool", tool["name"]) for tool in told}
    more = map_found_names(told, found) if found else {}
    native |= more if told else {}
    if inputs.form:
        tools = native.values() or [*_tools_in(inputs.schema), *more]
        return read_form(inputs.form, answer, tools, native, read, has_written=has_written)
    if inputs.model.prompt == "tools":
        said = as_reply(answer.text, kinds)
        return read(said)
    if not answer.calls:
        return _read_text(inputs, answer, read)
    try:
        reply = read(answer.text, has_calls=True)
    except ContractError:
        reply = TurnReply(notes=answer.text.strip())
    calls = [ToolCall(native.get(it["tool"], it["tool"]), it["args"], it["id"]) for it in answer.calls]
    return reply._replace(tool_calls=(*calls, *reply.tool_calls))


def _kept(inputs: TurnInputs, keep: Keep) -> Keep:
    """Return the parts that may be left out: none of a turn of 0.2.0, which asked again for all of them."""
    return "sound" if keep == "all" and inputs.loops is not None else keep


def _read_text(inputs: TurnInputs, answer: Answer, read: Callable[[str], TurnReply]) -> TurnReply:
    """Return the reply of four keys that a text is, with the calls that models write beside or instead."""
    problem = None
    try:
        reply = read(answer.text)
    except ContractError as error:
        if has_contract(answer.text):
            raise
        reply, problem = TurnReply(), error
    if inputs.loops is not None and (problem or reply.remarks):
        names, is_cut_off = inputs.agent.permissions.tools, answer.finish == "length"
        found, rest = read_calls(answer.text, names, is_cut_off=is_cut_off)
        calls = [ToolCall(call.name, call.args) for call in found if isinstance(call.args, dict)]
        more = [call for call in calls if call not in reply.tool_calls]
        if more and len(calls) == len(found):
            notes = rest if problem else reply.notes
            return reply._replace(tool_calls=(*reply.tool_calls, *more), notes=notes)
    if problem:
        raise problem
    return reply


def _tools_in(schema: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the actions that a schema offers."""
    return [one["properties"]["do"]["const"] for one in list_actions(schema)] if schema else []


def _how_to_have_more(inputs: TurnInputs) -> str:
    """Return the remedy for replies that are cut off."""
    key, most = inputs.agent.model.key, inputs.model.max_output_tokens
    return f'raise "max_output_tokens" ({most}) of "{key}" in config/models.json'


def _limited(reply: TurnReply, most: int) -> TurnReply:
    """Return a reply with the tool calls that may be made, and a word about the rest."""
    beyond = len(reply.tool_calls) - most
    if beyond <= 0:
        return reply
    left = f"tool_calls: {beyond} of {most + beyond} were left out"
    why = f"{left}, the limit is {most} (turn.max_tool_calls)"
    return reply._replace(tool_calls=reply.tool_calls[:most], left_out=(*reply.left_out, why))
