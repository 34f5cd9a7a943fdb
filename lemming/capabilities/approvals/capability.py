"""Approvals, as the engine knows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.capabilities.approvals.decisions import (
    approved_ahead,
    decided_in,
    ends_of,
    list_denials,
    results_with_decisions,
)
from lemming.capabilities.approvals.journals import why_not_approved, without_made
from lemming.capabilities.approvals.review import Review, review_of
from lemming.capabilities.approvals.waiting import NAME, SPEND, decision_in, require_waiting
from lemming.capabilities.gates.keys import rules_for, whom_to_ask
from lemming.capabilities.gates.looking import rules_at
from lemming.capabilities.requests.view import RequestView
from lemming.kernel.base.errors import Problem
from lemming.kernel.files.documents import value_of
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Asked, Begun
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.records import Record, ToolFinished
from lemming.kernel.mail.capability_notes import CallNote, WaitingForPerson
from lemming.kernel.mail.holds import Ends, EntriesOf, Read
from lemming.kernel.mail.task import Task
from lemming.kernel.mail.visibility import View
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.labels import Labels
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import Holder
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing, TurnPart
from lemming.kernel.turn.values import TurnInputs

MOST_DENIED = 256
"""So many calls that persons denied are remembered, the latest."""


class Approvals(Capability):
    """Approvals: what gates say that say "ask"."""

    name = NAME

    def prepare(self, moment: Moment) -> Preparation:
        """Return what is decided, and what is to be asked, as a turn begins."""
        return ApprovalsPreparation(moment)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return approvals in a turn."""
        from lemming.capabilities.approvals.part import ApprovalsPart

        return ApprovalsPart(self.name, draft, given)

    def holder(self, now: Surroundings, inputs: TurnInputs, finished: Mapping[int, ToolFinished]) -> Holder:
        """Return who says what becomes of calls that a gate asks about."""
        from lemming.capabilities.approvals.held_calls import CallApprovals

        return CallApprovals(now, inputs, finished)

    def why_not(self, inputs: TurnInputs, now: Surroundings) -> str:
        """Return why a turn that was begun may not make the calls that its record says were approved."""
        return why_not_approved(inputs, now)

    def given_up(
        self, state: AgentState, inputs: TurnInputs, records: Iterable[Record], error: str
    ) -> AgentState:
        """Return the state of an agent whose turn is given up: what was approved and made is used up."""
        return without_made(state, records)

    def require_kept(self, kept: Json) -> None:
        """Raise `ValueError` for what was not kept of what was asked beside calls, and of what was used."""
        used = kept.get("used", [])
        if not (isinstance(used, list) and all(isinstance(it, str) for it in used)):
            raise ValueError("kept/approvals/used: it is a list of entries")
        if not isinstance(kept.get("asked", []), list):
            raise ValueError("kept/approvals/asked: it is a list")
        denied, texts = kept.get("denied", []), ("request", "id", "sha256", "by", "reason")
        if not isinstance(denied, list) or not all(_is_denied(it, texts) for it in denied):
            raise ValueError("kept/approvals/denied: it is a list of calls that were denied")
        for asked in self.asked(kept):
            self.require_held(asked.held.get(NAME, {}))

    def require_held(self, held: Json) -> None:
        """Raise `ValueError` for what is nothing that waits for a person."""
        require_waiting(held)

    def asked(self, kept: Json) -> Sequence[Asked]:
        """Return what an agent asked persons beside calls."""
        return [value_of(Asked, plain) for plain in kept.get("asked", ())]

    def raises(self, kept: Json, line: str) -> Mapping[str, Json]:
        """Return by how much persons raised the limit of a gate, by the request that asked for it."""
        found = ((it, it.held[NAME]) for it in self.asked(kept))
        return {
            it.request: call["args"]
            for it, call in found
            if (call["tool"], call["gate"], it.end) == (SPEND, line, "approved")
        }

    def decides(self, payload: Mapping[str, Any]) -> bool:
        """Return whether the payload of a response decides about what waits."""
        return decision_in(payload) is not None

    def waiting(self, org: Organisation, requests: Iterable[RequestView]) -> Mapping[str, WaitingForPerson]:
        """Return the calls that wait for persons, of these requests, by the request's identity."""
        from lemming.capabilities.approvals.waiting_calls import waiting_for_persons

        return waiting_for_persons(org, requests)

    def note(self, kept: Json) -> CallNote:
        """Return by whose word a call was made."""
        return CallNote(f"approved by {kept['by']}: {kept['entry']}", kept["by"], kept["entry"])

    def problems_of_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield what keeps gates from asking anybody."""
        from lemming.capabilities.approvals.problems import problems_of_asking

        yield from problems_of_asking(base, config, only)


def _is_denied(plain: object, texts: Iterable[str]) -> bool:
    is_sound = isinstance(plain, dict) and isinstance(plain.get("binds"), dict)
    return is_sound and isinstance(plain, dict) and all(isinstance(plain.get(key), str) for key in texts)


class ApprovalsPreparation(Preparation):
    """What is decided, what is to be asked, and what waits until then, as a turn begins."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        kept = moment.state.kept.get(NAME, {})
        self._asked: Sequence[Asked] = [value_of(Asked, plain) for plain in kept.get("asked", ())]
        self._used: Sequence[str] = kept.get("used", ())
        begun = {it.request for it in moment.state.requests}
        self._denied: list[Json] = [it for it in kept.get("denied", ()) if it["request"] in begun]
        self._review: Review | None = review_of(moment.now, moment.agent, self._asked)
        self._decided: Json = {}

    def withholds(self, entry: OutboxEntry) -> bool:
        """Return whether an entry waits until a person lets it in."""
        return self._review is not None and self._review.withholds(entry)

    def is_refused(self, entry: OutboxEntry) -> bool:
        """Return whether a person did not let an entry in."""
        return self._review is not None and self._review.is_refused(entry)

    def lets_in(self, entry: OutboxEntry) -> bool:
        """Return whether a person let an entry in."""
        return self._review is not None and self._review.lets_in(entry)

    def wakes(self, view: View, *, is_alone: bool) -> bool:
        """Return whether a person is to be asked about something that is new."""
        return self._review is not None and self._review.look(view, only=is_alone)

    def ends(self, begun: Begun, read: Read, entries_of: EntriesOf, is_heard: Any) -> Ends:
        """Return what persons decided about what waits."""
        mail = self.moment.now.mail
        return ends_of(begun, mail.tick, mail.at, read, entries_of, is_heard)

    def earlier_results(
        self, task: Task, results: Sequence[Mapping[str, Any]], labels: Labels
    ) -> Sequence[Mapping[str, Any]]:
        """Return the results of earlier calls, as they were decided about."""
        return results_with_decisions(task, results)

    def shows(self, shown: Showing) -> Showing:
        """Return what the turn is shown, without the results of calls that are made as it begins."""
        if shown.task is None:
            return shown
        self._denied = [*self._denied, *list_denials(shown.task)][-MOST_DENIED:]
        form, at = self.moment.model.prompt or "", self.moment.now.at
        self._decided, to_come = decided_in(shown.task, shown.results, form, at)
        return replace(shown, to_come=to_come)

    def given(self) -> Json:
        """Return whom the turn may ask about what, and what was decided."""
        now, agent = self.moment.now, self.moment.agent
        rules = rules_for(agent, now.config.org)
        askable = {
            rule.line: whom_to_ask(now.mail.persons, now.mail.resumes, agent.name, rule.gate.persons)
            for rule in rules_at(rules, "out")
            if rule.gate.then == "ask"
        }
        ahead: list[Json] = []
        used = [*self._used]
        if used or any(rule.gate.then == "ask" for rule in rules_at(rules, "call")):
            ahead, used = approved_ahead(now.mail, agent, self._used)
        asked = [it.as_json() for it in self._asked]
        found: Json = {"asked": asked, "askable": askable, "numbered": bool(askable), "ahead": ahead}
        found |= {"used": used, "decided": self._decided, "denied": self._denied}
        found |= self._review.given() if self._review else {}
        return {"at": now.at, **{key: value for key, value in found.items() if value}}
