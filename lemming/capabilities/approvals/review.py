"""Entries that wait in review: an agent is shown them once a person lets them in (docs/approvals.md).

A gate at "in" that says "ask" has an entry wait. Nobody is asked twice about one; what was decided stands in
the agent's ledger as long as the entry is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lemming.capabilities.approvals.decisions import settled
from lemming.capabilities.approvals.waiting import NAME, SHOW, Waiting
from lemming.capabilities.gates.format import Gate, Rule
from lemming.capabilities.gates.keys import rules_for, whom_to_ask
from lemming.capabilities.gates.limit import AMOUNTS
from lemming.capabilities.gates.looking import rules_at
from lemming.capabilities.gates.shown import InGates, in_gates
from lemming.kernel.agents import Agent
from lemming.kernel.journal.begun import Asked
from lemming.kernel.mail.visibility import View
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.opening import Surroundings

MOST_ASKED = 16
"""About so many entries at most a turn asks; about the rest, the next one does."""


class Review:
    """Which entries an agent may be shown, and about which a person is to be asked first.

    `asked`: what was asked in earlier turns, as it stands now. `only`: there is nothing else to take a turn
    for.
    """

    def __init__(
        self,
        now: Surroundings,
        agent: Agent,
        gates: InGates,
        asked: Sequence[Asked],
        spending: Sequence[Rule] = (),
    ) -> None:
        self._spending = spending
        self._now, self._agent, self._gates = now, agent, gates
        self.asked = settled(now.mail, agent, asked)
        self._known: dict[str, str] = {}
        for it in self.asked:
            if it.held[NAME]["tool"] == SHOW:
                entry = it.held[NAME]["args"]["entry"]
                self._known[entry] = it.end or self._known.get(entry, "")
        self._new: dict[str, dict[str, Any]] = {}
        self.only = False

    def withholds(self, entry: OutboxEntry) -> bool:
        """Return whether an entry waits until a person decides."""
        return self._end_of(entry) == ""

    def is_refused(self, entry: OutboxEntry) -> bool:
        """Return whether a person did not let an entry in."""
        return self._end_of(entry) == "denied"

    def lets_in(self, entry: OutboxEntry) -> bool:
        """Return whether a person let an entry in."""
        return self._known.get(entry.identity) == "approved"

    def _end_of(self, entry: OutboxEntry) -> str:
        if entry.agent == self._agent.name:
            return "approved"
        if entry.identity not in self._known and entry.identity not in self._new:
            rule = self._gates.asks_about(entry)
            if rule is None:
                self._known[entry.identity] = "approved"
            elif len(self._new) < MOST_ASKED:
                self._new[entry.identity] = self._request(entry, rule)
        return self._known.get(entry.identity, "")

    def look(self, view: View, *, only: bool) -> bool:
        """Look at what is new to the agent; return whether a person is to be asked about any of it."""
        self.only = only
        for name in view.fresh():
            found = view.mail.read(name)
            if isinstance(found, OutboxEntry) and found.is_new_to(view.reader, view.mail.named):
                self._end_of(found)
        return self.asks

    @property
    def asks(self) -> bool:
        """Whether a person is to be asked about something that is new."""
        return any(self._new.values())

    def given(self) -> dict[str, Any]:
        """Return what a turn starts from: what stands, and whom it asks about what."""
        spend = {rule.line: self._spending_question(rule.gate) for rule in self._spending}
        return {
            "asked": [it.as_json() for it in self.asked],
            "new": [*filter(None, self._new.values())],
            "spend": spend,
            "only": self.only,
        }

    def _spending_question(self, gate: Gate) -> dict[str, Any]:
        """Return whom a turn asks that wants more of a limit, and how much more: the same again."""
        mail, amounts = self._now.mail, {key: getattr(gate, key) for key in AMOUNTS}
        people = whom_to_ask(mail.persons, mail.resumes, self._agent.name, gate.persons)
        more = {key: amount for key, amount in amounts.items() if amount is not None}
        expires = {} if gate.expires is None else {"expires": gate.expires}
        return {"people": people, "more": more, **expires}

    def _request(self, entry: OutboxEntry, rule: Rule) -> dict[str, Any]:
        """Return the payload of the request about an entry, empty where nobody can be asked.

        It does not say what the entry says: others may read it.
        """
        gate, why = rule.gate, rule.gate.because or f"it is by {entry.agent}"
        held = Waiting.of_showing(self._now.tick, self._agent.name, entry.identity, rule.line, why)
        mail = self._now.mail
        people = whom_to_ask(mail.persons, mail.resumes, self._agent.name, gate.persons)
        expires = () if gate.expires is None else (gate.expires,)
        return held.request(people, expires, self._now.at) if people else {}


def review_of(now: Surroundings, agent: Agent, asked: Sequence[Asked]) -> Review | None:
    """Return which entries an agent is shown only once a person lets them in; None where no gate says so."""
    rules = rules_for(agent, now.config.org)
    of_showing = rules_at(rules, "in")
    spending = [rule for rule in rules_at(rules, "spend") if rule.gate.then == "ask"]
    if not (spending or any(rule.gate.then == "ask" for rule in of_showing)):
        return None
    return Review(now, agent, in_gates(now, agent, of_showing), asked, spending)
