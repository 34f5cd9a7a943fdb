"""Why something was written: the tree of turns behind an entry, a memory or a file."""

from __future__ import annotations

from typing import Any

from lemming.facts.views.sentences import ADDRESSING, payload_text, text_said
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.journal.file import begun_journals, raw_journal
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.timeline.why.explain import explain, keep_only, sources
from lemming.timeline.why.things import Thing
from lemming.timeline.why.trusted import TrustStep, way_of
from lemming.timeline.why.writings import Writings

DEPTH = 2
DEEPEST = 100
TEXT_SHOWN_CHARS = 4000


def why(org: OrgPath, *, target: str = "", depth: int = DEPTH, grep: str = "") -> dict[str, Any]:
    """Return the tree behind a target, so many turns back; with `grep`, the branches that hold a text.

    `target`: an entry's id, a file of the organisation, or AGENT/memory/KEY; nothing is told of none. Long
    texts are cut, and `chars` says how long they were. Raises `UsageError` for what was never written.
    """
    if not target:
        return {"depth": depth, "grep": grep, "is_found": False, "target": None, "sources": []}
    latest, depth = Organisation.at(org).own(_Latest), min(max(depth, 1), DEEPEST)
    try:
        writings = latest.writings()
        found = explain(writings, target, depth=depth)
    except UsageError:  # it may be an entry that a person has written since
        writings = latest.anew()
        found = explain(writings, target, depth=depth)
    is_found = not grep or keep_only(found, grep)
    facts = facts_of(writings, found, way_of(writings, found.path))
    _cut(facts["target"])
    for end in facts["sources"]:
        _cut(end)
    return {"depth": depth, "grep": grep, "is_found": is_found, **facts}


def writings_of(org: Organisation) -> Writings:
    """Return what the turns of an organisation wrote, as far as it was found out before."""
    return org.own(_Latest).writings()


class _Latest:
    """What was found out from the journals; it holds until something is added to them."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._made_of = org, (-1, -1)
        self._writings = Writings(org)

    def writings(self) -> Writings:
        """Return it, made anew if there is more to find out."""
        return self._writings if self._made_of == self._end() else self.anew()

    def anew(self) -> Writings:
        """Return it made anew."""
        self._made_of, self._writings = self._end(), Writings(self._org)
        return self._writings

    def _end(self) -> tuple[int, int]:
        """Return the newest tick that has a journal, and how long that is."""
        newest = begun_journals(self._org, 1)
        return (newest[-1], len(raw_journal(self._org, newest[-1]))) if newest else (-1, 0)


def facts_of(writings: Writings, found: Thing, way: list[TrustStep]) -> dict[str, Any]:
    """Return a tree as JSON values: what ends its branches, and by which way it came to be trusted less."""
    ends = [
        {**thing.as_json(), "seen_in": turn.tick, "seen_by": turn.agent} for thing, turn in sources(found)
    ]
    trust = {"trust": [step.as_json() for step in way]} if way else {}
    damaged = sorted(writings.damaged)
    return {"target": found.as_json(), "sources": ends, "unreadable_ticks": damaged, **trust}


def _cut(thing: dict[str, Any]) -> None:
    """Cut the texts of a tree, which may each be a megabyte."""
    thing["text"] = _in_words(thing["text"])
    thing["chars"] = len(thing["text"])
    thing["text"] = thing["text"][:TEXT_SHOWN_CHARS]
    for seen in thing["turn"]["saw"] if thing["turn"] else ():
        _cut(seen)


def _in_words(text: str) -> str:
    """Return what an entry without a text says, in words; all else as it is."""
    if not text.startswith("{"):
        return text
    try:
        payload = parse(text)
    except JsonProblem:
        return text
    is_payload = isinstance(payload, dict) and ADDRESSING & payload.keys()
    return (text_said(payload) or payload_text(payload) or text) if is_payload else text
