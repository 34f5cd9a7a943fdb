"""Approvals of persons that calls carry: each is used once, also by a turn that fails later. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
    """Return the approvals of a call: by the first person and by further persons."""
    return [grant, *grant.get("grants", ())]
