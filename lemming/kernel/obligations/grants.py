"""Approvals of persons that calls carry: each is used once, also by a turn that fails later. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_records import Record, ToolStarted
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.plugins.capability_table import DECISION_RULES

MADE_NOTE = "(it was made, as it was approved; what it gave is told beside this)"


def mark_calls_made(open_requests: Sequence[OpenRequest], ids: Collection[str]) -> tuple[OpenRequest, ...]:
    """Return an agent's open requests after failed turns made some of the pending calls."""
    return tuple(_mark_request_calls_made(open_request, ids) for open_request in open_requests)


def _mark_request_calls_made(open_request: OpenRequest, ids: Collection[str]) -> OpenRequest:
    calls = [
        item for item in open_request.asked if DECISION_RULES in item.held and item.held[DECISION_RULES]["id"] in ids
    ]
    if not calls:
        return open_request
    keys, results = {item.key for item in calls}, [*open_request.results]
    for index in {item.call - 1 for item in calls}.intersection(range(len(results))):
        results[index] = {**results[index], "success": True, "output": MADE_NOTE}
    sub_requests = (
        replace(item, end=item.end or "answered", call=0) if item.key in keys else item for item in open_request.asked
    )
    return replace(open_request, asked=tuple(sub_requests), results=tuple(results))


def drop_used_approvals(state: AgentState, records: Iterable[Record]) -> AgentState:
    """Return the state of an abandoned turn's agent without the approvals used by the turn."""
    # Announced calls count even without a recorded end: they may have taken effect.
    announced = [record.kept.get(DECISION_RULES) for record in records if isinstance(record, ToolStarted)]
    used_grants = [item for grant in announced if grant is not None for item in list_grants(grant)]
    if not used_grants:
        return state
    requests = mark_calls_made(state.requests, {grant["id"] for grant in used_grants if grant["id"]})
    state_of_approvals = state.kept.get(DECISION_RULES, {})
    preapprovals = [grant["entry"] for grant in used_grants if not grant["id"]]
    used = [*state_of_approvals.get("used", ()), *preapprovals]
    return replace(state, requests=requests, kept={**state.kept, DECISION_RULES: {**state_of_approvals, "used": used}})


def list_grants(grant: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the approvals of a call or an entry, one for each person: the latest, then those before."""
    return [grant, *grant.get("grants", ())]


def find_changed_files(current: Mapping[str, str], approved: Mapping[str, str]) -> list[str]:
    """Return the sorted paths of files that have changed, including files that became unreadable."""
    return [path for path in sorted({*current, *approved}) if current.get(path) != approved.get(path)]


def find_changes_after_decision(grant: Mapping[str, Any], current: Mapping[str, str]) -> list[str]:
    """Return the files that changed since a grant. An edit may name other files than the approval."""
    approved = grant["binds"]
    if grant["is_edited"]:  # no person has approved contents of the other files
        return [path for path in sorted(current) if path in approved and current[path] != approved[path]]
    return find_changed_files(current, approved)


def action_digest(tool: str, args: Json) -> str:
    """Return the hex digest that identifies a call."""
    return sha256(dump_compact([tool, args])).hexdigest()


def parse_pending_action(payload: Mapping[str, Any]) -> Json:
    """Return the pending action in a request's payload, as the ledger stores it."""
    call = payload["call"]
    keys = ("id", "tool", "args", "sha256", "binds", "gate", "why", "unbound", "grants")
    # Without `diff` and `amounts`: they only inform, and an approval is not bound to them.
    return {key: call[key] for key in keys if key in call}
