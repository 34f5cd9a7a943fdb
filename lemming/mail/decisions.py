"""How requests for leave end: by the first decision of a person who was asked. Pure: docs/approvals.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lemming.agents import Agent
from lemming.journal.begun import Asked, Begun
from lemming.leave import decision_in
from lemming.mail.closing import cancels, refers_to
from lemming.mail.visibility import Mail
from lemming.messages import EntryName, OutboxEntry, names_of

Ends = dict[tuple[str, str], tuple[str, str]]
"""How each thing that was asked has ended, and the entry that ended it, by `Asked.key`."""
EntriesOf = Callable[[str, int], Iterable[OutboxEntry]]


def ends_of_leave(
    begun: Begun,
    tick: int,
    read: Callable[[str], OutboxEntry | None],
    entries_of: EntriesOf,
    is_heard: Callable[[str], bool],
) -> Ends:
    """Return how the requests for leave have ended of what is open; those that still wait are not among them.

    `is_heard`: of a person who still is one, and whom the agent and who may read each other.
    """
    ends: Ends = {}
    for identity in dict.fromkeys(it.request for it in begun.open if it.leave is not None):
        asked = [it for it in begun.open if it.request == identity]
        request = read(identity)
        heard = [it for it in asked if is_heard(it.to)]
        if request is None or not heard:
            ends |= {it.key: ("failed", "") for it in asked}
        elif first := min(_decisions(request, heard, entries_of), default=None):
            name, to, end = first
            ends |= {it.key: ("cancelled", "") for it in asked}
            ends |= {(identity, to): (end, name.identity)} if to else {}
        elif asked[0].until is not None and tick > asked[0].until:
            ends |= {it.key: ("expired", "") for it in asked}
    return ends


def leave_ahead(mail: Mail, agent: Agent, used: Sequence[str]) -> dict[str, list[Any]]:
    """Return the leave that persons gave an agent in advance, and what of that `used` is still there.

    It is a response to nothing yet: `{"target": agent, "decision": "approve", "call": {"tool", "args"}}`,
    with the SHA-256 of files in `call.binds` where leave is for these contents only.
    """
    found: list[Any] = []
    still: list[Any] = []
    for person in sorted(mail.persons):
        if not (agent.may_read(person) and mail.resumes[person].may_read(agent.name)):
            continue
        for name in (*mail.past(person).all, *mail.today_of(person, agent.name)):
            entry = mail.read(name)
            if name.identity in used:
                still.append(name.identity)
            elif isinstance(entry, OutboxEntry) and (leave := given_ahead(entry, agent.name)):
                found.append({**leave, "id": "", "by": person, "entry": name.identity})
    return {"leave": found, "used": still} if found or still else {}


def given_ahead(entry: OutboxEntry, agent: str) -> dict[str, Any] | None:
    """Return the call for which an entry of a person gives an agent leave in advance; None: it gives none."""
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
    request: OutboxEntry, asked: Iterable[Asked], entries_of: EntriesOf
) -> Iterator[tuple[EntryName, str, str]]:
    """Yield the decisions of those who were asked: the entry, whose it is, and how it ends the request.

    Who asked may take it back; that is nobody's decision.
    """
    for entry in entries_of(request.agent, request.tick):
        if cancels(entry, request):
            yield _name_of(entry), "", "cancelled"
    for it in asked:
        for entry in entries_of(it.to, request.tick):
            if it.until is not None and entry.tick > it.until:
                continue
            is_answer = entry.kind == "response" and refers_to(entry.payload.get("reply_to"), request)
            if is_answer and decision_in(entry.payload):
                yield _name_of(entry), it.to, "answered"
            elif cancels(entry, request):
                yield _name_of(entry), it.to, "refused"


def _name_of(entry: OutboxEntry) -> EntryName:
    return next(iter(names_of([entry.identity])))
