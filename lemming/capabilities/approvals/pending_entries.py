"""Questions to persons about what a turn writes and asks: entries, and models whose limit is reached. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lemming.ext import Allowed, AskModel, AskPerson, Outcome, Rejected, Suspended, TurnView, WriteEntry, list_grants
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.open_requests import PUBLISH, SPEND, iter_person_requests
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.obligations.file_bindings import describe_changed_files
from lemming.obligations.pending_approvals import PendingAction, too_many_message


class EntryApprovals:
    """Questions of one turn. The snapshot holds the persons to ask: `askable` by gate, `spend` by limit."""

    def __init__(self, turn: TurnView) -> None:
        self._turn, self._snapshot = turn, turn.snapshot

    def decide(self, question: AskPerson) -> Outcome:
        """Return the outcome of a question: allowed if persons have approved, or suspended with a request to persons."""
        match question.subject:
            case WriteEntry() as entry:
                return self._ask_about_entry(question, entry)
            case AskModel() if "verdict" in question.facts:
                return self._ask_to_spend(question, question.facts["verdict"])
        return Rejected(f"{question.reason}: no person can be asked about this")

    def _ask_about_entry(self, question: AskPerson, entry: WriteEntry) -> Outcome:
        if question.is_answered_by(entry.grant):
            return Allowed(question)
        askable, turn = self._snapshot.get("askable", {}), self._turn
        people = askable.get(question.asked_by, askable.get("", ()))
        people = [name for name in people if question.persons is None or name in question.persons]
        # The calls of this reply have their numbers already. A turn started by 0.2.0 keeps its numbering.
        number = turn.reserve_number() if self._snapshot.get("numbered") else len(turn.results)
        identity = f"{turn.tick}/{turn.agent.name}/{number}"
        action = PendingAction.from_entry(identity, entry.new, question.asked_by, question.reason)
        if entry.grant:  # of another person, before
            keys = ("id", "by", "entry", "gate", "sha256", "binds")
            grants = [{key: item[key] for key in keys} for item in list_grants(entry.grant)]
            action = replace(action, grants=grants)
        if refusal := self._find_refusal(question, action, people):
            return refusal
        suffix = describe_changed_files(entry.facts.get("changed_files", ()))
        payload = action.build_request(people, question.expires, entry.at, suffix=suffix)
        reason = f"WAITS: {' or '.join(people)} is asked to approve it first; it is written in a later turn"
        return Suspended(question, NewEntry("request", payload, []), reason, DECISION_RULES)

    def _find_refusal(self, question: AskPerson, action: PendingAction, people: Sequence[str]) -> Suspended | None:
        """Return the outcome of an entry about which nobody is asked now, or None."""
        turn = self._turn
        if not people:
            reason = f"REFUSED: it needs approval ({action.gate}), and there is no person here who could approve it"
            return Suspended(question, reason=reason, outcome="refused")
        # The request of the turn has the decisions since.
        open_requests = {item.key: item for item in turn.inputs.state.requests}
        if turn.request:
            open_requests[turn.request.begun.key] = turn.request.begun
        earlier = (item.held for request in open_requests.values() for item in request.open_sub_requests)
        states = turn.pending_states
        pending = [state[DECISION_RULES] for state in (*earlier, *states) if DECISION_RULES in state]
        if any(item["sha256"] == action.sha256 for item in pending):
            return Suspended(question, reason="WAITS: this very entry waits for approval already; it is written once")
        max_approvals = turn.agent.turn.max_approvals
        if sum(item[DECISION_RULES]["tool"] == PUBLISH for item in states) >= max_approvals:
            return Suspended(question, reason=too_many_message(max_approvals), outcome="deferred")
        return None

    def _ask_to_spend(self, question: AskPerson, verdict: Json) -> Outcome:
        """Return the request for a raise of a limit. Pending and denied raises are not asked again."""
        line, turn = verdict["line"], self._turn
        raised = self._snapshot.get("spend", {}).get(line)
        if not raised or not raised["people"]:
            return Suspended(question)
        args = {**raised["more"], "of": verdict["about"]}
        for sub_request in iter_person_requests({DECISION_RULES: self._snapshot}):
            call = sub_request.held[DECISION_RULES]
            if (call["tool"], call["gate"], call["args"]) == (SPEND, line, args) and sub_request.end != "approved":
                return Suspended(question)
        action = PendingAction.from_limit(turn.tick, turn.agent.name, args, line, verdict["why"])
        expires = (raised["expires"],) if "expires" in raised else ()
        at, amounts = self._snapshot["at"], verdict.get("amounts")
        payload = action.build_request(raised["people"], expires, at, amounts=amounts)
        return Suspended(question, NewEntry("request", payload, []))
