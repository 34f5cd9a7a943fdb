"""Build the current request of a turn from the entry that carries it."""

from __future__ import annotations

from dataclasses import replace

from lemming.kernel.inboxes.payload_references import parse_reference
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.obligations.budgets import BudgetAmount
from lemming.kernel.obligations.request_deadlines import get_last_tick, parse_deadline_time
from lemming.kernel.obligations.request_payloads import get_count
from lemming.kernel.turn.current_request import OWN_REQUESTS, CurrentRequest


def build_current_request(
    task: Task,
    *,
    at: str,
    can_hand_off: bool,
    max_calls: int = 0,
    budget: BudgetAmount | None = None,
    charged: float = 0.0,
    allotted: float = 0.0,
) -> CurrentRequest:
    """Build the current request of a turn, with the payload only if the agent may hand the request off.

    `budget`: the amount available to the agent. `charged`: the amount charged for sub-requests. `allotted`:
    the part of `charged` for open sub-requests.
    """
    request, begun = task.request, task.open_request
    if request is None:
        return replace(OWN_REQUESTS, begun=begun)
    payload, conversation = request.payload, request.payload.get("conversation")
    is_handoff = "hands_on" in payload
    return CurrentRequest(
        request=begun.request,
        asker=parse_reference(payload.get("owed_to")) if is_handoff else request.agent,
        begun=begun,
        until=get_last_tick(request),
        not_after=parse_deadline_time(payload),
        conversation=conversation if isinstance(conversation, str) else "",
        reply_to=parse_reference(payload["hands_on"]) if is_handoff else "",
        hops=get_count(payload, "hops") or 1 if is_handoff else 0,
        path=tuple(task.path),
        asked=payload if can_hand_off else None,
        budget=budget.number if budget else None,
        unit=budget.unit if budget else "credits",
        spent=round(begun.spent + charged, 6),
        allotted=round(allotted, 6) if budget else None,
        at=at,
        max_calls=max_calls,
    )
