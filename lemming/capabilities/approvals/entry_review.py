"""Entries that wait for a review: the agent sees them after a person's approval (docs/approvals.md).

A gate at "in" that says "ask" withholds an entry. Nobody is asked twice about an entry; the decision stays in
the agent's ledger as long as the entry exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lemming.capabilities.approvals.read_decisions import refresh_sub_requests
from lemming.capabilities.gates.gate_evaluation import rules_at_stage
from lemming.capabilities.gates.gate_format import Gate
from lemming.capabilities.gates.gate_settings import find_approvers, rules_for_agent
from lemming.capabilities.gates.spending_limit import AMOUNTS
from lemming.ext import Allowed, AskPerson, Deferred, Outcome, Preparation, Rejected
from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.journal.person_requests import SHOW
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.pending_approvals import NAME, PendingAction
from lemming.kernel.org.capability_usage import asks_persons

MAX_REVIEW_REQUESTS = 16
"""Approximate maximum of new requests in a turn; the next turn asks about the rest."""


class EntryReview:
    """Entries that an agent may see, and entries that need a person's decision.

    `sub_requests`: requests of earlier turns; kept in their current state.
    """

    def __init__(self, turn: Preparation, sub_requests: Sequence[SubRequest]) -> None:
        self._turn, self._mail = turn, turn.context.tick_context.mail
        config = turn.context.tick_context.config
        rules = rules_for_agent(turn.agent, config.org)
        self._spending = [rule for rule in rules_at_stage(rules, "spend") if rule.gate.then == "ask"]
        has_gate = bool(self._spending) or any(rule.gate.then == "ask" for rule in rules_at_stage(rules, "in"))
        self.is_needed = has_gate or asks_persons(turn.agent, config)
        """True if a gate asks about entries or spending, or a plugin's capability may ask."""
        self.sub_requests: Sequence[SubRequest] = ()
        self._decisions: dict[str, str] = {}
        self._new_requests: dict[str, dict[str, Any]] = {}
        if self.is_needed:
            self.sub_requests = refresh_sub_requests(self._mail, turn.agent, sub_requests)
        for sub_request in self.sub_requests:
            if sub_request.held[NAME]["tool"] == SHOW:
                entry = sub_request.held[NAME]["args"]["entry"]
                self._decisions[entry] = sub_request.end or self._decisions.get(entry, "")

    def find_decision(self, entry: OutboxEntry) -> str | None:
        """Return "approved", "denied", an empty string while a person has to decide, or None if nobody was asked."""
        return self._decisions.get(entry.identity)

    def review(self, entry: OutboxEntry) -> Outcome | None:
        """Return the outcome of receiving an entry that a person was asked about earlier, else None."""
        match self.find_decision(entry):
            case "denied":
                return Rejected("a person rejected the entry")
            case "":
                return Deferred("a person must approve the entry first")
        return None

    def ask(self, question: AskPerson, entry: OutboxEntry) -> Outcome:
        """Return the outcome of a gate's question about an entry: allowed, rejected, or deferred with a new request."""
        if self.find_decision(entry) == "approved":
            return Allowed(question)
        # Without room for a request the entry stays withheld until the next turn asks.
        if entry.identity not in self._new_requests and len(self._new_requests) < MAX_REVIEW_REQUESTS:
            self._new_requests[entry.identity] = self._build_request(entry, question)
        return Deferred("a person must approve the entry first")

    def has_new_requests(self) -> bool:
        """Return True if a person must be asked about a new entry."""
        return any(self._new_requests.values())

    def to_snapshot(self) -> dict[str, Any]:
        """Return the snapshot for a turn: current requests, new requests, persons to ask.

        `only`: there is no other reason for the turn.
        """
        spending_requests = {rule.line: self._spending_request(rule.gate) for rule in self._spending}
        return {
            "asked": [sub_request.as_json() for sub_request in self.sub_requests],
            "new": [*filter(None, self._new_requests.values())],
            "spend": spending_requests,
            "only": not self._turn.has_news,
        }

    def _spending_request(self, gate: Gate) -> dict[str, Any]:
        """Return the persons to ask for a raise of a limit, and the raise: the same amount again."""
        mail, amounts = self._mail, {key: getattr(gate, key) for key in AMOUNTS}
        people = find_approvers(mail.persons, mail.resumes, self._turn.agent.name, gate.persons)
        raises = {key: amount for key, amount in amounts.items() if amount is not None}
        expires = {} if gate.expires is None else {"expires": gate.expires}
        return {"people": people, "more": raises, **expires}

    def _build_request(self, entry: OutboxEntry, question: AskPerson) -> dict[str, Any]:
        """Return the payload of the request about an entry, or {} if nobody can be asked.

        The payload omits the entry's text, because others may read the request.
        """
        name, mail = self._turn.agent.name, self._mail
        action = PendingAction.from_incoming_entry(
            self._turn.tick, name, entry.identity, question.asked_by, question.reason
        )
        people = find_approvers(mail.persons, mail.resumes, name, question.persons or ())
        return action.build_request(people, question.expires, self._turn.at) if people else {}
