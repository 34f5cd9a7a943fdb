"""A tool call that waits for a person's leave, and what a person decides about it. Pure: docs/approvals.md.

The exact call stands in the ledger of the agent; the request that asks for leave shows it to people. Whatever
anybody writes into the request changes nothing about the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from lemming.files.jsontext import compact, to_line

Json = dict[str, Any]
ARGS_CHARS = 300
Word = Literal["approve", "deny", "answer"]

DECISION: Json = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "deny", "answer"]},
        "args": {"type": "object", "description": "approve: make it with these arguments instead"},
        "reason": {"type": "string", "description": "deny: why"},
        "answer": {"type": "string", "description": "answer: the result, in the place of the call"},
    },
    "required": ["decision"],
}
"""The JSON Schema of a decision, which requests for leave carry."""


class Decision(NamedTuple):
    """What a person decided. `args`: those to make the call with instead; `text`: why, or the result."""

    word: Word
    text: str = ""
    args: Json | None = None


def digest_of(tool: str, args: Json) -> str:
    """Return what tells a call from all others, in hex."""
    return sha256(compact([tool, args])).hexdigest()


def waiting_call(payload: Mapping[str, Any]) -> Json:
    """Return the exact call that the payload of a request for leave was made for, as a ledger keeps it."""
    return {key: payload["call"][key] for key in ("id", "tool", "args", "sha256", "binds", "gate", "why")}


def said_of_call(call: Mapping[str, Any]) -> str:
    """Return a call that waits on one line, and why it does.

    >>> push = {"tool": "shell", "args": {"command": "git push"}, "why": "it sends", "gate": "org.json#/0"}
    >>> said_of_call(push)
    'shell: run `git push`; asks because it sends (org.json#/0)'
    """
    return f"{call['tool']}: {_said_of_args(call['args'])}; asks because {call['why']} ({call['gate']})"


def _said_of_args(args: Json) -> str:
    command = args.get("command")
    if args.keys() == {"command"} and isinstance(command, str):
        return f"run `{_cut(to_line(command)[1:-1])}`"
    return _cut(to_line(args))


def _cut(text: str) -> str:
    return text if len(text) <= ARGS_CHARS else f"{text[:ARGS_CHARS]}… ({len(text)} characters)"


def asks_leave(payload: Mapping[str, Any]) -> bool:
    """Return whether the payload of a request shows a call that waits for leave."""
    call = payload.get("call")
    return isinstance(call, dict) and "gate" in call


def decision_in(payload: Mapping[str, Any]) -> Decision | None:
    """Return what the payload of a response decides; None where it decides nothing.

    >>> decision_in({"decision": "deny", "reason": "not on a Friday"})
    Decision(word='deny', text='not on a Friday', args=None)
    >>> decision_in({"text": "yes please"})
    """
    if payload.get("status") in ("refused", "failed"):
        return Decision("deny", _text(payload, "reason"))
    match payload.get("decision"):
        case "approve":
            args = payload.get("args")
            return Decision("approve", args=args) if args is None or isinstance(args, dict) else None
        case "deny":
            return Decision("deny", _text(payload, "reason"))
        case "answer" if text := _text(payload, "answer"):
            return Decision("answer", text)
    return None


def _text(payload: Mapping[str, Any], key: str) -> str:
    return next((it for name in (key, "text") if isinstance(it := payload.get(name), str) and it), "")
