"""Schemas of the `--json` output of read-only commands, one for each object `type`, for `lemming export schema shown`.

Objects with a Python type take the schema from the type; all other schemas are written here. Objects are closed, except
for objects that contain content of agents, settings or logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import GenericAlias
from typing import Any, NotRequired, TypedDict, get_type_hints

from lemming.journal_tools.provenance.prompt_parser import ShownEntry
from lemming.kernel.files.field_types import Schema, type_schema
from lemming.queries.cost_report import Cost
from lemming.queries.screens.graph_screen import NODES
from lemming.queries.screens.screen_registry import iter_screens
from lemming.queries.screens.status_screen import STATUS


def _make_typed_dict(base_type: type | None = None, /, **fields: Any) -> Any:
    """Return a typed dictionary with the fields of a type and additional fields."""
    return TypedDict("Form", {**(get_type_hints(base_type) if base_type else {}), **fields})  # type: ignore[operator]


def _make_list_type(item_type: Any) -> Any:
    return GenericAlias(list, (item_type,))


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
_LOST: Any = _make_typed_dict(calls=int, credits=float, cost_usd=Number, tokens=int)
_TOTALS = _make_typed_dict(done=int, waiting=int, skipped=int, failed=int, entries=int, **_SPENT)
_TURN = _make_typed_dict(
    agent=str, status=str, end=str, reason=str, error=str, attempts=int, stops=int, request=str,
    saw=_make_list_type(_make_typed_dict(ShownEntry)), results=list[Json], prompt_chars=int, prompt=NotRequired[list[Json]],
    answers=list[Json], tools=list[Json], entries=list[Json], memory=Json,
    files=_make_list_type(_make_typed_dict(path=str, sha256=str, bytes=int)), removed=Names, remarks=Names, verdicts=list[Json],
    judged=Json | None, notes=str, duration_ms=int, **_SPENT,
)  # fmt: skip
OUTPUT_TYPES: Mapping[str, Any] = {
    "status": _make_typed_dict(
        org=str, tick=int, is_interrupted=bool, answers_kept=NotRequired[int],
        answers_missing=NotRequired[int], turns_left=NotRequired[Names], engine=Json | None, paused=str,
        agents=_make_list_type(STATUS.row_type), waiting=int, warnings=int,
        last_tick=_make_typed_dict(tick=int, totals=_TOTALS) | None,
        troubles=_make_list_type(_make_typed_dict(about=str, text=str, fix=str, since_tick=int | None, since=str)),
        misplaced=list[Json],
        capabilities=dict[str, list[Json]], findings=int | None,
    ),
    "cost_total": _make_typed_dict(
        by=str, before=_make_typed_dict(**_COST), before_tick=int | None, judged_credits=NotRequired[float],
        lost=NotRequired[_LOST],
        removed=_make_typed_dict(**_COST),
        under_way=_make_typed_dict(**_COST), damaged=list[int], **_COST,
    ),
    "plan": _make_typed_dict(
        tick=int, longest_chain=Names, **_PLANNED,
        order=_make_list_type(_make_typed_dict(agent=str, fire_point=Number, waits_for=Names, why=str, reason=str, note=str)),
    ),
    "plan_why": _make_typed_dict(agent=str, before_it=str, reasons=Names),
    "tick": _make_typed_dict(
        tick=int, at=str, is_committed=bool, engine_starts=int, order=Names, expired=Names,
        expired_unread=dict[str, int], totals=Json, turns=_make_list_type(_TURN), **_PLANNED,
    ),
    "metric": _make_typed_dict(name=str, kind=str, labels=dict[str, str], value=Number),
}  # fmt: skip
"""The form of each object that no screen declares, by its `type`, without `v` and `type` themselves."""


def list_output_schemas() -> list[tuple[str, Schema]]:
    """Return the schemas of lines, each with its `type`: those of declared screens come from their columns."""
    schemas = [(kind, type_schema(form)) for kind, form in OUTPUT_TYPES.items()]
    for screen in (*iter_screens(), NODES):
        if not screen.inside and (pair := (screen.kind, screen.schema())) not in schemas:
            schemas.append(pair)
    return [(kind, _line_schema(kind, schema)) for kind, schema in schemas]


def _line_schema(kind: str, schema: Schema) -> Schema:
    keys = {"v": {"const": 1}, "type": {"const": kind}, **schema["properties"]}
    return _close_schema({**schema, "properties": keys, "required": ["v", "type", *schema["required"]]})


def _close_schema(schema: Schema) -> Schema:
    """Return a schema whose objects accept only their named keys."""
    if "properties" in schema:
        keys = {name: _close_schema(subschema) for name, subschema in schema["properties"].items()}
        return {"additionalProperties": False, **schema, "properties": keys}
    return {**schema, "items": _close_schema(schema["items"])} if "items" in schema else schema
