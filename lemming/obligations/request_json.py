"""Requests as JSON values, with the turns of a goal: `lemming requests --json`, described in docs/requests.md."""

from __future__ import annotations

from typing import Any, TypedDict

from lemming.kernel.journal.ledger import read_state
from lemming.kernel.obligations.request_payloads import get_count
from lemming.kernel.org.organisation import OrgPath
from lemming.obligations.answer_fields import parse_answer
from lemming.obligations.org_requests import OrgRequests, find_unreachable_assignees
from lemming.obligations.request_costs import RequestCostJson, RequestCosts
from lemming.obligations.request_view import RequestView

_DEFAULT_MAX_TURNS = 5
_GOALS = "goals"


class GoalTurnsJson(TypedDict):
    """The turns of a request with a goal: the checked turns, and the most. `reached` is null while the request is open."""

    turns: int
    max_turns: int
    reached: bool | None


def count_goal_turns(base: OrgPath, request: RequestView) -> GoalTurnsJson | None:
    """Return the turns of a request with `until`, or None for any other request."""
    goal = request.entry.payload.get("until")
    if not isinstance(goal, dict):
        return None
    for answer in request.answers:
        if isinstance(receipts := answer.payload.get("until"), dict):
            turns, limit = get_count(receipts, "turns") or 0, get_count(receipts, "max_turns") or 0
            return {"turns": turns, "max_turns": limit, "reached": receipts.get("reached") is True}
    counts = [read_state(base, name).kept.get(_GOALS, {}).get(request.entry.identity, 0) for name in request.targets]
    max_turns = get_count(goal, "max_turns") or _DEFAULT_MAX_TURNS
    return {"turns": max(counts, default=0), "max_turns": max_turns, "reached": None}


class HandoffJson(TypedDict):
    """A handoff of a request as JSON output."""

    tick: int
    by: str
    to: str
    file: str


class AnswerJson(TypedDict):
    """The answer of one target as JSON output."""

    agent: str
    tick: int
    file: str
    answer: Any


class RequestJson(TypedDict):
    """A request as printed by `lemming requests --json`: `docs/requests.md`."""

    id: str
    file: str
    asker: str
    targets: list[str]
    holders: list[str]
    out_of_reach: list[str]
    tick: int
    age_ticks: int
    text: str
    conversation: str
    not_before: str
    parent: str | None
    children: list[str]
    deadline: int | None
    not_after: str
    end: str | None
    end_tick: int | None
    closed_by: str | None
    held_since: dict[str, int]
    hops: list[HandoffJson]
    answers: list[AnswerJson]
    default: Any
    until: GoalTurnsJson | None
    cost: RequestCostJson
    cost_with_children: RequestCostJson


def request_to_json(base: OrgPath, request: RequestView, org_requests: OrgRequests, costs: RequestCosts) -> RequestJson:
    """Return a request as JSON values: asker, assignees, handoffs, turns of its goal, cost and result."""
    requests, closed = org_requests.requests, request.closed_by
    return {
        "id": request.id,
        "file": request.entry.file,
        "asker": request.asker,
        "targets": list(request.targets),
        "holders": list(request.assignees),
        "out_of_reach": find_unreachable_assignees(request, org_requests),
        "tick": request.tick,
        "age_ticks": request.age_ticks(requests.tick),
        "text": request.text,
        "conversation": request.conversation,
        "not_before": request.not_before,
        "parent": request.parent,
        "children": list(request.children),
        "deadline": request.deadline,
        "not_after": request.not_after,
        "end": request.end,
        "end_tick": request.end_tick,
        "closed_by": closed.file if closed else None,
        "held_since": {assignment.assignee: assignment.since for assignment in request.open_assignments},
        "hops": [
            {"tick": handoff.tick, "by": handoff.by, "to": handoff.to, "file": handoff.entry.file}
            for handoff in request.handoffs
        ],
        "answers": [
            {
                "agent": answer.agent,
                "tick": answer.tick,
                "file": answer.file,
                "answer": parse_answer(answer.payload, request.schema),
            }
            for answer in request.answers
        ],
        "default": request.default_answer if request.end == "expired" else None,
        "until": count_goal_turns(base, request),
        "cost": costs.get_cost(request).as_json(),
        "cost_with_children": costs.get_tree_cost(request, requests).as_json(),
    }
