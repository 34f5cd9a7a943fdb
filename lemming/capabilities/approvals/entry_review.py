"""Entries that wait for a review: the agent sees them after a person's approval (docs/approvals.md).

A gate at "in" that says "ask" withholds an entry. Nobody is asked twice about an entry; the decision stays in
the agent's ledger as long as the entry exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lemming.capabilities.approvals.read_decisions import refresh_sub_requests
from lemming.capabilities.gates.gate_evaluation import rules_at_stage
from lemming.capabilities.gates.gate_format import Gate, GateRule
from lemming.capabilities.gates.gate_settings import find_approvers, rules_for_agent
from lemming.capabilities.gates.input_gates import InputGates, make_input_gates
from lemming.capabilities.gates.spending_limit import AMOUNTS
from lemming.kernel.agents import Agent
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.journal.open_requests import SubRequest
from lemming.kernel.journal.person_requests import SHOW
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.pending_approvals import NAME, PendingAction
from lemming.kernel.turn.prompt_prefix import TickContext

MAX_REVIEW_REQUESTS = 16
"""Approximate maximum of new requests in a turn; the next turn asks about the rest."""


class EntryReview:
    """Entries that an agent may see, and entries that need a person's decision.

    `sub_requests`: requests of earlier turns in their current state. `only`: there is no other reason for a
    turn.
    """

    def __init__(
        self,
        tick_context: TickContext,
        agent: Agent,
        gates: InputGates,
        sub_requests: Sequence[SubRequest],
        spending: Sequence[GateRule] = (),
    ) -> None:
        self._spending = spending
        self._tick_context, self._agent, self._gates = tick_context, agent, gates
        self.sub_requests = refresh_sub_requests(tick_context.mail, agent, sub_requests)
        self._decisions: dict[str, str] = {}
        for sub_request in self.sub_requests:
            if sub_request.held[NAME]["tool"] == SHOW:
                entry = sub_request.held[NAME]["args"]["entry"]
                self._decisions[entry] = sub_request.end or self._decisions.get(entry, "")
        self._new_requests: dict[str, dict[str, Any]] = {}
        self.only = False

    def should_withhold(self, entry: OutboxEntry) -> bool:
        """Return True if an entry waits for a person's decision."""
        return self._review_status(entry) == ""

    def should_reject(self, entry: OutboxEntry) -> bool:
        """Return True if a person rejected an entry."""
        return self._review_status(entry) == "denied"

    def is_preapproved(self, entry: OutboxEntry) -> bool:
        """Return True if a person approved an entry."""
        return self._decisions.get(entry.identity) == "approved"

    def _review_status(self, entry: OutboxEntry) -> str:
        if entry.agent == self._agent.name:
            return "approved"
        if entry.identity not in self._decisions and entry.identity not in self._new_requests:
            rule = self._gates.find_approval_gate(entry)
            if rule is None:
                self._decisions[entry.identity] = "approved"
            # Without room for a request the entry stays withheld until the next turn asks.
            elif len(self._new_requests) < MAX_REVIEW_REQUESTS:
                self._new_requests[entry.identity] = self._build_request(entry, rule)
        return self._decisions.get(entry.identity, "")

    def scan_new_entries(self, view: ReaderView, *, only: bool) -> bool:
        """Scan the agent's new entries; return True if a person must be asked about an entry."""
        self.only = only
        for name in view.iter_unread():
            entry = view.mail.read(name)
            if isinstance(entry, OutboxEntry) and entry.is_news_to_reader(view.reader, view.mail.known_names):
                self._review_status(entry)
        return self.has_new_requests

    @property
    def has_new_requests(self) -> bool:
        """True if a person must be asked about a new entry."""
        return any(self._new_requests.values())

    def to_snapshot(self) -> dict[str, Any]:
        """Return the snapshot for a turn: current requests, new requests, persons to ask."""
        spending_requests = {rule.line: self._spending_request(rule.gate) for rule in self._spending}
        return {
            "asked": [sub_request.as_json() for sub_request in self.sub_requests],
            "new": [*filter(None, self._new_requests.values())],
            "spend": spending_requests,
            "only": self.only,
        }

    def _spending_request(self, gate: Gate) -> dict[str, Any]:
        """Return the persons to ask for a raise of a limit, and the raise: the same amount again."""
        mail, amounts = self._tick_context.mail, {key: getattr(gate, key) for key in AMOUNTS}
        people = find_approvers(mail.persons, mail.resumes, self._agent.name, gate.persons)
        raises = {key: amount for key, amount in amounts.items() if amount is not None}
        expires = {} if gate.expires is None else {"expires": gate.expires}
        return {"people": people, "more": raises, **expires}

    def _build_request(self, entry: OutboxEntry, rule: GateRule) -> dict[str, Any]:
        """Return the payload of the request about an entry, or {} if nobody can be asked.

        The payload omits the entry's text, because others may read the request.
        """
        gate, reason = rule.gate, rule.gate.because or f"it is by {entry.agent}"
        action = PendingAction.from_incoming_entry(
            self._tick_context.tick, self._agent.name, entry.identity, rule.line, reason
        )
        mail = self._tick_context.mail
        people = find_approvers(mail.persons, mail.resumes, self._agent.name, gate.persons)
        expires = () if gate.expires is None else (gate.expires,)
        return action.build_request(people, expires, self._tick_context.at) if people else {}


def create_review(tick_context: TickContext, agent: Agent, sub_requests: Sequence[SubRequest]) -> EntryReview | None:
    """Return the review of an agent's entries, or None if no gate asks."""
    rules = rules_for_agent(agent, tick_context.config.org)
    input_rules = rules_at_stage(rules, "in")
    spending = [rule for rule in rules_at_stage(rules, "spend") if rule.gate.then == "ask"]
    if not (spending or any(rule.gate.then == "ask" for rule in input_rules)):
        return None
    return EntryReview(tick_context, agent, make_input_gates(tick_context, agent, input_rules), sub_requests, spending)
