"""The requests capability in a turn: answer, defer or fail the turn's request, and record open requests.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from lemming.capabilities.requests.charges import Charges
from lemming.capabilities.requests.current_request_builder import build_current_request
from lemming.capabilities.requests.request_agenda import build_agenda
from lemming.capabilities.requests.requests_settings import get_team
from lemming.capabilities.requests.team_tools import (
    TeamCalls,
    build_team_tools,
    collect_team_facts,
    fill_answer,
)
from lemming.ext import (
    AgentCheck,
    CallTool,
    Capability,
    CheckSubject,
    Effect,
    Interception,
    Interceptor,
    LemmingError,
    OrgCheck,
    Preparation,
    Problem,
    ReferenceCheck,
    SelectContext,
    ShowEarlierResult,
    TurnContext,
    TurnView,
    to_problems,
)
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.request_policy import RequestPolicy
from lemming.kernel.inboxes.turn_agenda import Agenda
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.org.capability_usage import TurnPolicy, resolve_turn_policy
from lemming.kernel.plugins.capability_table import REQUESTS
from lemming.kernel.turn.loop_breaker import loop_limits
from lemming.kernel.turn.turn_values import Purpose
from lemming.kernel.turn.visible_requests import has_answer


class RequestsCapability(Capability):
    """The requests capability, for turns with requests."""

    name = REQUESTS

    handles = (CallTool,)

    def interceptor(self, turn: TurnView) -> Interceptor:
        """Return the interceptor of calls that ask a team member or hand off the request."""
        handles = self.handles if "team" in turn.agent.extensions else ()
        return Interceptor(self.name, handles, self.facts, turn.get_cache(TeamCalls).intercept)

    def preparer(self, turn: Preparation) -> Interceptor:
        """Return the interceptor that fills in answers, and adds the tools of the team."""
        handles = (ShowEarlierResult, SelectContext)
        return Interceptor(self.name, handles, self.facts, turn.get_cache(TurnTeam).intercept)

    def prepare(self, turn: Preparation) -> Json:
        """Return the tools without a reachable target, the agents without a budget bound, and whether an answer came."""
        return turn.get_cache(TurnTeam).to_snapshot()

    def agenda(
        self, context: TurnContext, view: ReaderView, policy: TurnPolicy, request_policy: RequestPolicy
    ) -> Agenda | None:
        """Return the agent's agenda of requests."""
        return build_agenda(view, context.agent.name, context.state.requests, policy, request_policy)

    def purpose(self, context: TurnContext, task: Task) -> Purpose:
        """Return the current request of a turn, with its payload if the agent can hand the request off."""
        team = get_team(context.agent)
        can_hand_off = team is not None and bool(team.hand_to)
        agent, tick_context, request = context.agent, context.tick_context, task.request
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


class TurnTeam:
    """The team tools of one turn, and the answers that have arrived."""

    def __init__(self, turn: Preparation) -> None:
        self._turn, self._tools = turn, build_team_tools(turn.agent)
        self._task: Task | None = None
        self._has_answer = False

    def intercept(self, effect: Effect) -> Interception:
        """Fill answers into the results of earlier calls, and add the tools of the team."""
        match effect:
            case SelectContext():
                self._task, self._has_answer = effect.task, has_answer(effect, self._turn.context)
                return (yield replace(effect, tools=[*effect.tools, *self._tools.values()]))
            case ShowEarlierResult() if effect.outcomes:
                return (yield replace(effect, result=fill_answer(effect.result, effect.outcomes[-1], effect.labels)))
        return None

    def to_snapshot(self) -> Json:
        """Return the facts about the team and about an awaited answer."""
        facts = collect_team_facts(self._turn.context.tick_context, self._turn.agent, self._task, self._tools)
        return {**facts, "answered": True} if self._has_answer else facts
