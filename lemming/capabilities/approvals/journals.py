"""What the journal of an unfinished turn says was approved, held against what persons said since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.capabilities.approvals.decisions import entry_at, given_ahead
from lemming.capabilities.approvals.waiting import NAME, decision_in
from lemming.capabilities.requests.payloads import refers_to
from lemming.kernel.base.same_json import is_same
from lemming.kernel.journal.begun import Asked, Begun
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.records import Record, ToolStarted
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.values import TurnInputs


def why_not_approved(inputs: TurnInputs, now: Surroundings) -> str:
    """Return why a turn's calls may not be made as its journal says they were approved; empty: they may."""
    given = inputs.given.get(NAME, {})
    calls, ahead = given.get("decided", {}).get("calls", ()), given.get("ahead", ())
    if not (calls or ahead):
        return ""
    name = inputs.agent.name
    begun = read_state(now.org, name, before=inputs.tick).requests
    asked = [it for each in begun for it in each.asked if NAME in it.held]
    for each in calls:
        if not any(_is_given(each, it, now.mail) for it in asked):
            return f"its journal says that {each['call']['id']} was approved, which nobody says now"
    for each in ahead:
        entry = entry_at(now.mail, each["entry"])
        approved = given_ahead(entry, name) if entry else None
        told = {key: each[key] for key in ("tool", "args", "binds") if key in each}
        if not is_same(approved, told) or each["by"] not in now.mail.persons:
            return f"its journal says that {each['entry']} approves a call, which it does not now"
    return ""


def _is_given(each: Mapping[str, Any], asked: Asked, mail: Mail) -> bool:
    """Return whether a decision approves what was asked, and the call as the journal has it."""
    entry, request = entry_at(mail, each["entry"]), entry_at(mail, asked.request)
    if entry is None or request is None or not is_same(asked.held[NAME], each["call"]):
        return False
    decision = decision_in(entry.payload)
    return (
        entry.agent == each["by"] == asked.to
        and asked.to in mail.persons
        and entry.kind == "response"
        and refers_to(entry.payload.get("reply_to"), request)
        and decision is not None
        and decision.word == "approve"
        and is_same([decision.args, decision.binds], [each.get("args"), each.get("binds")])
    )


def without_made(state: AgentState, records: Iterable[Record]) -> AgentState:
    """Return the state of an agent whose turn is given up, without the approvals that were used by then."""
    words = [it.kept[NAME] for it in records if isinstance(it, ToolStarted) and NAME in it.kept]
    if not words:
        return state
    requests = having_made(state.requests, {word["id"] for word in words if word["id"]})
    kept = state.kept.get(NAME, {})
    used = [*kept.get("used", ()), *(word["entry"] for word in words if not word["id"])]
    return replace(state, requests=requests, kept={**state.kept, NAME: {**kept, "used": used}})


MADE = "(it was made, as it was approved; what it gave is told beside this)"


def having_made(begun: Sequence[Begun], ids: Collection[str]) -> tuple[Begun, ...]:
    """Return what an agent has begun once calls that waited were made, by turns that failed."""
    return tuple(_having_made(it, ids) for it in begun)


def _having_made(begun: Begun, ids: Collection[str]) -> Begun:
    made = {it.key: it.call - 1 for it in begun.asked if NAME in it.held and it.held[NAME]["id"] in ids}
    results = tuple(
        {**result, "success": True, "output": MADE} if place in made.values() else result
        for place, result in enumerate(begun.results)
    )
    asked = (replace(it, end=it.end or "answered", call=0) if it.key in made else it for it in begun.asked)
    return replace(begun, asked=tuple(asked), results=results) if made else begun
