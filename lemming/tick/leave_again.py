"""Leave that the journal of an unfinished turn records, held against what persons said and ledgers keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lemming.journal.begun import Asked, having_made
from lemming.journal.ledger import AgentState, read_state
from lemming.journal.records import Record, ToolStarted
from lemming.leave import decision_in
from lemming.mail.closing import refers_to
from lemming.mail.decisions import entry_at, given_ahead
from lemming.mail.visibility import Mail
from lemming.tick.snapshot import Snapshot
from lemming.turn.values import TurnInputs


def why_no_leave(inputs: TurnInputs, snapshot: Snapshot) -> str:
    """Return why a turn's calls may not be made with the leave that its journal records; empty: they may."""
    calls, ahead = inputs.decided.get("calls", ()), inputs.ahead.get("leave", ())
    if not (calls or ahead):
        return ""
    name = inputs.agent.name
    begun = read_state(snapshot.org, name, before=inputs.tick).requests
    asked = [it for each in begun for it in each.asked if it.leave is not None]
    for each in calls:
        if not any(_is_given(each, it, snapshot.mail) for it in asked):
            return f"its journal records leave for {each['call']['id']} that nobody gives now"
    for each in ahead:
        entry = entry_at(snapshot.mail, each["entry"])
        given = given_ahead(entry, name) if entry else None
        told = {key: each[key] for key in ("tool", "args", "binds") if key in each}
        if given != told or each["by"] not in snapshot.mail.persons:
            return f"its journal records leave in advance that nobody gives now: {each['entry']}"
    return ""


def _is_given(each: Mapping[str, Any], asked: Asked, mail: Mail) -> bool:
    """Return whether a decision gives leave for what was asked, and for the call as the journal has it."""
    entry, request = entry_at(mail, each["entry"]), entry_at(mail, asked.request)
    if entry is None or request is None or asked.leave != each["call"]:
        return False
    decision = decision_in(entry.payload)
    return (
        entry.agent == each["by"] == asked.to
        and asked.to in mail.persons
        and entry.kind == "response"
        and refers_to(entry.payload.get("reply_to"), request)
        and decision is not None
        and (decision.word, decision.args, decision.binds) == ("approve", each.get("args"), each.get("binds"))
    )


def without_used(state: AgentState, records: Iterable[Record]) -> AgentState:
    """Return the state of an agent whose turn is given up, without the leave that was used by then."""
    used = [record.leave for record in records if isinstance(record, ToolStarted) and record.leave]
    ids = {leave["id"] for leave in used if leave["id"]}
    ahead = (leave["entry"] for leave in used if not leave["id"])
    requests = having_made(state.requests, ids)
    return replace(state, requests=requests, leave_used=(*state.leave_used, *ahead)) if used else state
