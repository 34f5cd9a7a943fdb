"""A model's answer as the reply that it is: by its text, by its backend's own calls, or by both. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from lemming.kernel.base.contract import MAX_TOOL_CALLS, Keep, ToolCall, TurnReply, parse_reply
from lemming.kernel.base.errors import ContractError
from lemming.kernel.providers import require_reply
from lemming.kernel.turn.actions import as_reply
from lemming.kernel.turn.hooks import Seams
from lemming.kernel.turn.prompt import native_tools
from lemming.kernel.turn.values import Answer, TurnInputs


def read_reply(inputs: TurnInputs, seams: Seams, answer: Answer, *, keep: Keep = "all") -> TurnReply:
    """Return the reply that an answer is; raise `ContractError` for what is none."""
    require_reply(answer.finish)
    limits = inputs.agent.turn
    kinds = limits.kinds if inputs.task is None else [*limits.kinds, *{"response"}.difference(limits.kinds)]
    try:
        reply = _parsed(inputs, seams, answer, kinds, keep)
        for reads in seams.reads if keep == "all" else ():
            reads(reply)
        return reply
    except ContractError as error:
        if answer.finish == "length":
            cut_off = f"the reply was cut off at the token limit; be shorter ({error})"
            raise ContractError(cut_off) from error
        raise


def _parsed(inputs: TurnInputs, seams: Seams, answer: Answer, kinds: Iterable[str], keep: Keep) -> TurnReply:
    """Return what an answer asks for by text and calls; beside calls, other text is a note."""
    limit, kinds = inputs.agent.turn.max_entries, tuple(kinds)
    fit = seams.fits[0] if seams.fits else None
    if inputs.model.prompt == "tools":
        said = as_reply(answer.text, kinds)
        return parse_reply(said, kinds=kinds, max_entries=limit, keep=keep, fit=fit)
    if not answer.calls:
        return parse_reply(answer.text, kinds=kinds, max_entries=limit, keep=keep, fit=fit)
    try:
        reply = parse_reply(answer.text, kinds=kinds, max_entries=limit, keep=keep, fit=fit)
    except ContractError:
        reply = TurnReply(notes=answer.text.strip())
    named = {tool["name"]: tool.get("tool", tool["name"]) for tool in native_tools(inputs.prompt)}
    calls = [ToolCall(named.get(it["tool"], it["tool"]), it["args"], it["id"]) for it in answer.calls]
    return reply._replace(tool_calls=(*calls, *reply.tool_calls)[:MAX_TOOL_CALLS])
