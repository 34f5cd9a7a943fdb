"""Team tools of a turn: ask members and hand off requests (`team` in the resume). Rules: docs/requests.md.

The calls run no code: a turn stages an entry for each call, and a later turn has the answer as the call's result.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from lemming.capabilities.requests.request_agenda import accepts_requests
from lemming.capabilities.requests.requests_settings import get_team
from lemming.ext import (
    PLAIN,
    Allowed,
    CallTool,
    Interception,
    NewEntry,
    PromptLabels,
    Rejected,
    TickContext,
    TurnView,
    describe_field,
    render_result,
)
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.inboxes.answer_payload import ENVELOPE
from lemming.kernel.inboxes.turn_agenda import RequestOutcome, Task
from lemming.kernel.obligations.current_request import OWN_REQUESTS
from lemming.kernel.obligations.request_payloads import get_budget, parse_reference
from lemming.kernel.org.capability_usage import resolve_turn_policy
from lemming.kernel.org.resume import Agent
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.turn.tool_results import RESULTS_CHARS
from lemming.obligations.request_view import describe_deadline


class TeamTool(Tool):
    """A tool with calls turned into entries to `target`."""

    target: str
    is_handoff: bool
    tool_class = "write"
    is_independent = True


class _AskTool(TeamTool):
    is_handoff = False

    def execute(
        self,
        agent_name: str,
        base_path: Path,
        message: str,
        deadline: Annotated[int | None, describe_field("In so many ticks.")] = None,
        wait: Annotated[Literal["all", "first"] | int | None, describe_field("For all, the first, or so many.")] = None,
    ) -> ToolResult:
        """Raise `ToolError`: only a turn can wait for an answer."""
        raise ToolError(f"{self.name} can be called in a turn only")


class _HandOffTool(TeamTool):
    is_handoff = True

    def execute(self, agent_name: str, base_path: Path, message: str) -> ToolResult:
        """Raise `ToolError`: only a turn has a request to hand off."""
        raise ToolError(f"{self.name} can be called in a turn only")


_HOW = "The answer comes in a later turn."


def build_team_tools(agent: Agent) -> dict[str, TeamTool]:
    """Return the tools of an agent to ask team members and to hand off requests, by name."""
    team = get_team(agent)
    if team is None:
        return {}
    tools: dict[str, TeamTool] = {}
    for member in team.ask_members:
        description = member.description or f"Ask {member.agent}."
        tools[f"ask_{member.name}"] = _make_tool(_AskTool, f"ask_{member.name}", f"{description} {_HOW}", member.agent)
    for name in team.hand_to:
        text = f"Hand what you were asked on to {name}, who answers it in your place. Nothing after it is done."
        tools[f"hand_to_{name}"] = _make_tool(_HandOffTool, f"hand_to_{name}", text, name)
    return tools


def _make_tool(base_class: type[TeamTool], name: str, description: str, target: str) -> TeamTool:
    attributes = {"name": name, "description": description, "target": target}
    tool: type[TeamTool] = type(base_class.__name__, (base_class,), attributes)
    return tool()


CALL_AGAIN = "\n(Call it again with the same arguments: it goes on with this answer.)"


def fill_answer(result: Mapping[str, Any], outcome: RequestOutcome, labels: PromptLabels = PLAIN) -> Mapping[str, Any]:
    """Return the result of an asking call, with the answer if already there."""
    rendered = render_result(result["tool"], result["args"], _to_tool_result(outcome))
    # With the trust label of the original call: the label of the asking turn.
    label = {"trust": result["trust"]} if "trust" in result else {}
    return labels.label_outcome(outcome, {**rendered, **label})


def _to_tool_result(outcome: RequestOutcome) -> ToolResult:
    """Return the outcome of a sub-request as a tool result."""
    text, end = answer_text(outcome.answer_payload or {}), outcome.sub_request.end
    match end:
        case "answered":
            continuation = CALL_AGAIN if outcome.entry is not None and "call" in outcome.entry.payload else ""
            return ToolResult(True, f"{text[:RESULTS_CHARS]}{continuation}")
        case "":
            return ToolResult(True, f"{outcome.sub_request.to} has not answered yet; you need not wait for it")
        case "expired" if outcome.answer_payload is not None:
            return ToolResult(True, f"{outcome.sub_request.to} did not answer in time; the default: {text}")
        case "expired":
            return ToolResult(
                False, f"EXPIRED: {outcome.sub_request.to} did not answer by {describe_deadline(outcome.sub_request)}"
            )
    return ToolResult(False, f"{end.upper()}{f': {text}' if text else ''}")


def answer_text(payload: Mapping[str, Any]) -> str:
    """Return the text of an answer, followed by its other payload fields as JSON."""
    extra_fields = {key: value for key, value in payload.items() if key not in ENVELOPE}
    text = payload.get("text")
    if not isinstance(text, str):
        return to_line(extra_fields) if extra_fields else ""
    del extra_fields["text"]
    return f"{text}\n{to_line(extra_fields)}" if extra_fields else text


def find_unreachable_members(
    tick_context: TickContext, agent: Agent, task: Task | None, tools: Mapping[str, TeamTool]
) -> dict[str, str]:
    """Return the reasons team tools cannot reach their targets, by tool name."""
    asker = ""
    if task and task.request:
        asker = parse_reference(task.request.payload.get("owed_to")) or task.request.agent
    resumes, known_names = tick_context.mail.resumes, tick_context.mail.known_names
    reasons: dict[str, str] = {}
    for name, tool in tools.items():
        pairs = [(tool.target, agent.name), (agent.name, tool.target)]
        if tool.is_handoff:
            pairs = [(tool.target, agent.name), (asker, tool.target)] if asker else []
        for reader, author in reversed(pairs):  # the first reason counts
            if reader in resumes and not resumes[reader].may_read(author):  # a broken resume will be mended
                reasons[name] = f'{reader} cannot read {author}: "{author}" is missing in its read_outboxes'
        if tool.target not in known_names:
            reasons[name] = f'there is no agent "{tool.target}"'
    return reasons


def find_unbounded_agents(tick_context: TickContext, agent: Agent, task: Task | None) -> list[str]:
    """Return the agents not bounded by the budget of this request.

    These agents read the agent and handle its questions in turns for their whole inbox, which belong to no
    request.
    """
    if task is None or task.request is None or get_budget(task.request.payload) is None:
        return []
    mail = tick_context.mail
    return sorted(
        name
        for name, other in mail.resumes.items()
        if name not in mail.persons and name != agent.name and other.may_read(agent.name)
        if not accepts_requests(
            agent.name, resolve_turn_policy(other, tick_context.config).take, mail.get_callers(name)
        )
    )


class TeamCalls:
    """Calls of team tools in a turn: each asks a team member, or hands off the request of the turn."""

    def __init__(self, turn: TurnView) -> None:
        self._turn, self._tools = turn, build_team_tools(turn.agent)

    def intercept(self, effect: CallTool) -> Interception:
        """Write the entry of a team tool's call, or refuse the call."""
        return self._delegate(effect, tool) if (tool := self._tools.get(effect.tool)) else None

    def _delegate(self, effect: CallTool, tool: TeamTool) -> Interception:
        turn, request = self._turn, self._turn.request
        try:
            args = tool.parse_arguments(effect.args)
        except ToolError as error:
            return Rejected(str(error), outcome=error.outcome)
        if reason := turn.snapshot.get("out_of_reach", {}).get(tool.name, "") or self._blocker(tool):
            return Rejected(reason)
        message = args.pop("message")
        if tool.is_handoff:
            assert request, "`_blocker` rejects a handoff without a request"
            turn.write_entry(request.make_handoff(message, tool.target, turn.tick), effect.at)
            return Allowed(effect)
        path = None if request else [turn.agent.name]  # otherwise it is filled in with the rest
        options = {"deadline": args.get("deadline"), "join": args.get("wait"), "path": path}
        payload = {key: value for key, value in options.items() if value is not None}
        new = NewEntry("request", {"text": message, "target": tool.target, **payload}, [])
        turn.write_entry(new, effect.at, asked_by=effect.call)
        return Allowed(effect)

    def _blocker(self, tool: TeamTool) -> str:
        """Return the reason a team tool cannot be used now, or an empty text."""
        turn = self._turn
        team, request = get_team(turn.agent), turn.request or OWN_REQUESTS
        assert team, "team tools exist only with a team"
        if not turn.remaining_entries:
            return f"the turn may write no more than {turn.agent.turn.max_entries} entries"
        if tool.is_handoff:
            if not request.request:
                return "nothing was asked of you that could be handed on"
            hops = request.hops
            return f"refused: it was handed on {hops} times" if hops >= team.max_hops else ""
        if len(request.path) + 1 >= team.max_depth:
            waiting = len(request.path) + 1
            return f"refused: {waiting} agents wait for each other already; answer it yourself"
        if len(request.begun.asked) + turn.awaited_count >= team.max_asked:
            return f"refused: {team.max_asked} questions have been asked for it; answer with what you have"
        return request.sub_request_blocker(turn.agent.name, {tool.target})
