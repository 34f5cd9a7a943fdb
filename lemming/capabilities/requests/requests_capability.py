"""The requests capability in a turn: answer, defer or fail the turn's request, and record open requests. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lemming.capabilities.requests.charges import Charges
from lemming.capabilities.requests.request_end import RequestEnd
from lemming.capabilities.requests.requests_settings import TeamSettings, get_team
from lemming.capabilities.requests.team_tools import (
    TeamCalls,
    build_team_tools,
    fill_answer,
    find_unbounded_agents,
    find_unreachable_members,
)
from lemming.ext import (
    AgentSubject,
    BuildPrompt,
    CallTool,
    Capability,
    CheckSubject,
    Effect,
    EndTurn,
    Interception,
    Interceptor,
    LemmingError,
    Preparation,
    Problem,
    SelectContext,
    ShowEarlierResult,
    TurnContext,
    TurnView,
    make_warning,
)
from lemming.kernel.agents import suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.json_schema.schema_violations import find_schema_flaw
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.turn_agenda import Task
from lemming.kernel.obligations.current_request import OWN_REQUESTS, CurrentRequest
from lemming.kernel.obligations.request_payloads import get_count, get_last_tick, parse_deadline_time, parse_reference
from lemming.kernel.org.capability_usage import resolve_turn_policy
from lemming.kernel.plugins.capability_table import REQUEST_RULES
from lemming.kernel.turn.loop_breaker import loop_limits, select_request_counts
from lemming.obligations.org_requests import load_requests


class RequestsCapability(Capability):
    """The requests capability, for turns with requests."""

    name = REQUEST_RULES

    handles = (ShowEarlierResult, SelectContext, BuildPrompt, CallTool, EndTurn)

    def interceptor(self, turn: Preparation | TurnView) -> Interceptor:
        """Return the interceptor of an agent, which has calls of team tools if it has a team."""
        handles = [kind for kind in self.handles if kind is not CallTool or "team" in turn.agent.extensions]
        return super().interceptor(turn)._replace(handles=handles)

    def intercept(self, effect: Any, turn: Preparation | TurnView) -> Interception:
        """Carry out calls of the team's tools, and answer the requests of the turn at its end."""
        if isinstance(turn, Preparation):
            return turn.get_cache(TurnTeam).intercept(effect)
        if isinstance(effect, EndTurn):
            return turn.get_cache(RequestEnd).intercept(effect)
        return turn.get_cache(TeamCalls).intercept(effect)

    def prepare(self, turn: Preparation) -> Json:
        """Return the tools without a reachable target, the agents without a budget bound, and whether an answer came."""
        return turn.get_cache(TurnTeam).to_snapshot()


class TurnTeam:
    """The request and the team tools of a turn, and the answers so far."""

    def __init__(self, turn: Preparation) -> None:
        self._turn, self._tools = turn, build_team_tools(turn.agent)
        self._task: Task | None = None
        self._has_answer = False

    def intercept(self, effect: Effect) -> Interception:
        """Fill answers into the results of earlier calls, and add the tools of the team and the current request."""
        match effect:
            case SelectContext():
                self._task, self._has_answer = effect.task, _has_answer(effect, self._turn.context)
                return (yield replace(effect, tools=[*effect.tools, *self._tools.values()]))
            case ShowEarlierResult() if effect.outcomes:
                return (yield replace(effect, result=fill_answer(effect.result, effect.outcomes[-1], effect.labels)))
            case BuildPrompt(selected=SelectContext(task=Task() as task)):
                return (yield replace(effect, request=_make_current_request(self._turn.context, task)))
        return None

    def to_snapshot(self) -> Json:
        """Return the facts about the team and about an awaited answer."""
        tick_context, agent, task = self._turn.context.tick_context, self._turn.agent, self._task
        facts: Json = {
            "out_of_reach": find_unreachable_members(tick_context, agent, task, self._tools),
            "beyond_budget": find_unbounded_agents(tick_context, agent, task),
            "answered": self._has_answer,
        }
        return {key: fact for key, fact in facts.items() if fact}


def _make_current_request(context: TurnContext, task: Task) -> CurrentRequest:
    """Return the current request of a turn, with its payload if the agent can hand the request off."""
    agent, tick_context, begun = context.agent, context.tick_context, task.open_request
    if task.request is None:
        return replace(OWN_REQUESTS, begun=begun)
    payload, team, budget, charged, allotted = task.request.payload, get_team(agent), None, 0.0, 0.0
    if "budget" in payload:
        charges = Charges(tick_context)
        if budget := charges.find_budget(task.request, agent.name):
            charged, allotted = charges.charge_task(task, budget.unit)
    # Files written by people, such as a plan, call no model.
    is_file_based = resolve_turn_policy(agent, tick_context.config).is_written
    conversation, is_handoff = payload.get("conversation"), "hands_on" in payload
    return CurrentRequest(
        request=begun.request,
        asker=parse_reference(payload.get("owed_to")) if is_handoff else task.request.agent,
        begun=begun,
        until=get_last_tick(task.request),
        not_after=parse_deadline_time(payload),
        conversation=conversation if isinstance(conversation, str) else "",
        reply_to=parse_reference(payload["hands_on"]) if is_handoff else "",
        hops=get_count(payload, "hops") or 1 if is_handoff else 0,
        path=tuple(task.path),
        asked=payload if team is not None and team.hand_to else None,
        budget=budget.number if budget else None,
        unit=budget.unit if budget else "credits",
        spent=round(begun.spent + charged, 6),
        allotted=round(allotted, 6) if budget else None,
        at=tick_context.at,
        max_calls=0 if is_file_based else loop_limits(agent, tick_context.config.org.loops).max_calls,
    )


def _has_answer(selected: SelectContext, context: TurnContext) -> bool:
    """Return True if a repeatedly asking agent is shown a possible answer.

    A model without a turn for the request answers with any kind of entry, and may omit the target.
    """
    if not (context.state.loops and select_request_counts(context.state.loops)):
        return False
    name = context.agent.name
    payloads = [item.answer_payload for item in selected.task.outcomes] if selected.task else []
    relevant_entries = (item for item in selected.inbox.unread if item.kind not in ("request", "status"))
    payloads += [item.payload for item in relevant_entries if not item.targets or name in item.targets]
    return any(payload is not None and payload.get("status") != "failed" for payload in payloads)


def find_request_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield a warning for each missing permission of an open request, and for each unusable schema."""
    try:
        org_requests, agent_name = load_requests(subject.org), subject.only
    except LemmingError:  # reported elsewhere
        return
    for request in org_requests.requests.unresolved_requests:
        flaw, pointer = find_schema_flaw(request.schema or {})
        if flaw and agent_name in (None, request.asker):
            message = f"the schema of the request accepts any answer: {flaw}"
            hint = f"cancel it with `lemming cancel {request.id}`, and ask again with a valid schema"
            yield make_warning(message, f"/payload/schema{pointer}", hint, request.entry.file, "LMG-301")
    missing: dict[tuple[str, str], tuple[str, str]] = {}
    for request in org_requests.requests.unresolved_requests:
        for assignment in request.open_assignments:
            asker, assignee = request.asker, assignment.assignee
            topic = f"what {asker} asks {assignee} ({request.id})"
            for pair, message in (
                ((assignee, asker), f"{topic} does not reach it"),
                ((asker, assignee), f"no answer to {topic} reaches it"),
            ):
                if not org_requests.may_read(*pair):
                    missing.setdefault(pair, (request.id, message))
    for (reader, author), (request_id, message) in missing.items():
        if reader in org_requests.agents and agent_name in (None, reader):
            hint = f'add "{author}" to its read_outboxes, or run `lemming cancel {request_id}`'
            pointer = "/permissions/read_outboxes"
            yield make_warning(message, pointer, hint, paths.resume_file(reader), "LMG-301")


def iter_team_members(team: TeamSettings | None) -> Iterator[tuple[str, str, bool]]:
    """Yield each team member: the pointer to the name, the name, and True if an answer must come back."""
    for index, member in enumerate(team.ask_members if team else ()):
        yield f"/team/ask/{index}", member.agent, True
    for index, name in enumerate(team.hand_to if team else ()):
        yield f"/team/hand_to/{index}", name, False


def find_team_typos(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the names that can never be in an agent's team."""
    agent, agent_names, team = subject.agent, subject.names.agent_names, get_team(subject.agent)
    for pointer, name, _ in iter_team_members(team):
        if name == agent.name:
            yield Problem("an agent must not be in its own team", pointer=pointer, hint="remove it")
        elif team and name not in agent_names and not team.may_be_absent:
            hint = f'{suggest_agent(name, agent_names)}; set "may_be_absent": true if you create it later'
            yield Problem(f'there is no agent "{name}"', pointer=pointer, hint=hint)


def find_team_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the problems of an agent's team: the agent and each member must be able to read each other."""
    agent, agents = subject.agent, survey_agents(subject.org).agents
    for pointer, name, needs_answer in iter_team_members(get_team(agent)):
        if name not in agents or name == agent.name:
            continue
        readers = [(agents[name], agent), (agent, agents[name])] if needs_answer else [(agents[name], agent)]
        for reader, author in readers:
            if not reader.may_read(author.name):
                hint = f'add "{author.name}" to read_outboxes in {paths.resume_file(reader.name)}'
                messages = "the requests" if author is agent else "the answers"
                yield Problem(f"{reader.name} may not read {messages}", pointer=pointer, hint=hint)
