"""What commands that look print with `--json`: a schema for each `type` of object, as `lemming schema shown`.

Of values that have one form everywhere it is made from their types; the others are written down here. Objects
are closed, but for those that hold what agents, settings and logs say.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import GenericAlias
from typing import Any, NotRequired, TypedDict, get_type_hints

from lemming.capabilities.channels.states import ChannelState
from lemming.capabilities.requests.now import RequestShown
from lemming.capabilities.requests.waiting import WaitsForPerson
from lemming.facts.accounts import Account, Standing
from lemming.facts.costs import Cost
from lemming.kernel.files.fields import Schema, schema_of
from lemming.timeline.why.sight import SeenEntry


def _form(of: type | None = None, /, **more: Any) -> Any:
    """Return the form of a value by its fields, with more keys."""
    return TypedDict("Form", {**(get_type_hints(of) if of else {}), **more})  # type: ignore[operator]


def _many(form: Any) -> Any:
    return GenericAlias(list, (form,))


def _perhaps(form: Any) -> Any:
    return NotRequired[form]


Json = dict[str, Any]
Names = list[str]
Text = str | None
Number = float | None
_TOKENS: Any = {"input_tokens": int, "output_tokens": int}
_SPENT: Any = {"calls": int, "credits": float, "cost_usd": Number, **_TOKENS}
_IN_JSON: Any = {Decimal: float, Decimal | None: Number}
_COST: Any = {key: _IN_JSON.get(kind, kind) for key, kind in get_type_hints(Cost).items()}
_COST["cached_share"] = Number
_PLANNED: Any = {"not_due": Names, "skipped": dict[str, str], "broken": dict[str, str]}
_TOTALS = _form(done=int, waiting=int, skipped=int, failed=int, entries=int, **_SPENT)
_LINE = _form(
    agent=str, model_key=str, next_tick=int | None, next_at=Text, why=str, reason=str, waits=str,
    last_tick=int | None, last_status=Text, last_end=Text, turns=int, failed_turns=int, credits=float,
    used_up=float, judged_credits=float, max_credits=Number, cost_usd=Number, unpriced_calls=int, problem=str,
)  # fmt: skip
_TURN = _form(
    agent=str, status=str, end=str, reason=str, error=str, attempts=int, stops=int, request=str,
    saw=_many(_form(SeenEntry)), results=list[Json], prompt_chars=int, prompt=NotRequired[list[Json]],
    answers=list[Json], tools=list[Json], entries=list[Json], memory=Json,
    files=_many(_form(path=str, sha256=str, bytes=int)), removed=Names, remarks=Names, verdicts=list[Json],
    judged=Json | None, notes=str, duration_ms=int, **_SPENT,
)  # fmt: skip
_GROUPS: Any = dict.fromkeys(("agent", "model", "request", "day", "rest"), NotRequired[Text])

SHOWN: Mapping[str, Any] = {
    "status": _form(
        org=str, tick=int, is_interrupted=bool, answers_kept=NotRequired[int],
        answers_missing=NotRequired[int], turns_left=NotRequired[Names], engine=Json | None, paused=str,
        agents=_many(_LINE), waiting=int, warnings=int,
        last_tick=_form(tick=int, totals=_TOTALS) | None,
        troubles=_many(_form(about=str, text=str, fix=str, since_tick=int | None, since=str)),
        misplaced=list[Json],
        capabilities=dict[str, list[Json]], findings=int | None,
    ),
    "agent": _form(
        agent=str, resume=Json | None, problem=str, readers=NotRequired[Names], state=NotRequired[Json],
        account=_perhaps(_form(Account)), next_tick=NotRequired[int | None], next_at=NotRequired[Text],
    ),
    "credits": _form(Account),
    "waiting": _form(WaitsForPerson, line=str, call=NotRequired[Json]),
    "request": RequestShown,
    "cost": _form(**_GROUPS, standing=NotRequired[Standing], tick=NotRequired[int | None], **_COST),
    "cost_total": _form(
        by=str, before=_form(**_COST), before_tick=int | None, judged_credits=NotRequired[float],
        lost=_perhaps(_form(calls=int, credits=float, cost_usd=Number, tokens=int)), removed=_form(**_COST),
        under_way=_form(**_COST), damaged=list[int], **_COST,
    ),
    "plan": _form(
        tick=int, longest_chain=Names, **_PLANNED,
        order=_many(_form(agent=str, fire_point=Number, waits_for=Names, why=str, reason=str, note=str)),
    ),
    "plan_why": _form(agent=str, before_it=str, reasons=Names),
    "coming": _form(at=str, agent=str, what=str),
    "tick": _form(
        tick=int, at=str, is_committed=bool, engine_starts=int, order=Names, expired=Names,
        expired_unread=dict[str, int], totals=Json, turns=_many(_TURN), **_PLANNED,
    ),
    "entry": _form(
        id=str, tick=int, agent=str, kind=str, payload=Json, tags=Names, created_at=str,
        is_unread=NotRequired[bool],
    ),
    "memory": _form(agent=str, key=str, value=Any),
    "channel": _form(ChannelState),
    "commit": _form(
        commit=str, at=str, subject=str, tick=int | None, before_tick=int | None, agents=Names, calls=int,
        credits=float, cost_usd=Number,
    ),
    "finding": _form(kind=str, agents=Names, text=str, since_tick=int, evidence=Names, fix=str),
    "job": _form(
        name=str, agent=str, text=str, when=str, next_at=Text, paused=str, last_request=Text,
        last_tick=int | None, last_end=Text,
    ),
    "metric": _form(name=str, kind=str, labels=dict[str, str], value=Number),
    "node": _form(
        name=str, title=str, model=str, speaks=str, reads_all=bool, paused=bool, wrote=int
    ),
    "arrow": _form(**{"from": str}, to=str, kind=str, traffic=int, is_wide=bool),
}  # fmt: skip
"""The form of each object by its `type`, without `v` and `type` themselves."""


def shown() -> Schema:
    """Return the schema of one line that a command which looks prints with `--json`."""
    return {"description": "One line of --json.", "oneOf": [_named(kind, it) for kind, it in SHOWN.items()]}


def _named(kind: str, form: Any) -> Schema:
    plain = schema_of(form)
    keys = {"v": {"const": 1}, "type": {"const": kind}, **plain["properties"]}
    return {**_closed(plain), "properties": keys, "required": ["v", "type", *plain["required"]]}


def _closed(schema: Schema) -> Schema:
    """Return a schema whose objects with named keys have no others."""
    if "properties" in schema:
        keys = {name: _closed(it) for name, it in schema["properties"].items()}
        return {**schema, "properties": keys, "additionalProperties": False}
    return {**schema, "items": _closed(schema["items"])} if "items" in schema else schema
