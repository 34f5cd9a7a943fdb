"""The requests capability in a turn: answer, defer or fail the turn's request, and record open requests.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lemming.capabilities.requests.charges import Charges
from lemming.capabilities.requests.current_request_builder import build_current_request
from lemming.capabilities.requests.request_agenda import build_agenda
from lemming.capabilities.requests.requests_settings import get_team
from lemming.capabilities.requests.team_tools import (
    TeamCalls,
    build_team_tools,
    collect_team_facts,
    fill_answered_results,
)
from lemming.kernel.base.errors import LemmingError, Problem, TurnBroke
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.request_policy import RequestPolicy
from lemming.kernel.inboxes.turn_agenda import Agenda
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.journal.journal_records import ModelReplied, Record
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.write_offs import write_off_total
from lemming.kernel.org.capability_usage import TurnPolicy, resolve_turn_policy
from lemming.kernel.plugins.capability_table import REQUESTS
from lemming.kernel.tools import Tool
from lemming.kernel.turn.check_subjects import AgentCheck, CheckSubject, OrgCheck, ReferenceCheck, to_problems
from lemming.kernel.turn.current_request import CurrentRequest
from lemming.kernel.turn.effect_chain import Interceptor
from lemming.kernel.turn.loop_breaker import loop_limits
from lemming.kernel.turn.prompt_labels import PromptLabels
from lemming.kernel.turn.turn_effects import CallTool
from lemming.kernel.turn.turn_hooks import Capability, ContextProvider, TurnContext, VisibleContext
from lemming.kernel.turn.turn_values import Purpose, TurnInputs
from lemming.kernel.turn.turn_view import TurnView
from lemming.kernel.turn.visible_requests import has_answer


class RequestsCapability(Capability):
    """The requests capability, for turns with requests."""

    name = REQUESTS

    handles = (CallTool,)

    def interceptor(self, turn: TurnView) -> Interceptor:
        """Return the interceptor of calls that ask a team member or hand off the request."""
        handles = self.handles if "team" in turn.agent.extensions else ()
        return Interceptor(self.name, handles, self.facts, turn.get_cache(TeamCalls).intercept)

    def context_provider(self, context: TurnContext) -> ContextProvider:
        """Return the context provider: the agents available for questions, and the answers to earlier
        sub-requests.
        """
        return RequestsContextProvider(context)

    def on_turn_abandoned(
        self, state: AgentState, inputs: TurnInputs, records: Iterable[Record], error: str
    ) -> AgentState:
        """Return the state of an agent after an abandoned turn; the turn counts as a failure of its request."""
        if isinstance(inputs.task, CurrentRequest):
            replies = [record for record in records if isinstance(record, ModelReplied)]
            cost, counts = (inputs.task.sum_costs(replies, write_off_total(records)), error == TurnBroke.__name__)
            if counts or (cost and inputs.task.counts_open_budgets):
                state.requests = inputs.task.state_after_failure(
                    state.requests, cost, counts=counts, calls=len(replies)
                )
        return state

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield team members that are missing or not readable, and open requests and answers without a reader."""
        if isinstance(subject, OrgCheck):
            from lemming.capabilities.requests.requests_validation import validate_requests

            with suppress(LemmingError):  # reported elsewhere
                yield from validate_requests(subject.base, subject.only)
        elif isinstance(subject, ReferenceCheck | AgentCheck) and subject.agent and (team := get_team(subject.agent)):
            from lemming.capabilities.requests.requests_validation import validate_team, validate_team_references

            if isinstance(subject, ReferenceCheck):
                yield from to_problems(validate_team_references(subject.agent, team, subject.names))
            else:
                yield from validate_team(subject.base, subject.agent, team)


class RequestsContextProvider(ContextProvider):
    """Context provider of requests: the agents available for questions, and the outcomes of sub-requests."""

    _task: Task | None = None
    _has_answer = False

    def tools(self) -> Iterable[Tool]:
        """Return the tools to ask team members and to hand off requests."""
        return build_team_tools(self.context.agent).values()

    def agenda(self, view: ReaderView, policy: TurnPolicy, request_policy: RequestPolicy) -> Agenda | None:
        """Return the agent's agenda of requests."""
        state = self.context.state
        return build_agenda(view, self.context.agent.name, state.requests, policy, request_policy)

    def purpose(self, task: Task) -> Purpose:
        """Return the current request of a turn, with its payload if the agent can hand the request off."""
        team = get_team(self.context.agent)
        can_hand_off = team is not None and bool(team.hand_to)
        agent, tick_context, request = self.context.agent, self.context.tick_context, task.request
        # Files written by people, such as a plan, call no model.
        is_file_based = resolve_turn_policy(agent, tick_context.config).is_written
        max_calls = 0 if is_file_based else loop_limits(agent, tick_context.config.org.loops).max_calls
        if request is None or "budget" not in request.payload:
            return build_current_request(task, at=tick_context.at, can_hand_off=can_hand_off, max_calls=max_calls)
        charges = Charges(tick_context)
        budget = charges.find_budget(request, agent.name)
        charged, allotted = charges.charge_task(task, budget.unit) if budget else (0.0, 0.0)
        return build_current_request(
            task,
            at=tick_context.at,
            can_hand_off=can_hand_off,
            max_calls=max_calls,
            budget=budget,
            charged=charged,
            allotted=allotted,
        )

    def render_earlier_results(
        self, task: Task, results: Sequence[Mapping[str, Any]], labels: PromptLabels
    ) -> Sequence[Mapping[str, Any]]:
        """Return the results of earlier calls, with newly arrived answers filled in."""
        return fill_answered_results(results, task.outcomes, len(results) - len(task.open_request.results), labels)

    def adjust_context(self, visible: VisibleContext) -> VisibleContext:
        """Record the turn's task, and any awaited answer."""
        self._task, self._has_answer = visible.task, has_answer(visible, self.context)
        return visible

    def snapshot(self) -> Json:
        """Return the tools without a reachable target, the agents without a budget bound, and whether an
        answer came.
        """
        facts = collect_team_facts(self.context.tick_context, self.context.agent, self._task)
        return {**facts, "answered": True} if self._has_answer else facts
