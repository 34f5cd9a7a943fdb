"""How requests for approval end, by the first decision of a person who was asked, and what was decided. Pure.

Rules: docs/approvals.md. Which decisions there are stands in the journal with the turn's inputs, before
anything is called; `approvals.part` makes the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lemming.capabilities.approvals.waiting import NAME, SHOW, SPEND, Decision, decision_in, is_amount
from lemming.capabilities.requests.deadlines import is_in_time, is_past, patient
from lemming.capabilities.requests.kinds import KindsOfEntries
from lemming.capabilities.requests.payloads import cancels, order_of_decision, refers_to
from lemming.kernel.agents import Agent
from lemming.kernel.base.same_json import is_same
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Asked, Begun, end_text
from lemming.kernel.mail.holds import Ends, EntriesOf
from lemming.kernel.mail.task import Ended, Task
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.messages import OutboxEntry, names_of
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.results import as_shown

NOT_YET = "(it is made as this turn begins)"


def ends_of(
    begun: Begun,
    tick: int,
    at: str,
    read: Callable[[str], OutboxEntry | None],
    entries_of: EntriesOf,
    is_heard: Callable[[str], bool],
) -> Ends:
    """Return how the requests for approval have ended of what is open; those that still wait are left out.

    `is_heard`: of a person who still is one, and whom the agent and who may read each other.
    """
    ends: Ends = {}
    for identity in dict.fromkeys(it.request for it in begun.open if NAME in it.held):
        asked = [it for it in begun.open if it.request == identity]
        request = read(identity)
        heard = [it for it in asked if is_heard(it.to)]
        if request is None or not heard:
            ends |= {it.key: ("failed", "") for it in asked}
        elif first := min(_decisions(request, heard, at, entries_of), key=_order, default=None):
            entry, to, end = first
            ends |= {it.key: ("cancelled", "") for it in asked}
            ends |= {(identity, to): (end, entry.identity)} if to else {}
        elif is_past(asked[0].until, asked[0].not_after, tick, at):
            ends |= {it.key: ("expired", "") for it in asked}
    return ends


def settled(mail: Mail, agent: Agent, asked: Sequence[Asked]) -> tuple[Asked, ...]:
    """Return what an agent asked for beside calls, as it stands now: open, "approved" or "denied".

    What is about an entry that is gone is left out.
    """
    kept = [it for it in asked if not _is_moot(mail, it)]
    begun = patient(mail, Begun(request="", asked=tuple(kept)))

    def entries_of(author: str, tick: int) -> Iterator[OutboxEntry]:
        names = mail.past(author)
        for name in (*names.all[names.after(tick - 1) :], *mail.today_of(author, agent.name)):
            if isinstance(entry := mail.read(name), OutboxEntry):
                yield entry

    def is_heard(person: str) -> bool:
        resume = mail.resumes.get(person)
        is_read = resume is not None and resume.may_read(agent.name) and agent.may_read(person)
        return person in mail.persons and is_read

    ends = ends_of(begun, mail.tick, mail.at, partial(entry_at, mail), entries_of, is_heard)
    told = {request: _reason(mail, end) for (request, _), end in ends.items() if end[1]}
    edited = {request: _amounts_in(mail, end[1]) for (request, _), end in ends.items() if end[1]}
    over = {request: "denied" for (request, _), (end, _) in ends.items() if end in ("expired", "cancelled")}
    ended = {**over, **told}
    return tuple(
        replace(_edited(it, edited.get(it.request, {})), end=it.end or ended.get(it.request, ""))
        for it in kept
    )


def _edited(asked: Asked, amounts: Mapping[str, Any]) -> Asked:
    """Return what asks to spend more with the amounts that a person gave instead."""
    call = asked.held[NAME]
    if not amounts or call["tool"] != SPEND:
        return asked
    given = {key: amount for key, amount in amounts.items() if key in call["args"] and key != "of"}
    return replace(asked, held={NAME: {**call, "args": {**call["args"], **given}}})


def _amounts_in(mail: Mail, identity: str) -> dict[str, float]:
    """Return the amounts that a decision names; of one that is none, nothing is spent."""
    entry = entry_at(mail, identity)
    decision = decision_in(entry.payload) if entry else None
    args = decision.args if decision and decision.args else {}
    return {key: float(it) if is_amount(it) else 0.0 for key, it in args.items()}


def _reason(mail: Mail, end: tuple[str, str]) -> str:
    entry = entry_at(mail, end[1])
    decision = decision_in(entry.payload) if entry and end[0] == "answered" else None
    return "approved" if decision and decision.word == "approve" else "denied"


def _is_moot(mail: Mail, asked: Asked) -> bool:
    call = asked.held[NAME]
    if not asked.end and entry_at(mail, asked.request) is None:
        return True  # who took the request away is asked again
    return call["tool"] == SHOW and entry_at(mail, call["args"]["entry"]) is None


def entry_at(mail: Mail, identity: str) -> OutboxEntry | None:
    """Return the entry of an identity; None when there is none that can be read."""
    found = next((mail.read(name) for name in names_of([identity])), None)
    return found if isinstance(found, OutboxEntry) else None


def approved_ahead(mail: Mail, agent: Agent, used: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what persons approved for an agent in advance, and what of that `used` is still there.

    It is a response to nothing yet: `{"target": agent, "decision": "approve", "call": {"tool", "args"}}`,
    with the SHA-256 of files in `call.binds` where it is for these contents only.
    """
    found: list[Any] = []
    still: list[Any] = []
    for person in sorted(mail.persons):
        if not (agent.may_read(person) and mail.resumes[person].may_read(agent.name)):
            continue
        earlier = mail.org.own(KindsOfEntries).of(mail, person).unasked  # all else approves nothing ahead
        for name in (*earlier, *mail.today_of(person, agent.name)):
            entry = mail.read(name)
            if name.identity in used:
                still.append(name.identity)
            elif isinstance(entry, OutboxEntry) and (call := given_ahead(entry, agent.name)):
                found.append({**call, "id": "", "by": person, "entry": name.identity})
    return found, still


def given_ahead(entry: OutboxEntry, agent: str) -> dict[str, Any] | None:
    """Return the call that an entry of a person approves for an agent in advance; None: none."""
    call, decision = entry.payload.get("call"), decision_in(entry.payload)
    if entry.kind != "response" or decision is None or decision.word != "approve":
        return None
    if "reply_to" in entry.payload or entry.targets != {agent} or not isinstance(call, dict):
        return None
    tool, args, binds = call.get("tool"), call.get("args"), call.get("binds")
    if not isinstance(tool, str) or not isinstance(args, dict) or not isinstance(binds, dict | None):
        return None
    return {"tool": tool, "args": args, **({"binds": binds} if binds is not None else {})}


def _decisions(
    request: OutboxEntry, asked: Iterable[Asked], at: str, entries_of: EntriesOf
) -> Iterator[tuple[OutboxEntry, str, str]]:
    """Yield the decisions of those who were asked: the entry, whose it is, and how it ends the request.

    Who asked may take it back; that is nobody's decision.
    """
    for entry in entries_of(request.agent, request.tick):
        if cancels(entry, request):
            yield entry, "", "cancelled"
    for it in asked:
        for entry in entries_of(it.to, request.tick):
            if not is_in_time(entry, it.until, it.not_after, at):
                continue
            is_answer = entry.kind == "response" and refers_to(entry.payload.get("reply_to"), request)
            if is_answer and decision_in(entry.payload):
                yield entry, it.to, "answered"
            elif cancels(entry, request):
                yield entry, it.to, "refused"


def _order(decision: tuple[OutboxEntry, str, str]) -> Any:
    return order_of_decision(decision[0])


def results_with_decisions(task: Task, results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the results of what was asked for a task, the last ones of these, as they were decided about."""
    about, first = dict(_decided_calls(task)), len(results) - len(task.begun.results)
    found = [*results]
    for place, ended in about.items():
        before = found[first + place]
        found[first + place] = as_shown(before["tool"], before["args"], _result(ended))
    return found


def decided_in(
    task: Task, results: Sequence[Mapping[str, Any]], form: str | None, at: str
) -> tuple[Json, set[int]]:
    """Return what a turn does before all else, and which results its prompt does not show yet.

    It has the calls to make, and all results, with places for theirs: a prompt in text has no such places.
    `at` is the moment at which the turn begins. Empty where nothing was decided.
    """
    about = dict(_decided_calls(task))
    if not about:
        return {}, set()
    first = len(results) - len(task.begun.results)
    approved = {
        place: ended for place, ended in about.items() if (it := _decision_of(ended)) and it.word == "approve"
    }
    calls = [{"place": first + place, **_word_for(ended)} for place, ended in approved.items()]
    remarks = [*_misleading(about.values())]
    decided: Json = {"at": at, "calls": calls, "results": [*results]}
    to_come = {each["place"] for each in calls} if form != "values" else set()
    return {**decided, "remarks": remarks} if remarks else decided, to_come


def _decided_calls(task: Task) -> Iterator[tuple[int, Ended]]:
    """Yield what was decided about each call that waited, with its place: of several asked, who decided."""
    waited = [ended for ended in task.asked if NAME in ended.asked.held and ended.asked.call]
    for request in dict.fromkeys(ended.asked.request for ended in waited):
        of_all = [ended for ended in waited if ended.asked.request == request]
        chosen = next((ended for ended in of_all if ended.answer), of_all[0])
        yield chosen.asked.call - 1, chosen


def list_denials(task: Task) -> list[Json]:
    """Return the calls that persons denied since the last turn for a request, as a ledger keeps them.

    What an agent asks on its own account has no end, so a "no" is for one call there.
    """
    key = task.begun.request
    decided = [(ended, _decision_of(ended)) for _, ended in _decided_calls(task)] if key else []
    return [
        {
            "request": key,
            **{name: ended.asked.held[NAME][name] for name in ("id", "sha256", "binds")},
            "by": ended.asked.to,
            "reason": decision.text,
        }
        for ended, decision in decided
        if decision and decision.word == "deny"
    ]


def _decision_of(ended: Ended) -> Decision | None:
    if ended.answer is None or ended.asked.end not in ("answered", "refused"):
        return None
    return decision_in(ended.answer.payload) or Decision("deny", str(ended.answer.payload.get("text", "")))


def _word_for(ended: Ended) -> Json:
    decision, asked = _decision_of(ended), ended.asked
    assert decision, "who approved decided"
    edited = {key: it for key in ("args", "binds") if (it := getattr(decision, key)) is not None}
    return {"call": asked.held[NAME], "by": asked.to, "entry": asked.answer, **edited}


def _result(ended: Ended) -> ToolResult:
    asked, decision = ended.asked, _decision_of(ended)
    if decision is None:
        if asked.end == "expired":
            return ToolResult(False, f"REFUSED: nobody answered by {end_text(asked)}", outcome="refused")
        why = "it was taken back" if asked.end == "cancelled" else "nobody is there to approve it any more"
        return ToolResult(False, f"REFUSED: {why}", outcome="refused")
    if decision.word == "deny":
        why = f": {decision.text}" if decision.text else ""
        return ToolResult(False, f"DENIED by {asked.to}{why}", outcome="refused")
    if decision.word == "answer":
        return ToolResult(True, decision.text)
    return ToolResult(True, NOT_YET)


def _misleading(about: Iterable[Ended]) -> Iterator[str]:
    """Yield remarks about requests that somebody has changed: what they say of the call has no effect."""
    for ended in about:
        shown = ended.entry.payload.get("call") if ended.entry else None
        call = ended.asked.held[NAME]
        if not isinstance(shown, dict) or any(not is_same(shown.get(key), call[key]) for key in call):
            yield (
                f"the request {ended.asked.request} shows another call than it asked about: "
                f"{call.get('tool')} {call.get('id')} stays as it was"
            )
