"""What waits for a person's word, and what a person decides about it. Pure: docs/approvals.md.

Exactly what waits stands in the ledger of the agent; the request that asks for approval shows it to people.
Whatever anybody writes into the request changes nothing about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.jsontext import compact, to_line
from lemming.kernel.base.times.spoken import Expires, until_in
from lemming.kernel.base.unseen import notes_on
from lemming.kernel.files.fitting import LARGEST_AMOUNT

Json = dict[str, Any]
NAME = "approvals"
LOOK_CLOSELY = "LOOK CLOSELY: there is more to it than is seen; `lemming approvals ID` says what"
ARGS_CHARS, DIFF_CHARS = 300, 8000
SHOW, SPEND, PUBLISH = "show", "spend", "publish"
"""What stands for a tool where nothing is called: to be shown an entry, to spend more, to write an entry."""
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
"""The JSON Schema of a decision, which requests for approval carry."""


class Decision(NamedTuple):
    """What a person decided. `args`: those to make the call with instead; `text`: why, or the result.

    `binds`: what the files that `args` name held as they decided, where they say so.
    """

    word: Word
    text: str = ""
    args: Json | None = None
    binds: Json | None = None


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What waits for a person's word: a call of a tool, or what stands for one. Four things make it, below.

    `gate` is the line that asks, `binds` the SHA-256 of the files that it is about, `unbound`, in words, what
    may yet change of it.
    """

    id: str
    tool: str
    args: Json
    gate: str
    why: str
    binds: Json = field(default_factory=dict)
    unbound: Sequence[str] = ()

    @classmethod
    def of_call(
        cls, identity: str, call: ToolCall, gate: str, why: str, binds: Json, unbound: Sequence[str]
    ) -> Waiting:
        """Return a call of a tool that waits to be made."""
        return cls(
            id=identity, tool=call.tool, args=call.args, gate=gate, why=why, binds=binds, unbound=unbound
        )

    @classmethod
    def of_entry(cls, identity: str, new: NewEntry, gate: str, why: str) -> Waiting:
        """Return an entry that waits to be written."""
        return cls(id=identity, tool=PUBLISH, args=new._asdict(), gate=gate, why=why)

    @classmethod
    def of_spending(cls, tick: int, agent: str, more: Json, gate: str, why: str) -> Waiting:
        """Return what waits to go on beyond a limit: by how much `more`, of what."""
        return cls(id=f"{tick}/{agent}/{SPEND}", tool=SPEND, args=more, gate=gate, why=why)

    @classmethod
    def of_showing(cls, tick: int, agent: str, entry: str, gate: str, why: str) -> Waiting:
        """Return an entry of another that an agent waits to be shown. What it says is not in it."""
        return cls(id=f"{tick}/{agent}/{entry}", tool=SHOW, args={"entry": entry}, gate=gate, why=why)

    @property
    def sha256(self) -> str:
        """What tells it from all else."""
        return digest_of(self.tool, self.args)

    def as_json(self) -> Json:
        """Return it as a ledger keeps it."""
        return {
            "id": self.id,
            "tool": self.tool,
            "args": self.args,
            "sha256": self.sha256,
            "binds": self.binds,
            "gate": self.gate,
            "why": self.why or "a gate asks for approval",
            **({"unbound": [*self.unbound]} if self.unbound else {}),
        }

    def request(
        self,
        people: Sequence[str],
        expires: Sequence[Expires],
        at: str,
        *,
        diff: str = "",
        further: str = "",
        amounts: Mapping[str, Any] | None = None,
    ) -> Json:
        """Return the payload of the request for it, to these persons, until the first of these is over.

        `diff` and `amounts` (`GateVerdict.amounts`) only inform: the approval is not bound to them.
        """
        call = self.as_json()
        beside = {
            key: value for key, value in (("diff", cut(diff, DIFF_CHARS)), ("amounts", amounts)) if value
        }
        payload: Json = {
            "text": f"{call_text(call)}{further}",
            "target": people[0] if len(people) == 1 else [*people],
            "schema": DECISION,
            "call": {**call, **beside},
        }
        several: Json = {"join": "first"} if len(people) > 1 else {}
        return {**payload, **several, **until_in(expires, at)}


def require_waiting(plain: Mapping[str, Any]) -> None:
    """Raise `ValueError` for JSON values that `Waiting.as_json` did not make."""
    args, texts = plain.get("args"), ("id", "tool", "sha256", "gate", "why")
    is_sound = isinstance(args, dict) and isinstance(plain.get("binds"), dict)
    if not is_sound or not all(isinstance(plain.get(key), str) for key in texts):
        raise ValueError("approvals: nothing that waits (it has id, tool, args, sha256, binds, gate, why)")
    assert isinstance(args, dict), "looked at above"
    if plain["tool"] == SHOW and not isinstance(args.get("entry"), str):
        raise ValueError("approvals: what waits to be shown names no entry")
    amounts = [value for key, value in args.items() if key != "of"]
    if plain["tool"] == SPEND and not ("of" in args and all(type(it) in (int, float) for it in amounts)):
        raise ValueError("approvals: what waits to be spent names no amount")


def is_amount(value: object) -> bool:
    """Return True for a number by which a limit may be raised.

    >>> is_amount(2), is_amount(0.5), is_amount(0), is_amount(-3), is_amount(True), is_amount("3")
    (True, True, False, False, False, False)
    """
    return isinstance(value, int | float) and value is not True and 0 < value <= LARGEST_AMOUNT


def too_many(most: int) -> str:
    """Return what a turn is told of one thing more than persons may be asked to approve for it."""
    return (
        f"NOT YET: this turn asks persons to approve {most} things already, as many as it may "
        "(turn.max_approvals); ask for the rest once these are decided"
    )


def digest_of(tool: str, args: Json) -> str:
    """Return what tells a call from all others, in hex."""
    return sha256(compact([tool, args])).hexdigest()


def call_in(payload: Mapping[str, Any]) -> Json:
    """Return what waits, as the payload of the request for it shows it and a ledger keeps it."""
    call = payload["call"]
    keys = ("id", "tool", "args", "sha256", "binds", "gate", "why", "unbound")
    return {key: call[key] for key in keys if key in call}


def call_text(call: Mapping[str, Any]) -> str:
    """Return a call that waits on one line, and why it does.

    >>> push = {"tool": "shell", "args": {"command": "git push"}, "why": "it sends", "gate": "org.json#/0"}
    >>> call_text(push)
    'shell: run `git push`; asks because it sends (org.json#/0)'
    """
    said = f"{call['tool']}: {_args_in_words(call['args'])}; asks because {call['why']} ({call['gate']})"
    return f"{said}; {LOOK_CLOSELY}" if any(notes_on(call["args"])) else said


def _args_in_words(args: Json) -> str:
    command = args.get("command")
    if args.keys() == {"command"} and isinstance(command, str):
        return f"run `{cut(to_line(command)[1:-1])}`"
    return cut(to_line(args))


def cut(text: str, most: int = ARGS_CHARS) -> str:
    """Return a text, or the beginning of one that is longer, which says that it is not whole."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… (NOT WHOLE: {len(text)} characters; `lemming approvals ID` shows all)"


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
