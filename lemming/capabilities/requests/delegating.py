"""Tools that ask one of the team, or hand the request on to it: entries of the turn, no calls. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lemming.capabilities.requests.request_turn import OWN_ACCOUNT, Serving
from lemming.capabilities.requests.settings import team_of
from lemming.capabilities.requests.team import TeamTool
from lemming.kernel.base.contract import NewEntry, ToolCall
from lemming.kernel.base.errors import ToolError
from lemming.kernel.tools import ToolResult

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft


def delegate(
    draft: Draft,
    serving: Serving | None,
    tool: TeamTool,
    call: ToolCall,
    at: str,
    out_of_reach: Mapping[str, str],
) -> None:
    """Ask one of the team, or hand the request on to it: stage the entry, or tell the model why not.

    `out_of_reach`: why tools would reach nobody, by their names.
    """
    try:
        args = tool.check(call.args)
    except ToolError as error:
        draft.refuse(call, ToolResult(False, str(error), outcome=error.outcome))
        return
    if why := out_of_reach.get(tool.name, "") or _why_not(draft, serving, tool):
        draft.refuse(call, ToolResult(False, why, outcome="refused"))
        return
    message = args.pop("message")
    if tool.hands_on:
        assert serving, "only a request is handed on"
        handed = draft.write(serving.hand_on(message, tool.target, draft.inputs.tick), at)
        draft.is_handed_on = handed is not None
        return
    path = None if serving else [draft.inputs.agent.name]
    further = {"deadline": args.get("deadline"), "join": args.get("wait"), "path": path}
    payload = {key: value for key, value in further.items() if value is not None}
    entry = draft.write(NewEntry("request", {"text": message, "target": tool.target, **payload}, []), at)
    if entry is not None:
        draft.add_result(call.tool, call.args, ToolResult(True), call.id, is_entry=True)
        draft.asked[entry.identity] = len(draft.results)


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
