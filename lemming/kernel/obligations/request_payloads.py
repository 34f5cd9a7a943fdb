"""Read payloads of requests, and the entries about requests: numbers, budgets, references, and the kinds of entries.

A reference is text, an id or `author/TICK_ID`; a list of references is allowed. Any other value refers to nothing, for all
readers alike: payloads are written by models, programs and people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.integers import LAST_TICK, clamp_int
from lemming.kernel.base.times import normalize_moment
from lemming.kernel.files.fast_decoder import MAX_AMOUNT
from lemming.kernel.inboxes.entry_index import EntryNames
from lemming.kernel.inboxes.visibility import MailView
from lemming.kernel.messages import EntryName, OutboxEntry
from lemming.kernel.org.organisation import Organisation


def get_count(payload: Mapping[str, Any], key: str) -> int | None:
    """Return a non-negative whole number from a payload, or None without a valid number.

    A number of ticks beyond the last possible tick is clamped to the last tick.
    """
    return clamp_int(payload.get(key), le=LAST_TICK)


def required_answers(payload: Mapping[str, Any], total: int) -> int:
    """Return the number of answers required from `total` targets, by `join`:

    "all" (default), "first" or a number.
    """
    if payload.get("join") == "first":
        return 1
    number = get_count(payload, "join")
    return total if number is None else max(1, min(number, total))


def references_entry(reference: object, entry: OutboxEntry) -> bool:
    """Return True if a reference in a payload names an entry, by id or by author/tick_id."""
    return any(name in (entry.id, entry.identity) for name in parse_references(reference))


def accepts_first_answer(request: OutboxEntry) -> bool:
    """Return True for a request with several targets of which the first answer is enough."""
    return request.payload.get("join") == "first" and len(request.targets) > 1


def _refers_to_request(reference: object, request: OutboxEntry) -> bool:
    """Return True if a reference names a request or the request handed off by this entry."""
    if not (references := parse_references(reference)):
        return False
    request_names = (request.id, request.identity, *parse_references(request.payload.get("hands_on")))
    return any(name in request_names for name in references)


def is_cancellation(entry: OutboxEntry, request: OutboxEntry) -> bool:
    """Return True if an entry cancels a request."""
    return entry.kind == "status" and _refers_to_request(entry.payload.get("cancels"), request)


def decision_sort_key(entry: OutboxEntry) -> tuple[int, bool, str, bool, str]:
    """Return the sort key for decisions about the same subject: the first decision counts.

    Within a tick, the earliest decision comes first, and decisions without a time come last. Among decisions
    with the same time or without a time, a rejection comes first.
    """
    decided_at = normalize_moment(entry.created_at)
    return entry.tick, not decided_at, decided_at, entry.payload.get("decision") == "approve", entry.identity


@dataclass
class OutboxClassification:
    """The entries of one outbox from earlier ticks, classified by their effect on requests.

    `requests` open a request. `moving` answer a request, report on one, or hand one off. `unasked` are
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


_TICK = re.compile(r"[0-9]{1,12}")


def parse_references(value: object) -> tuple[str, ...]:
    """Return the normalized references in the value of a reference key.

    >>> parse_references("desk/42_3fa9c1d2e0b7"), parse_references([" a ", 7]), parse_references({"id": "a"})
    (('desk/00000042_3fa9c1d2e0b7',), ('a',), ())
    """
    if isinstance(value, str):
        return (normalize_reference(value),)
    if isinstance(value, list):
        return tuple(normalize_reference(item) for item in value if isinstance(item, str))
    return ()


def parse_reference(value: object) -> str:
    """Return the single reference in a value, or an empty string if there is none or more than one."""
    references = parse_references(value)
    return references[0] if len(references) == 1 else ""


def normalize_reference(reference: str) -> str:
    """Return a reference without surrounding white space, with its tick padded as in file names.

    >>> normalize_reference("desk/42_3fa9c1d2e0b7")
    'desk/00000042_3fa9c1d2e0b7'
    """
    reference = reference.strip()
    if "/" not in reference:
        return reference
    author, _, name = reference.partition("/")
    tick, _, id_ = name.partition("_")
    return f"{author}/{int(tick):08}_{id_}" if _TICK.fullmatch(tick) else reference


Unit = Literal["credits", "tokens"]
_TOKENS = re.compile(r"([0-9]{1,15}) tokens")


class BudgetAmount(NamedTuple):
    """An amount of credits (a number in payloads) or of tokens (a text in payloads: "9000 tokens")."""

    number: float
    unit: Unit = "credits"

    @property
    def file_value(self) -> float | str:
        """The amount as written in payloads. Tokens are whole numbers."""
        return f"{int(self.number)} tokens" if self.unit == "tokens" else self.number

    def split_budget(self, parts: int) -> BudgetAmount:
        """Return one of `parts` equal parts, rounded down: the parts never exceed the whole."""
        digits = 1 if self.unit == "tokens" else 1_000_000
        return self._replace(number=floor(round(self.number / parts * digits, 3)) / digits)

    @property
    def number_text(self) -> str:
        """The number without the unit."""
        return f"{int(self.number):,}" if self.unit == "tokens" else f"{self.number:g}"

    def __str__(self) -> str:
        return f"{self.number_text} {self.unit}"


NOTHING = BudgetAmount(0.0)


def parse_amount(value: object) -> BudgetAmount | None:
    """Return the amount given by a value, or None for a value of another form.

    >>> parse_amount(2), parse_amount("9000 tokens"), parse_amount("much")
    (BudgetAmount(number=2.0, unit='credits'), BudgetAmount(number=9000.0, unit='tokens'), None)
    """
    if isinstance(value, str):
        match = _TOKENS.fullmatch(value.strip())
        return BudgetAmount(float(match[1]), "tokens") if match else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return BudgetAmount(float(value)) if 0 <= value <= MAX_AMOUNT else None


def get_budget(payload: Mapping[str, Any]) -> BudgetAmount | None:
    """Return the budget of a request, or None without a limit. An invalid budget counts as zero."""
    value = payload.get("budget")
    return None if value is None else parse_amount(value) or NOTHING
