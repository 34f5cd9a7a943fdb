"""Recorded approvals of an unfinished turn, compared with the current decisions of persons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.capabilities.approvals.read_decisions import parse_preapproval, read_entry
from lemming.ext import TickContext, TurnInputs
from lemming.kernel.base.json_equality import is_equal_json
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.obligations.decisions import parse_decision
from lemming.kernel.obligations.pending_approvals import NAME
from lemming.kernel.obligations.request_payloads import references_entry


def approval_mismatch(inputs: TurnInputs, tick_context: TickContext) -> str:
    """Return the reason a turn's approved calls may not run, or an empty string."""
    snapshot = inputs.given.get(NAME, {})
    calls, preapprovals = snapshot.get("decided", {}).get("calls", ()), snapshot.get("ahead", ())
    if not (calls or preapprovals):
        return ""
    name = inputs.agent.name
    # Checked against the ledger and the persons' outboxes: a journal alone could have been edited.
    open_requests = read_state(tick_context.org, name, before_tick=inputs.tick).requests
    sub_requests = [sub_request for item in open_requests for sub_request in item.asked if NAME in sub_request.held]
    for item in calls:
        if not any(_is_approved(item, sub_request, tick_context.mail) for sub_request in sub_requests):
            return f"its journal says that {item['call']['id']} was approved, which nobody says now"
    for item in preapprovals:
        entry = read_entry(tick_context.mail, item["entry"])
        approved = parse_preapproval(entry, name) if entry else None
        recorded = {key: item[key] for key in ("tool", "args", "binds") if key in item}
        if not is_equal_json(approved, recorded) or item["by"] not in tick_context.mail.persons:
            return f"its journal says that {item['entry']} approves a call, which it does not now"
    return ""


def _is_approved(grant: Mapping[str, Any], sub_request: SubRequest, mail: MailView) -> bool:
    """Return True if a decision approves the sub-request and the call as recorded."""
    entry, request = read_entry(mail, grant["entry"]), read_entry(mail, sub_request.request)
    # The call of the ledger decides, not the one that the journal or the request shows.
    if entry is None or request is None or not is_equal_json(sub_request.held[NAME], grant["call"]):
        return False
    decision = parse_decision(entry.payload)
    return (
        entry.agent == grant["by"] == sub_request.to
        and sub_request.to in mail.persons
        and entry.kind == "response"
        and references_entry(entry.payload.get("reply_to"), request)
        and decision is not None
        and decision.kind == "approve"
        and is_equal_json([decision.args, decision.binds], [grant.get("args"), grant.get("binds")])
    )
