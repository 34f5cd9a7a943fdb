"""Approvals as a capability of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.capabilities.approvals.approval_recovery import approval_mismatch, drop_used_approvals
from lemming.capabilities.approvals.entry_review import EntryReview, create_review
from lemming.capabilities.approvals.read_decisions import (
    apply_decisions,
    collect_decided_calls,
    find_approval_outcomes,
    find_preapprovals,
    list_denials,
)
from lemming.capabilities.gates.gate_evaluation import rules_at_stage
from lemming.capabilities.gates.gate_settings import find_approvers, rules_for_agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.capability_state import CallNote, StateQuery
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.request_policy import EntryLister, EntryReader, RequestOutcomes
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.journal.journal_records import Record
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.journal.person_requests import iter_person_requests
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.pending_approvals import NAME
from lemming.kernel.org.capability_usage import asks_persons
from lemming.kernel.turn.check_subjects import CheckSubject, OrgCheck
from lemming.kernel.turn.descriptions import DescribeQuery
from lemming.kernel.turn.live_effects import RunTool
from lemming.kernel.turn.prompt_labels import PromptLabels
from lemming.kernel.turn.prompt_prefix import TickContext
from lemming.kernel.turn.turn_effects import AskPerson, Interception
from lemming.kernel.turn.turn_hooks import Capability, ContextProvider, TurnContext, VisibleContext
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.kernel.turn.turn_view import TurnView

MAX_STORED_DENIALS = 256
"""Maximum number of denied calls that are remembered, the latest."""


class ApprovalsCapability(Capability):
    """Approvals for gates that say "ask"."""

    name = NAME
    can_begin = True
    describes = (CallNote,)
    handles = (AskPerson,)

    def context_provider(self, context: TurnContext) -> ContextProvider:
        """Return the context provider with decisions and new questions of a turn."""
        return ApprovalsContextProvider(context)

    def intercept(self, effect: AskPerson, turn: TurnView) -> Interception:
        """Answer for a person who has approved a call, or ask about it. The kernel asks about what is no live call."""
        if not isinstance(effect.subject, RunTool):
            return None
        from lemming.capabilities.approvals.pending_calls import CallApprovals

        return turn.live.get_cache(CallApprovals).decide(effect, effect.subject)

    def resume_blocker(self, inputs: TurnInputs, tick_context: TickContext) -> str:
        """Return the reason against calls recorded as approved, or an empty string."""
        return approval_mismatch(inputs, tick_context)

    def on_turn_abandoned(
        self, state: AgentState, inputs: TurnInputs, records: Iterable[Record], error: str
    ) -> AgentState:
        """Return the agent state after an abandoned turn, without approvals whose calls were made."""
        return drop_used_approvals(state, records)

    def describe(self, query: DescribeQuery) -> Iterator[CallNote]:
        """Yield the note about the approval of a call."""
        assert isinstance(query, StateQuery), "a note is of a call"
        by, entry = query.state["by"], query.state["entry"]
        yield CallNote(f"approved by {by}: {entry}", by, entry)

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield problems that prevent gates from asking anybody."""
        if isinstance(subject, OrgCheck):
            from lemming.capabilities.approvals.approvals_validation import validate_approvers

            yield from validate_approvers(subject.base, subject.config, subject.only)


class ApprovalsContextProvider(ContextProvider):
    """Decisions, new questions and withheld entries at the start of a turn."""

    def __init__(self, context: TurnContext) -> None:
        super().__init__(context)
        state = context.state.kept.get(NAME, {})
        self._sub_requests: Sequence[SubRequest] = [*iter_person_requests(context.state.kept)]
        self._used: Sequence[str] = state.get("used", ())
        # A denial is forgotten with its request: for another request the person is asked again.
        open_requests = {item.request for item in context.state.requests}
        self._denied: list[Json] = [item for item in state.get("denied", ()) if item["request"] in open_requests]
        self._review: EntryReview | None = create_review(context.tick_context, context.agent, self._sub_requests)
        self._decided: Json = {}

    def should_withhold(self, entry: OutboxEntry) -> bool:
        """Return True if an entry waits for a person's decision."""
        return self._review is not None and self._review.should_withhold(entry)

    def should_reject(self, entry: OutboxEntry) -> bool:
        """Return True if a person rejected an entry."""
        return self._review is not None and self._review.should_reject(entry)

    def is_preapproved(self, entry: OutboxEntry) -> bool:
        """Return True if a person approved an entry."""
        return self._review is not None and self._review.is_preapproved(entry)

    def should_wake(self, view: ReaderView, *, is_alone: bool) -> bool:
        """Return True if a new entry needs a person's decision."""
        return self._review is not None and self._review.scan_new_entries(view, only=is_alone)

    def request_outcomes(
        self, open_request: OpenRequest, read: EntryReader, entries_of: EntryLister, is_heard: Any
    ) -> RequestOutcomes:
        """Return the decisions of persons on pending actions."""
        mail = self.context.tick_context.mail
        return find_approval_outcomes(open_request, mail.tick, mail.at, read, entries_of, is_heard)

    def render_earlier_results(
        self, task: Task, results: Sequence[Mapping[str, Any]], labels: PromptLabels
    ) -> Sequence[Mapping[str, Any]]:
        """Return the results of earlier calls with the decisions of persons."""
        return apply_decisions(task, results)

    def adjust_context(self, visible: VisibleContext) -> VisibleContext:
        """Return the visible context without results of calls that run as the turn begins."""
        if visible.task is None:
            return visible
        self._denied = [*self._denied, *list_denials(visible.task)][-MAX_STORED_DENIALS:]
        prompt_style, at = self.context.model.prompt or "", self.context.tick_context.at
        self._decided, pending_indexes = collect_decided_calls(visible.task, visible.results, prompt_style, at)
        return replace(visible, pending_indexes=pending_indexes)

    def snapshot(self) -> Json:
        """Return the persons to ask by gate, the decisions and the preapprovals."""
        tick_context, agent = self.context.tick_context, self.context.agent
        rules = rules_for_agent(agent, tick_context.config.org)
        askable = {
            rule.line: find_approvers(
                tick_context.mail.persons, tick_context.mail.resumes, agent.name, rule.gate.persons
            )
            for rule in rules_at_stage(rules, "out")
            if rule.gate.then == "ask"
        }
        may_be_asked = asks_persons(agent, tick_context.config)
        if may_be_asked:  # by a capability, about anything
            mail = tick_context.mail
            askable[""] = find_approvers(mail.persons, mail.resumes, agent.name, ())
        preapprovals: list[Json] = []
        used = [*self._used]
        is_asked = any(rule.gate.then == "ask" for rule in rules_at_stage(rules, "call"))
        if used or is_asked or may_be_asked:
            preapprovals, used = find_preapprovals(tick_context.mail, agent, self._used)
        sub_requests = [item.as_json() for item in self._sub_requests]
        snapshot: Json = {"asked": sub_requests, "askable": askable, "numbered": bool(askable), "ahead": preapprovals}
        snapshot |= {"used": used, "decided": self._decided, "denied": self._denied}
        snapshot |= self._review.to_snapshot() if self._review else {}
        return {"at": tick_context.at, **{key: value for key, value in snapshot.items() if value}}
