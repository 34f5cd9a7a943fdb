"""A tool call that waits for a person's leave, and what a person decides about it. Pure: docs/approvals.md.

The exact call stands in the ledger of the agent; the request that asks for leave shows it to people. Whatever
anybody writes into the request changes nothing about the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from lemming.clock import parse_timestamp, timestamp
from lemming.files.jsontext import compact, to_line
from lemming.times.spoken import parse_duration
from lemming.unseen import notes_on

Json = dict[str, Any]
LOOK_CLOSELY = "LOOK CLOSELY: there is more to it than is seen; `lemming approvals ID` says what"
ARGS_CHARS, DIFF_CHARS = 300, 8000
SHOW, SPEND, PUBLISH = "show", "spend", "publish"
"""What waits for leave and is no call of a tool: to be shown an entry, to go on beyond a limit, to write an
entry."""
Word = Literal["approve", "deny", "answer"]
Expires = int | str
"""How long an answer is waited for: so many ticks, or a time such as "2h"."""

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
    """What a person decided. `args`: those to make the call with instead; `text`: why, or the result.

    `binds`: what the files that `args` name held as they decided, where they say so.
    """

    word: Word
    text: str = ""
    args: Json | None = None
    binds: Json | None = None


def held_call(
    identity: str,
    tool: str,
    args: Json,
    *,
    gate: str,
    why: str,
    binds: Json | None = None,
    unbound: Sequence[str] = (),
) -> Json:
    """Return a call that waits, as a ledger keeps it; `unbound`: in words, what may yet change of it."""
    return {
        "id": identity,
        "tool": tool,
        "args": args,
        "sha256": digest_of(tool, args),
        "binds": binds or {},
        "gate": gate,
        "why": why or "a gate asks for approval",
        **({"unbound": [*unbound]} if unbound else {}),
    }


def too_many(most: int) -> str:
    """Return what a turn is told of one thing more than persons may be asked to approve for it."""
    return (
        f"REFUSED: this turn asks persons to approve {most} things already, as many as it may "
        "(turn.max_approvals); ask for the rest once these are decided"
    )


def request_for(
    call: Json,
    people: Sequence[str],
    expires: Sequence[Expires],
    at: str,
    *,
    diff: str = "",
    further: str = "",
) -> Json:
    """Return the payload of the request for a call, to these persons, until the first of these is over."""
    shown = {**call, "diff": cut(diff, DIFF_CHARS)} if diff else call
    payload: Json = {
        "text": f"{said_of_call(call)}{further}",
        "target": people[0] if len(people) == 1 else [*people],
        "schema": DECISION,
        "call": shown,
    }
    several: Json = {"join": "first"} if len(people) > 1 else {}
    return {**payload, **several, **until_in(expires, at)}


def until_in(expires: Iterable[Expires], at: str) -> Json:
    """Return the keys of a payload that say how long an answer is waited for, from a moment on.

    >>> until_in([20, "2h", "30m"], "2026-01-01T00:00:00.000Z")
    {'deadline': 20, 'not_after': '2026-01-01T00:30:00.000Z'}
    """
    said = [*expires]
    ticks = [it for it in said if isinstance(it, int)]
    times = [parse_duration(it) for it in said if isinstance(it, str)]
    in_ticks: Json = {"deadline": min(ticks)} if ticks else {}
    return {
        **in_ticks,
        **({"not_after": timestamp(parse_timestamp(at) + min(times))} if times and at else {}),
    }


def is_apart(payload: Mapping[str, Any]) -> bool:
    """Return whether the payload of a request asks for what no turn waits for: it is no call of a tool."""
    call = payload.get("call")
    return asks_leave(payload) and isinstance(call, dict) and call.get("tool") in (SHOW, SPEND)


def digest_of(tool: str, args: Json) -> str:
    """Return what tells a call from all others, in hex."""
    return sha256(compact([tool, args])).hexdigest()


def waiting_call(payload: Mapping[str, Any]) -> Json:
    """Return the exact call that the payload of a request for leave was made for, as a ledger keeps it."""
    call = payload["call"]
    keys = ("id", "tool", "args", "sha256", "binds", "gate", "why", "unbound")
    return {key: call[key] for key in keys if key in call}


def said_of_call(call: Mapping[str, Any]) -> str:
    """Return a call that waits on one line, and why it does.

    >>> push = {"tool": "shell", "args": {"command": "git push"}, "why": "it sends", "gate": "org.json#/0"}
    >>> said_of_call(push)
    'shell: run `git push`; asks because it sends (org.json#/0)'
    """
    said = f"{call['tool']}: {_said_of_args(call['args'])}; asks because {call['why']} ({call['gate']})"
    return f"{said}; {LOOK_CLOSELY}" if any(notes_on(call["args"])) else said


def _said_of_args(args: Json) -> str:
    command = args.get("command")
    if args.keys() == {"command"} and isinstance(command, str):
        return f"run `{cut(to_line(command)[1:-1])}`"
    return cut(to_line(args))


def cut(text: str, most: int = ARGS_CHARS) -> str:
    """Return a text, or the beginning of one that is longer, which says that it is not whole."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… (NOT WHOLE: {len(text)} characters; `lemming approvals ID` shows all)"


def asks_leave(payload: Mapping[str, Any]) -> bool:
    """Return whether the payload of a request shows a call that waits for leave."""
    call = payload.get("call")
    return isinstance(call, dict) and "gate" in call


def decision_in(payload: Mapping[str, Any]) -> Decision | None:
    """Return what the payload of a response decides; None where it decides nothing.

    >>> decision_in({"decision": "deny", "reason": "not on a Friday"})
    Decision(word='deny', text='not on a Friday', args=None, binds=None)
    >>> decision_in({"text": "yes please"})
    """
    if payload.get("status") in ("refused", "failed"):
        return Decision("deny", _text(payload, "reason"))
    match payload.get("decision"):
        case "approve":
            args, binds = payload.get("args"), payload.get("binds")
            is_sound = isinstance(args, dict | None) and isinstance(binds, dict | None)
            return Decision("approve", args=args, binds=binds) if is_sound else None
        case "deny":
            return Decision("deny", _text(payload, "reason"))
        case "answer" if text := _text(payload, "answer"):
            return Decision("answer", text)
    return None


def _text(payload: Mapping[str, Any], key: str) -> str:
    return next((it for name in (key, "text") if isinstance(it := payload.get(name), str) and it), "")
