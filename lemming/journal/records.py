"""The kinds of records that a journal may hold, and what each must say: one table for all. Pure.

`lemming schema journal` prints it, and whoever reads a journal checks by it before believing a line: a file
that anybody may have written is data, not code. To add a kind, or a key to one, add it to `RECORDS`; keys
that the table does not name are kept and passed over, records of kinds that it does not name are refused.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from lemming.files.check_schema import Check, check_of, shown
from lemming.files.fitting import LARGEST_AMOUNT
from lemming.report import STATUSES

Schema = dict[str, Any]
Record = dict[str, Any]


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}


def _map_of(value: Schema) -> Schema:
    return {"type": "object", "additionalProperties": value}


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": int(LARGEST_AMOUNT)}
NUMBER: Schema = {"type": "number"}
AMOUNT: Schema = {"type": "number", "minimum": 0, "maximum": LARGEST_AMOUNT}
PRICE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": LARGEST_AMOUNT}
OBJECT: Schema = {"type": "object"}
ANY: Schema = {}
TIME: Schema = {"type": "string", "format": "date-time"}
AGENT: Schema = {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"}
READERS: Schema = {"type": "object", "propertyNames": AGENT, "additionalProperties": COUNT}
STATUS: Schema = {"enum": list(STATUSES)}
# No part of a path may be "..", and no character in it may be a control character.
PATH: Schema = {
    "type": "string",
    "pattern": r"^(?!([^\x00-\x1f]*/)?\.\.(/|$))[^\x00-\x1f\x7f]+$",
    "maxLength": 4096,
}
ENTRY_FILE: Schema = {
    "type": "string",
    "pattern": "^agents/[a-z0-9][a-z0-9_-]{0,62}/outbox/[0-9]{8,12}_[A-Za-z0-9]{1,64}[.]json$",
}
DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}

READ_MARK = _object(
    {"through": _map_of(WHOLE), "also": _list_of(TEXT)},
    {"unusable": _list_of(TEXT), "by_hand": _list_of(TEXT)},
)
RESULT = _object({"tool": TEXT, "args": ANY, "success": FLAG, "output": TEXT})
INPUTS: Schema = {
    **_object({"resume": TEXT, "memory": _map_of(TEXT), "context": _map_of(TEXT)}),
    "type": ["object", "null"],
}
STATE = _object(
    {
        "tick": WHOLE, "status": TEXT, "turns": COUNT, "credits": AMOUNT, "cost_usd": PRICE,
        "unpriced_calls": COUNT, "input_tokens": COUNT, "output_tokens": COUNT, "soft_cap_warned": FLAG,
        "read": READ_MARK, "results": _list_of(RESULT), "inputs": INPUTS,
    },
    {"passed_on": AMOUNT, "expired_unread": COUNT},
)  # fmt: skip
SPENT: dict[str, Schema] = {
    "credits": AMOUNT, "cost_usd": PRICE, "input_tokens": COUNT, "output_tokens": COUNT,
}  # fmt: skip
ATTEMPTS: dict[str, Schema] = {
    "attempts": COUNT, "earlier": _list_of(_object({"code": TEXT, "error": TEXT, "message": TEXT})),
}  # fmt: skip
EFFECT = _object({"root": {"anyOf": [{"const": ""}, {**PATH, "pattern": f"^(?=/){PATH['pattern'][1:]}"}]},
                  "path": {**PATH, "pattern": f"^(?!/){PATH['pattern'][1:]}"}, "text": TEXT})  # fmt: skip
ITEM = _object({"custom_id": TEXT, "agent": AGENT, "call": COUNT})
BATCH: dict[str, Schema] = {
    "label": TEXT, "provider": TEXT, "model": TEXT, "at": TIME, "items": _list_of(ITEM),
}  # fmt: skip
REPORT: dict[str, Schema] = {
    "agent": AGENT,
    "status": STATUS,
    "reason": TEXT,
    "error": TEXT,
    "model": TEXT,
    "entries": _list_of(_object({"id": TEXT, "kind": TEXT, "file": ENTRY_FILE})),
    "tools": _list_of(_object({"tool": TEXT, "success": FLAG})),
    "memory": _list_of(TEXT),
    "files": _list_of(_object({"path": PATH, "sha256": DIGEST})),
    "written_ahead": _list_of(PATH),
    "remarks": _list_of(TEXT),
    "notes": TEXT,
    "calls": COUNT,
    **SPENT,
    "duration_ms": WHOLE,
}


class Kind(NamedTuple):
    """What a kind of record is for, the keys that it has, and those that it may have."""

    about: str
    keys: dict[str, Schema]
    optional: dict[str, Schema] = {}  # noqa: RUF012 - never changed

    @property
    def schema(self) -> Schema:
        """The schema of such a record, without `type`, `epoch` and `check`."""
        return _object(self.keys, self.optional)


RECORDS: dict[str, Kind] = {
    "tick_started": Kind(
        "The plan: who takes a turn, in what order, and why the others do not.",
        {
            "at": TEXT,
            "tick": COUNT,
            "order": {**_list_of(AGENT), "uniqueItems": True},
        },
        {
            "not_due": _list_of(AGENT),
            "skipped": _map_of(TEXT),
            "broken": _map_of(TEXT),
            "after": {"type": ["integer", "null"], "description": "The tick before it that has one."},
            "boot": {**TEXT, "description": "Which start of the machine it was."},
        },
    ),
    "turn_started": Kind(
        "Everything a turn starts from, before the model is asked.",
        {
            "agent": AGENT,
            "entries": _list_of(TEXT),
            "prompt": _list_of(_object({"role": TEXT, "content": TEXT})),
            "schema": {"type": ["object", "null"]},
            "resume": _object({"name": AGENT}, {"turn": OBJECT}),
            "model": _object({"provider": TEXT}),
            "allocation": OBJECT,
            "max_steps": {"type": "integer", "minimum": 1, "maximum": 50},
            "repairs": {"type": "integer", "minimum": 0, "maximum": 5},
            "state": STATE,
            "read": READ_MARK,
            "warned": FLAG,
            "inputs": INPUTS,
            "damaged": _list_of(TEXT),
        },
    ),
    "turn_resumed": Kind("An interrupted turn goes on.", {"agent": AGENT}),
    "turn_stopped": Kind("The operator stopped the engine during this turn.", {"agent": AGENT}),
    "model_replied": Kind(
        "A model's answer, before anything it causes.",
        {
            "agent": AGENT, "call": COUNT, "at": TEXT, "text": TEXT,
            "finish": {"enum": ["stop", "length", "refusal", "too_large"]}, "model": TEXT, **SPENT,
            "cached_tokens": COUNT, "is_estimated": FLAG, "duration_ms": WHOLE,
        },
        {"batched": FLAG, **ATTEMPTS},
    ),
    "model_failed": Kind(
        "A model call that gave no answer.",
        {"agent": AGENT, "call": COUNT, "error": TEXT, "message": TEXT},
        {"code": TEXT, **ATTEMPTS},
    ),
    "batch_announced": Kind("Calls are about to be sent as one batch.", BATCH),
    "batch_sent": Kind("The same, once it has its id at the provider.", {"batch": TEXT, **BATCH}),
    "batch_awaited": Kind(
        "A second attempt waits for the batch of an earlier one.",
        {"agent": AGENT, "call": COUNT, "batch": TEXT},
    ),
    "batch_ended": Kind(
        "What came of a batch.", {"batch": TEXT, "replies": COUNT, "live": WHOLE, "problem": TEXT}
    ),
    "tool_started": Kind(
        "A tool with an effect outside is about to run.",
        {"agent": AGENT, "index": COUNT, "tool": TEXT, "args": ANY},
    ),
    "tool_finished": Kind(
        "A tool's result, and the files it wants written.",
        {
            "agent": AGENT, "index": COUNT, "tool": TEXT, "success": FLAG, "output": TEXT,
            "effects": _list_of(EFFECT),
        },
        {"passed_on": AMOUNT},
    ),
    "turn_answered": Kind(
        'With durability "tick": the turn has all its answers, its files are still to be written.',
        {"agent": AGENT},
    ),
    "turn_skipped": Kind("The agent was due and took no turn.", {**REPORT, "status": {"const": "skipped"}}),
    "turn_committed": Kind("The turn's files are written.", REPORT, {"state": STATE}),
    "entries_expired": Kind(
        "Outbox entries past their retention are about to be removed.", {"files": _list_of(ENTRY_FILE)},
        {"unread": READERS, "unread_in_all": READERS},
    ),
    "tick_committed": Kind(
        "The end of the tick.",
        {
            "tick": COUNT,
            "advanced": FLAG,
            "totals": _object({**dict.fromkeys(STATUSES, COUNT), "entries": COUNT, "calls": COUNT, **SPENT}),
        },
    ),
}  # fmt: skip

# What may stand in a journal only after its agent's `turn_started`.
_WITHIN_A_TURN = frozenset({
    "turn_resumed", "model_replied", "model_failed", "tool_started", "tool_finished", "turn_answered",
    "batch_awaited",
})  # fmt: skip


def why_wrong(record: Record) -> str:
    """Return why a line is no record that the engine writes; empty when it is one.

    >>> why_wrong({"type": "turn_resumed", "epoch": 2, "agent": "../x"})
    'turn_resumed /agent: "../x" is not one that is allowed here'
    """
    kind = record.get("type")
    if not isinstance(kind, str) or kind not in RECORDS:
        return f"{shown(kind)} is no kind of record that this version knows"
    if wrong := _check_of(kind)(record):
        return f"{kind} {wrong}"
    return ""


class Sequence:
    """The records of one journal as they follow each other; says of each what is wrong with it there."""

    def __init__(self, tick: int) -> None:
        self._tick = tick
        self._order: frozenset[str] | None = None
        self._started: set[str] = set()
        self._is_over = False

    def why_wrong(self, record: Record) -> str:
        """Return why the next record is none, or cannot stand here; empty when it can."""
        return why_wrong(record) or self._why_misplaced(record)

    def _why_misplaced(self, record: Record) -> str:
        kind = record["type"]
        if (kind == "tick_started") is not (self._order is None):
            return f"a journal begins with one tick_started; {kind} cannot stand here"
        if self._order is None:
            if record["tick"] != self._tick:
                return f"the journal of tick {self._tick} is that of tick {record['tick']}; rename it"
            self._order = frozenset(record["order"])
        elif self._is_over:
            return f"{kind} follows the end of the tick"
        elif kind == "tick_committed":
            self._is_over = True
        if "agent" in record:
            return self._why_no_turn(kind, record["agent"], record)
        for item in record.get("items", ()):
            if item["agent"] not in self._order:
                return f'{kind}: "{item["agent"]}" takes no turn in this tick'
        return ""

    def _why_no_turn(self, kind: str, agent: str, record: Record) -> str:
        if agent not in (self._order or ()):
            return f'{kind}: "{agent}" takes no turn in this tick'
        if kind == "turn_started":
            if agent in self._started:
                return f"{kind}: the turn of {agent} begins twice"
            if record["resume"]["name"] != agent:
                return f'{kind} /resume/name: "{record["resume"]["name"]}" is not {agent}'
            self._started.add(agent)
        if "state" in record and kind == "turn_committed" and record["state"]["tick"] != self._tick:
            return f"{kind} /state/tick: {record['state']['tick']} is not the tick of this journal"
        has_begun = agent in self._started
        if not has_begun and (kind in _WITHIN_A_TURN or (kind == "turn_committed" and _has_worked(record))):
            return f"{kind}: the turn of {agent} has not begun"
        return ""


def _has_worked(ended: Record) -> bool:
    return bool(ended["status"] != "failed")


@cache
def _check_of(kind: str) -> Check:
    schema = RECORDS[kind].schema
    schema["properties"] |= {"epoch": COUNT}
    schema["required"] = ["epoch", *schema["required"]]
    return check_of(schema)
