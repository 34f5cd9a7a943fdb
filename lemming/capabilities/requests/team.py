"""Whom an agent may ask and hand on to (`team` in its resume), as tools of its turn. Rules: docs/requests.md.

Their calls go nowhere: a turn stages an entry for each, and its answer is the result in a later turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from lemming.capabilities.requests.agenda import accepts_requests
from lemming.capabilities.requests.budgets import budget_in
from lemming.capabilities.requests.request_turn import OWN_ACCOUNT, Serving
from lemming.capabilities.requests.settings import team_of
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import to_line
from lemming.kernel.files.fitting import about
from lemming.kernel.journal.begun import end_text
from lemming.kernel.mail.answers import ENVELOPE
from lemming.kernel.mail.references import name_in
from lemming.kernel.mail.task import Ended, Task
from lemming.kernel.messages import OutboxEntry, targets_in
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.uses import habits_of
from lemming.kernel.tools import Tool, ToolResult
from lemming.kernel.turn.labels import PLAIN, Labels
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.results import RESULTS_CHARS, as_shown
from lemming.kernel.turn.seams import No

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft

Wait = Literal["all", "first"]


class TeamTool(Tool):
    """A tool whose call is an entry to `target`."""

    target: str
    hands_on: bool
    tool_class = "write"
    is_independent = True


class _Ask(TeamTool):
    hands_on = False

    def execute(
        self,
        agent_name: str,
        base_path: Path,
        message: str,
        deadline: Annotated[int | None, about("In so many ticks.")] = None,
        wait: Annotated[Wait | int | None, about("For all, the first, or so many.")] = None,
    ) -> ToolResult:
        """Refuse: only a turn can wait for an answer."""
        raise ToolError(f"{self.name} can be called in a turn only")


class _HandTo(TeamTool):
    hands_on = True

    def execute(self, agent_name: str, base_path: Path, message: str) -> ToolResult:
        """Refuse: only a turn has a request to hand on."""
        raise ToolError(f"{self.name} can be called in a turn only")


_HOW = "The answer comes in a later turn."


def team_tools(agent: Agent) -> dict[str, TeamTool]:
    """Return the tools with which an agent asks its team and hands requests on, by name."""
    team = team_of(agent)
    if team is None:
        return {}
    tools: dict[str, TeamTool] = {}
    for member in team.members:
        what = member.description or f"Ask {member.agent}."
        tools[f"ask_{member.name}"] = _tool_of(_Ask, f"ask_{member.name}", f"{what} {_HOW}", member.agent)
    for name in team.hand_to:
        text = (
            f"Hand what you were asked on to {name}, who answers it in your place. Nothing after it is done."
        )
        tools[f"hand_to_{name}"] = _tool_of(_HandTo, f"hand_to_{name}", text, name)
    return tools


def _tool_of(kind: type[TeamTool], name: str, description: str, target: str) -> TeamTool:
    attributes = {"name": name, "description": description, "target": target}
    tool: type[TeamTool] = type(kind.__name__, (kind,), attributes)
    return tool()


CALL_AGAIN = "\n(Call it again with the same arguments: it goes on with this answer.)"


def answered_results(
    results: Sequence[Mapping[str, Any]], asked: Sequence[Ended], first: int, labels: Labels = PLAIN
) -> list[Mapping[str, Any]]:
    """Return the results of a turn's calls with the answers in their places that have come since.

    `first`: the place of the first to which one may be the answer.
    """
    by_call = {first + ended.asked.call - 1: ended for ended in asked if ended.asked.call}
    return [
        labels.ended(ended, _with_trust(result, as_shown(result["tool"], result["args"], _result_of(ended))))
        if (ended := by_call.get(place))
        else result
        for place, result in enumerate(results)
    ]


def _with_trust(result: Mapping[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """Return what is told in place of a result: what was asked is trusted as far as the turn that asked."""
    return {**told, "trust": result["trust"]} if "trust" in result else told


def _result_of(ended: Ended) -> ToolResult:
    """Return what became of something that was asked, as a result in words."""
    said, end = text_of(ended.payload or {}), ended.asked.end
    match end:
        case "answered":
            goes_on = CALL_AGAIN if ended.entry is not None and "call" in ended.entry.payload else ""
            return ToolResult(True, f"{said[:RESULTS_CHARS]}{goes_on}")
        case "":
            return ToolResult(True, f"{ended.asked.to} has not answered yet; you need not wait for it")
        case "expired" if ended.payload is not None:
            return ToolResult(True, f"{ended.asked.to} did not answer in time; the default: {said}")
        case "expired":
            return ToolResult(False, f"EXPIRED: {ended.asked.to} did not answer by {end_text(ended.asked)}")
    return ToolResult(False, f"{end.upper()}{f': {said}' if said else ''}")


def text_of(payload: Mapping[str, Any]) -> str:
    """Return what an answer says: its text, and whatever else its author put into it."""
    further = {key: value for key, value in payload.items() if key not in ENVELOPE}
    text = payload.get("text")
    if not isinstance(text, str):
        return to_line(further) if further else ""
    del further["text"]
    return f"{text}\n{to_line(further)}" if further else text


def out_of_reach(now: Surroundings, agent: Agent, task: Task | None) -> dict[str, str]:
    """Return why tools that ask the team, or hand on to it, would reach nobody, by their names."""
    asker = ""
    if task and task.request:
        asker = name_in(task.request.payload.get("owed_to")) or task.request.agent
    why: dict[str, str] = {}
    for name, tool in team_tools(agent).items():
        readers = [(tool.target, agent.name), (agent.name, tool.target)]
        if tool.hands_on:
            readers = [(tool.target, agent.name), (asker, tool.target)] if asker else []
        missing = next((pair for pair in readers if not _reads(now, *pair)), None)
        if missing:
            reader, author = missing
            why[name] = f'{reader} cannot read {author}: "{author}" is missing in its read_outboxes'
        if tool.target not in now.mail.named:
            why[name] = f'there is no agent "{tool.target}"'
    return why


def _reads(now: Surroundings, reader: str, author: str) -> bool:
    resume = now.mail.resumes.get(reader)
    return resume is None or resume.may_read(author)  # it is broken, and will be mended


def beyond_budget(now: Surroundings, agent: Agent, task: Task | None) -> list[str]:
    """Return the agents whose work for this request its budget cannot bound, where it has one.

    They read the agent and take what it asks in turns for their whole inbox, which are for no request.
    """
    if task is None or task.request is None or budget_in(task.request.payload) is None:
        return []
    mail = now.mail
    return sorted(
        name
        for name, other in mail.resumes.items()
        if name not in mail.persons and name != agent.name and other.may_read(agent.name)
        if not accepts_requests(agent.name, habits_of(other, now.config).take, mail.callers_of(name))
    )


def facts_for_asking(now: Surroundings, agent: Agent, task: Task | None) -> dict[str, Any]:
    """Return the tools that would reach nobody, and the agents that a budget would not bound."""
    given = {
        "out_of_reach": out_of_reach(now, agent, task),
        "beyond_budget": beyond_budget(now, agent, task),
    }
    return {key: found for key, found in given.items() if found}


def why_beyond_budget(names: Collection[str], new: NewEntry) -> str:
    """Return the reason to ask no target of an entry for a request with a budget, or nothing."""
    if (name := next((it for it in sorted(targets_in(new.payload)) if it in names), None)) is None:
        return ""
    return (
        f"refused: what you were asked has a budget, and {name} takes what you ask in turns for its whole "
        f'inbox, which no budget bounds; name {name} in "team" of your resume and call ask_{name}'
    )


def delegate(
    draft: Draft,
    serving: Serving | None,
    tool: TeamTool,
    call: ToolCall,
    at: str,
    unreachable: Mapping[str, str],
) -> None:
    """Ask one of the team, or hand the request on to it: stage the entry, or tell the model why not.

    `unreachable`: why tools would reach nobody, by their names.
    """
    try:
        args = tool.check(call.args)
    except ToolError as error:
        draft.refuse(call, ToolResult(False, str(error), outcome=error.outcome))
        return
    if why := unreachable.get(tool.name, "") or _why_not(draft, serving, tool):
        draft.refuse(call, ToolResult(False, why, outcome="refused"))
        return
    message = args.pop("message")
    if tool.hands_on:
        assert serving, "only a request is handed on"
        draft.write(serving.hand_on(message, tool.target, draft.inputs.tick), at)
        draft.is_handed_on = hands_on(draft.entries)
        return
    path = None if serving else [draft.inputs.agent.name]  # else it is filled in with the rest
    further = {"deadline": args.get("deadline"), "join": args.get("wait"), "path": path}
    payload = {key: value for key, value in further.items() if value is not None}
    entry = draft.write(NewEntry("request", {"text": message, "target": tool.target, **payload}, []), at)
    if entry is not None:
        draft.add_result(call.tool, call.args, ToolResult(True), call.id, is_entry=True)
        draft.asked[entry.identity] = len(draft.results)


def hands_on(entries: Iterable[OutboxEntry]) -> bool:
    """Return True if one of a turn's entries hands the request on."""
    return any(entry.kind == "request" and "hands_on" in entry.payload for entry in entries)


def check_hand_on(draft: Draft, serving: Serving | None, new: NewEntry) -> NewEntry | No:
    """Return an entry that hands the turn's request on, as the engine writes it; refuse any other.

    What is left of the budget goes with it, and the agent owes no answer any more. So it moves the request of
    this turn, once, to one of those whom the agent may hand it to. The entry may come from a call of
    `hand_to_*`, from the approval of one, or from a model's own text.
    """
    team, text, target = team_of(draft.inputs.agent), new.payload.get("text"), new.payload.get("target")
    is_own = serving is not None and new.payload["hands_on"] == serving.id and not hands_on(draft.entries)
    if (
        serving is None
        or not is_own
        or team is None
        or target not in team.hand_to
        or not isinstance(text, str)
    ):
        return No(
            "refused: hands_on is the engine's to write; call hand_to_NAME to hand on what was asked of you"
        )
    if serving.hops >= team.max_hops:
        return No(f"refused: it was handed on {serving.hops} times")
    written = serving.hand_on(text, target, draft.inputs.tick)
    return new._replace(payload={**new.payload, **written.payload})


def _why_not(draft: Draft, serving: Serving | None, tool: TeamTool) -> str:
    """Return why one of the team cannot be asked now, or handed the request; empty when it can."""
    team, task, name = team_of(draft.inputs.agent), serving or OWN_ACCOUNT, draft.inputs.agent.name
    assert team, "its tools follow from it"
    if not draft.room:
        return f"the turn may write no more than {draft.inputs.agent.turn.max_entries} entries"
    if tool.hands_on:
        if not task.request:
            return "nothing was asked of you that could be handed on"
        return f"refused: it was handed on {task.hops} times" if task.hops >= team.max_hops else ""
    if len(task.path) + 1 >= team.max_depth:
        return f"refused: {len(task.path) + 1} agents wait for each other already; answer it yourself"
    if len(task.begun.asked) + len(draft.asked) >= team.max_asked:
        return f"refused: {team.max_asked} questions have been asked for it; answer with what you have"
    return task.why_not(name, {tool.target})
