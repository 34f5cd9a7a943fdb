"""Entries that decide: decisions of persons on pending actions, cancellations, and where an outbox has them. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.times import normalize_moment
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.inboxes.entry_index import EntryNames
from lemming.kernel.inboxes.turn_agenda import EntryLister, RequestOutcomes
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.obligations.request_deadlines import is_expired, is_in_time

Json = dict[str, Any]
DecisionKind = Literal["approve", "deny", "answer"]


class Decision(NamedTuple):
    """Decision of a person. `args`: edited arguments. `text`: the reason or the result.

    `binds`: digests of the files named by `args` at the time of the decision, if present.
    """

    kind: DecisionKind
    text: str = ""
    args: Json | None = None
    binds: Json | None = None


def is_approval_request(payload: Mapping[str, Any]) -> bool:
    """Return True if a request's payload asks for approval of an action.

    >>> is_approval_request({"call": {"gate": "config/org.json#/gates/0"}}), is_approval_request({"text": "really?"})
    (True, False)
    """
    call = payload.get("call")
    return isinstance(call, dict) and call.get("gate") is not None


def parse_decision(payload: Mapping[str, Any]) -> Decision | None:
    """Return the decision in a response's payload, or None.

    >>> parse_decision({'decision': 'deny', 'reason': 'not on a Friday'})
    Decision(kind='deny', text='not on a Friday', args=None, binds=None)
    >>> parse_decision({"text": "yes please"})
    """
    if payload.get("status") in ("refused", "failed"):
        return Decision("deny", _text_field(payload, "reason"))
    match payload.get("decision"):
        case "approve":
            args, binds = payload.get("args"), payload.get("binds")
            is_sound = isinstance(args, dict | None) and isinstance(binds, dict | None)
            return Decision("approve", args=args, binds=binds) if is_sound else None
        case "deny":
            return Decision("deny", _text_field(payload, "reason"))
        case "answer" if text := _text_field(payload, "answer"):
            return Decision("answer", text)
    return None


def _text_field(payload: Mapping[str, Any], key: str) -> str:
    return next((text for name in (key, "text") if isinstance(text := payload.get(name), str) and text), "")


def is_amount(value: object) -> bool:
    """Return True for a valid raise of a limit.

    >>> is_amount(2), is_amount(0.5), is_amount(0), is_amount(-3), is_amount(True), is_amount("3")
    (True, True, False, False, False, False)
    """
    return isinstance(value, int | float) and value is not True and 0 < value <= MAX_AMOUNT


def find_approval_outcomes(
    open_request: OpenRequest,
    tick: int,
    at: str,
    read: Callable[[str], OutboxEntry | None],
    read_entries: EntryLister,
    is_authorized: Callable[[str], bool],
) -> RequestOutcomes:
    """Return the outcomes of an open request's approvals, without the ones that still wait.

    `is_authorized`: returns True for a current person, if the person and the agent read each other.
    """
    outcomes: RequestOutcomes = {}
    open_parts = open_request.open_sub_requests
    for identity in dict.fromkeys(part.request for part in open_parts if DECISION_RULES in part.held):
        sub_requests = [part for part in open_parts if part.request == identity]
        request = read(identity)
        authorized = [sub_request for sub_request in sub_requests if is_authorized(sub_request.to)]
        if request is None or not authorized:
            outcomes |= {sub_request.key: ("failed", "") for sub_request in sub_requests}
        # The earliest decision counts: a later "no" takes nothing back, since the call may have been made.
        elif decisions := [*_iter_decisions(request, authorized, at, read_entries)]:
            entry, to, end = min(decisions, key=lambda decision: decision_sort_key(decision[0]))
            outcomes |= {sub_request.key: ("cancelled", "") for sub_request in sub_requests}
            outcomes |= {(identity, to): (end, entry.identity)} if to else {}
        elif is_expired(sub_requests[0].until, sub_requests[0].not_after, tick, at):
            outcomes |= {sub_request.key: ("expired", "") for sub_request in sub_requests}
    return outcomes


def _iter_decisions(
    request: OutboxEntry, sub_requests: Iterable[SubRequest], at: str, read_entries: EntryLister
) -> Iterator[tuple[OutboxEntry, str, str]]:
    """Yield the decisions of the asked persons: entry, author (none for the asker's own cancellation), and outcome."""
    for entry in read_entries(request.agent, request.tick):
        if is_cancellation(entry, request):
            yield entry, "", "cancelled"
    for sub_request in sub_requests:
        for entry in read_entries(sub_request.to, request.tick):
            if not is_in_time(entry, sub_request.until, sub_request.not_after, at):
                continue
            is_answer = entry.kind == "response" and references_entry(entry.payload.get("reply_to"), request)
            if is_answer and parse_decision(entry.payload):
                yield entry, sub_request.to, "answered"
            elif is_cancellation(entry, request):
                yield entry, sub_request.to, "refused"


def references_entry(reference: object, entry: OutboxEntry) -> bool:
    """Return True if a reference in a payload names an entry, by id or by author/tick_id."""
    return any(name in (entry.id, entry.identity) for name in parse_references(reference))


def accepts_first_answer(request: OutboxEntry) -> bool:
    """Return True for a request with several targets of which the first answer is enough."""
    return request.payload.get("join") == "first" and len(request.targets) > 1


def is_cancellation(entry: OutboxEntry, request: OutboxEntry) -> bool:
    """Return True if an entry cancels a request, or the request handed off by this entry."""
    if entry.kind != "status" or not (references := parse_references(entry.payload.get("cancels"))):
        return False
    names = (request.id, request.identity, *parse_references(request.payload.get("hands_on")))
    return any(name in names for name in references)


def decision_sort_key(entry: OutboxEntry) -> tuple[int, bool, str, bool, str]:
    """Return the sort key for decisions about the same subject: the first decision counts.

    Within a tick, the earliest decision comes first, and decisions without a time come last. Among decisions
    with the same time or without a time, a rejection comes first.
    """
    decided_at = normalize_moment(entry.created_at)
    return entry.tick, not decided_at, decided_at, entry.payload.get("decision") == "approve", entry.identity


@dataclass
class OutboxClassification:
    """The entries of an outbox from earlier ticks, by effect on requests.

    `requests` open a request. `affecting` answer a request, report on one, or hand one off. `unsolicited` are
    answers without a request. An unreadable entry is in all lists, because its file may be repaired.
    """

    requests: list[EntryName] = field(default_factory=list)
    affecting: list[EntryName] = field(default_factory=list)
    unsolicited: list[EntryName] = field(default_factory=list)
    _names: EntryNames | None = None
    _unreadable: set[EntryName] = field(default_factory=set)

    def refresh(self, mail: MailView, names: EntryNames) -> None:
        """Classify the new names, and names that could not be read earlier."""
        if any(isinstance(mail.read(name), OutboxEntry) for name in self._unreadable):  # it was mended
            self._names = None
        if names is self._names:
            return
        old_names = self._names.all if self._names else []
        # Where something is gone, or another entry may stand under a name, all are looked at anew.
        if len(names.all) == len(old_names) or names.all[: len(old_names)] != old_names:
            old_names, self._unreadable = [], set()
            self.requests, self.affecting, self.unsolicited = [], [], []
        for name in names.all[len(old_names) :]:
            self._classify(name, mail.read(name))
        self._names = names

    def _classify(self, name: EntryName, entry: object) -> None:
        if not isinstance(entry, OutboxEntry):
            self._unreadable.add(name)
            for names in (self.requests, self.affecting, self.unsolicited):
                names.append(name)
            return
        if entry.kind == "request":
            self.requests.append(name)
        if entry.kind in ("response", "status") or "hands_on" in entry.payload:
            self.affecting.append(name)
        if entry.kind == "response" and "reply_to" not in entry.payload:
            self.unsolicited.append(name)


class EntryClassifier:
    """The classified entries of an organisation's outboxes: `org.own(EntryClassifier)`."""

    def __init__(self, _: Organisation) -> None:
        self._outboxes: dict[str, OutboxClassification] = {}

    def classify(self, mail: MailView, author: str) -> OutboxClassification:
        """Return the classified entries that an author wrote before this tick."""
        classification = self._outboxes.setdefault(author, OutboxClassification())
        classification.refresh(mail, mail.past_names(author))
        return classification
