"""Outcomes of requests for approval, by the first decision of a person who was asked. Pure.

Rules: docs/gates.md. The decisions are recorded in the journal with the turn's inputs, before any call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lemming.capabilities.gates.gate_settings import find_approvers
from lemming.capabilities.requests.request_resolver import load_entry
from lemming.ext import render_result
from lemming.kernel.agents import Agent
from lemming.kernel.base.jsontext import is_equal_json
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.turn_agenda import RequestOutcome, Task
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.open_requests import SHOW, SPEND, OpenRequest, SubRequest
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.tools import ToolResult
from lemming.obligations.decisions import Decision, EntryClassifier, find_approval_outcomes, is_amount, parse_decision
from lemming.obligations.request_deadlines import extend_deadlines
from lemming.obligations.request_view import describe_deadline

PENDING_NOTE = "(it is made as this turn begins)"


def refresh_sub_requests(mail: MailView, agent: Agent, sub_requests: Sequence[SubRequest]) -> tuple[SubRequest, ...]:
    """Return an agent's requests outside of calls: open, "approved" or "denied", without those of removed entries."""
    current = [sub_request for sub_request in sub_requests if not _is_obsolete(mail, sub_request)]
    open_request = extend_deadlines(mail, OpenRequest(request="", asked=tuple(current)))

    def read_author_entries(author: str, tick: int) -> Iterator[OutboxEntry]:
        names = mail.past_names(author)
        for name in (*names.all[names.next_index(tick - 1) :], *mail.author_entries_this_tick(author, agent.name)):
            if isinstance(entry := mail.read(name), OutboxEntry):
                yield entry

    authorized = frozenset(find_approvers(mail.persons, mail.resumes, agent.name, None))
    outcomes = find_approval_outcomes(
        open_request, mail.tick, mail.at, partial(load_entry, mail), read_author_entries, authorized.__contains__
    )
    ends: dict[str, str] = {}
    decisions: dict[str, Decision | None] = {}
    for (request, _), (end, answer) in outcomes.items():
        if answer:
            entry = load_entry(mail, answer)
            decisions[request] = decision = parse_decision(entry.payload) if entry else None
            is_approved = end == "answered" and decision is not None and decision.kind == "approve"
            ends[request] = "approved" if is_approved else "denied"
        elif end in ("expired", "cancelled"):  # silence is a no
            ends.setdefault(request, "denied")
    return tuple(_apply_outcome(item, ends.get(item.request, ""), decisions.get(item.request)) for item in current)


def _apply_outcome(sub_request: SubRequest, end: str, decision: Decision | None) -> SubRequest:
    """Return a request with its end, and a request for more spending with the amounts of the decision."""
    call, amounts = sub_request.held[DECISION_RULES], (decision and decision.args) or {}
    if call["tool"] == SPEND and amounts:
        own_amounts = {key: amount for key, amount in amounts.items() if key in call["args"] and key != "of"}
        edits = {key: float(amount) if is_amount(amount) else 0.0 for key, amount in own_amounts.items()}
        sub_request = replace(sub_request, held={DECISION_RULES: {**call, "args": {**call["args"], **edits}}})
    return replace(sub_request, end=sub_request.end or end)


def _is_obsolete(mail: MailView, sub_request: SubRequest) -> bool:
    call = sub_request.held[DECISION_RULES]
    if not sub_request.end and load_entry(mail, sub_request.request) is None:
        return True  # a person who removed the request is asked again
    return call["tool"] == SHOW and load_entry(mail, call["args"]["entry"]) is None


def find_preapprovals(mail: MailView, agent: Agent, used: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the preapproved calls of an agent, and the identities in `used` that still exist.

    A preapproval is a response without a request: the payload has the agent as `target`, `decision` "approve"
    and `call` with `tool` and `args`, with the SHA-256 of files in `call.binds` for an approval of these
    contents only.
    """
    preapprovals: list[Any] = []
    still_used: list[Any] = []
    for person in find_approvers(mail.persons, mail.resumes, agent.name, None):
        # Other entries approve nothing in advance.
        earlier_names = mail.org.get_cache(EntryClassifier).classify(mail, person).unsolicited
        for name in (*earlier_names, *mail.author_entries_this_tick(person, agent.name)):
            entry = mail.read(name)
            if name.identity in used:
                still_used.append(name.identity)
            elif isinstance(entry, OutboxEntry) and (call := parse_preapproval(entry, agent.name)):
                preapprovals.append({**call, "id": "", "by": person, "entry": name.identity})
    return preapprovals, still_used


def parse_preapproval(entry: OutboxEntry, agent: str) -> dict[str, Any] | None:
    """Return the call preapproved for an agent by a person's entry, or None."""
    call, decision = entry.payload.get("call"), parse_decision(entry.payload)
    if entry.kind != "response" or decision is None or decision.kind != "approve":
        return None
    if "reply_to" in entry.payload or entry.targets != {agent} or not isinstance(call, dict):
        return None
    tool, args, binds = call.get("tool"), call.get("args"), call.get("binds")
    if not isinstance(tool, str) or not isinstance(args, dict) or not isinstance(binds, dict | None):
        return None
    return {"tool": tool, "args": args, **({"binds": binds} if binds is not None else {})}


def apply_decision(result: Mapping[str, Any], outcomes: Sequence[RequestOutcome]) -> Mapping[str, Any]:
    """Return the result of a call with the decision about it, if the call waited for a person."""
    decided = [outcome for _, outcome in _iter_decided_calls(outcomes)]
    return render_result(result["tool"], result["args"], _to_tool_result(decided[-1])) if decided else result


def collect_decided_calls(
    task: Task, results: Sequence[Mapping[str, Any]], prompt_style: str | None, at: str
) -> tuple[Json, set[int]]:
    """Return the decided calls to make before anything else, and the indexes of their pending results.

    The first value has the calls and all results, with slots for the new ones: a prompt in text has no slots.
    `at`: start of the turn. Both are empty without decisions.
    """
    decided_by_index = dict(_iter_decided_calls(task.outcomes))
    if not decided_by_index:
        return {}, set()
    first = len(results) - len(task.open_request.results)
    calls = []
    for index, outcome in decided_by_index.items():
        decision, sub_request = _get_decision(outcome), outcome.sub_request
        if decision and decision.kind == "approve":
            edits = {key: value for key in ("args", "binds") if (value := getattr(decision, key)) is not None}
            grant = {"call": sub_request.held[DECISION_RULES], "by": sub_request.to, "entry": sub_request.answer}
            calls.append({"place": first + index, **grant, **edits})
    remarks = [*_find_altered_requests(decided_by_index.values())]
    decided: Json = {"at": at, "calls": calls, "results": [*results]}
    pending_indexes = {call["place"] for call in calls} if prompt_style != "values" else set()
    return {**decided, "remarks": remarks} if remarks else decided, pending_indexes


def _iter_decided_calls(outcomes: Sequence[RequestOutcome]) -> Iterator[tuple[int, RequestOutcome]]:
    """Yield each decided call with the index; of several asked persons, the decider's outcome."""
    chosen_by_request: dict[str, RequestOutcome] = {}
    for outcome in outcomes:
        request = outcome.sub_request.request
        if DECISION_RULES in outcome.sub_request.held and outcome.sub_request.call:
            chosen = chosen_by_request.setdefault(request, outcome)
            if outcome.answer and not chosen.answer:
                chosen_by_request[request] = outcome
    for chosen in chosen_by_request.values():
        yield chosen.sub_request.call - 1, chosen


def list_denials(task: Task) -> list[Json]:
    """Return the calls denied by persons since the request's last turn, for the ledger.

    An undertaking without request never ends, so there a denial covers only one call.
    """
    key = task.open_request.request
    decided = [(outcome, _get_decision(outcome)) for _, outcome in _iter_decided_calls(task.outcomes)] if key else []
    return [
        {
            "request": key,
            **{name: outcome.sub_request.held[DECISION_RULES][name] for name in ("id", "sha256", "binds")},
            "by": outcome.sub_request.to,
            "reason": decision.text,
        }
        for outcome, decision in decided
        if decision and decision.kind == "deny"
    ]


def _get_decision(outcome: RequestOutcome) -> Decision | None:
    if outcome.answer is None or outcome.sub_request.end not in ("answered", "refused"):
        return None
    return parse_decision(outcome.answer.payload) or Decision("deny", str(outcome.answer.payload.get("text", "")))


def _to_tool_result(outcome: RequestOutcome) -> ToolResult:
    sub_request, decision = outcome.sub_request, _get_decision(outcome)
    if decision is None:
        if sub_request.end == "expired":
            return ToolResult(False, f"REFUSED: nobody answered by {describe_deadline(sub_request)}", outcome="refused")
        reason = "it was taken back" if sub_request.end == "cancelled" else "nobody is there to approve it any more"
        return ToolResult(False, f"REFUSED: {reason}", outcome="refused")
    if decision.kind == "deny":
        reason = f": {decision.text}" if decision.text else ""
        return ToolResult(False, f"DENIED by {sub_request.to}{reason}", outcome="refused")
    if decision.kind == "answer":
        return ToolResult(True, decision.text)
    return ToolResult(True, PENDING_NOTE)


def _find_altered_requests(outcomes: Iterable[RequestOutcome]) -> Iterator[str]:
    """Yield remarks about altered requests: their text about the call has no effect."""
    for outcome in outcomes:
        shown_call = outcome.entry.payload.get("call") if outcome.entry else None
        call = outcome.sub_request.held[DECISION_RULES]
        # The altered text has no effect, but the person may have decided by it: a remark tells of it.
        if not isinstance(shown_call, dict) or any(not is_equal_json(shown_call.get(key), call[key]) for key in call):
            yield (
                f"the request {outcome.sub_request.request} shows another call than it asked about: "
                f"{call.get('tool')} {call.get('id')} stays as it was"
            )
