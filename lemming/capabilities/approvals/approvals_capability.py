"""Approvals as a capability of the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.capabilities.approvals.approval_recovery import approval_mismatch
from lemming.capabilities.approvals.entry_review import EntryReview
from lemming.capabilities.approvals.read_decisions import (
    apply_decision,
    collect_decided_calls,
    find_preapprovals,
    list_denials,
)
from lemming.capabilities.gates.gate_evaluation import rules_at_stage
from lemming.capabilities.gates.gate_settings import find_approvers, rules_for_agent
from lemming.ext import (
    AskPerson,
    CallNote,
    Capability,
    CheckSubject,
    DescribeQuery,
    Effect,
    Interception,
    Interceptor,
    OrgCheck,
    Preparation,
    Problem,
    ReceiveEntry,
    ResumeCheck,
    RunTool,
    SelectContext,
    ShowEarlierResult,
    ShowEntry,
    StateQuery,
    TurnView,
    Wake,
)
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.journal.open_requests import SubRequest, iter_person_requests
from lemming.kernel.obligations.pending_approvals import NAME
from lemming.kernel.org.capability_usage import asks_persons

MAX_STORED_DENIALS = 256
"""Maximum number of denied calls that are remembered, the latest."""


class ApprovalsCapability(Capability):
    """Approvals for gates that say "ask"."""

    name = NAME
    can_begin = True
    describes = (CallNote,)
    handles = (AskPerson,)

    def due(self, turn: Preparation) -> Iterator[Wake]:
        """Yield a reason for a turn: a person must be asked about a new entry."""
        review = turn.get_cache(TurnApprovals).review
        if review.is_needed:
            yield Wake(review.has_new_requests)

    def preparer(self, turn: Preparation) -> Interceptor:
        """Return the interceptor that asks persons about entries, and shows decisions about earlier calls."""
        handles = (ReceiveEntry, AskPerson, ShowEntry, ShowEarlierResult, SelectContext)
        return Interceptor(self.name, handles, self.facts, turn.get_cache(TurnApprovals).intercept)

    def prepare(self, turn: Preparation) -> Json:
        """Return the persons to ask by gate, the decisions and the preapprovals."""
        return turn.get_cache(TurnApprovals).to_snapshot()

    def intercept(self, effect: AskPerson, turn: TurnView) -> Interception:
        """Answer for a person who has approved a call, or ask about it. The kernel asks about what is no live call."""
        if not isinstance(effect.subject, RunTool):
            return None
        from lemming.capabilities.approvals.pending_calls import CallApprovals

        return turn.live.get_cache(CallApprovals).decide(effect, effect.subject)

    def describe(self, query: DescribeQuery) -> Iterator[CallNote]:
        """Yield the note about the approval of a call."""
        assert isinstance(query, StateQuery), "a note is of a call"
        by, entry = query.state["by"], query.state["entry"]
        yield CallNote(f"approved by {by}: {entry}", by, entry)

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield problems that prevent gates from asking anybody, and calls recorded as approved that are not."""
        if isinstance(subject, OrgCheck):
            from lemming.capabilities.approvals.approvals_validation import validate_approvers

            yield from validate_approvers(subject.base, subject.config, subject.only)
        elif isinstance(subject, ResumeCheck) and (reason := approval_mismatch(subject.inputs, subject.tick_context)):
            yield Problem(reason)


class TurnApprovals:
    """Decisions, new questions and withheld entries of one turn."""

    def __init__(self, turn: Preparation) -> None:
        self._turn, state = turn, turn.state
        self._sub_requests: Sequence[SubRequest] = [*iter_person_requests(turn.context.state.kept)]
        self._used: Sequence[str] = state.get("used", ())
        # A denial is forgotten with its request: for another request the person is asked again.
        open_requests = {item.request for item in turn.context.state.requests}
        self._denied: list[Json] = [item for item in state.get("denied", ()) if item["request"] in open_requests]
        self._decided: Json = {}
        self.review = EntryReview(turn, self._sub_requests)

    def intercept(self, effect: Effect) -> Interception:
        """Pass entries that a person approved, ask about others, and show decisions about earlier calls."""
        match effect:
            case ReceiveEntry(entry=entry) | ShowEntry(entry=entry) if self.review.find_decision(entry) == "approved":
                return (yield replace(effect, is_approved=True))
            case ReceiveEntry(entry=entry):
                return self.review.review(entry)
            case AskPerson(subject=ReceiveEntry(entry=entry)):
                return self.review.ask(effect, entry)
            case ShowEarlierResult() if effect.outcomes:
                return (yield replace(effect, result=apply_decision(effect.result, effect.outcomes)))
            case SelectContext() if effect.task is not None:
                return (yield replace(effect, pending_indexes=self._collect_decisions(effect.task, effect.results)))
        return None

    def _collect_decisions(self, task: Task, results: Sequence[Mapping[str, Any]]) -> Collection[int]:
        """Note the decisions about calls of a request; return the indexes of results that come as the turn begins."""
        self._denied = [*self._denied, *list_denials(task)][-MAX_STORED_DENIALS:]
        self._decided, pending_indexes = collect_decided_calls(
            task, results, self._turn.model.prompt or "", self._turn.at
        )
        return pending_indexes

    def to_snapshot(self) -> Json:
        """Return the persons to ask by gate, the decisions and the preapprovals."""
        tick_context, agent = self._turn.context.tick_context, self._turn.agent
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
        snapshot |= self.review.to_snapshot() if self.review.is_needed else {}
        return {"at": tick_context.at, **{key: value for key, value in snapshot.items() if value}}
