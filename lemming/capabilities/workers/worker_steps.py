"""Steps of a worker's turn: run the harness, merge its patch, answer.

    ask  ->  merge (gates, judges and persons decide)  ->  answer
         <-  conflict: again, on the branch as it is now

A call that waits for a person ends the turn. The turn after the decision has its result before anything is asked, and
answers without another run if the patch was merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.capabilities.workers.merge_tool import MERGE
from lemming.capabilities.workers.worker_job import JOB
from lemming.capabilities.workers.workspace_settings import WorkspaceSettings, get_workspace
from lemming.ext import NewEntry, Steps, ToolCall, TurnReply, TurnView
from lemming.kernel.base.errors import ProviderError
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files.field_types import Json
from lemming.kernel.providers import Message
from lemming.kernel.turn.turn_values import Act

CONFLICT_CHARS = 6_000


def take_worker_turn(view: TurnView) -> Steps:
    """Run the harness until its patch is merged, waits for a person, or cannot be merged."""
    turn, settings = view.strategy_turn, get_workspace(view.agent)
    assert settings, "its record says so"
    messages = turn.prompt
    results = [item for item in view.results if item["tool"] == MERGE]  # of calls that a person has approved
    if results and results[-1]["success"]:
        view.mark_results_shown()
        _answer(view, _find_last_answer(messages), parse_merge(results[-1]))
        return "done"
    for conflicts in range(settings.max_conflicts + 1):
        answer = yield from turn.ask_harness(messages)
        outcome = answer.kept[JOB]
        if outcome["error"]:
            reason = f"{outcome['harness']}: {outcome['message'] or outcome['error']}"
            if view.request:
                view.fail_request(reason)
            return view.fail(ProviderError(reason))
        if not answer.calls:
            _answer(view, answer.text, {})
            return "done"
        call = answer.calls[0]
        yield Act(TurnReply(tool_calls=(ToolCall(call["tool"], call["args"], call["id"]),)))
        if turn.has_asked:
            return "waits"
        result = turn.results[-1]
        merged = parse_merge(result)
        if result["success"]:
            view.mark_results_shown()
            _answer(view, answer.text, merged)
            return "done"
        if "conflict" not in merged:
            break
        view.remark(f"conflict {conflicts + 1} of {settings.max_conflicts} with {call['args']['branch']}")
        messages = [*turn.prompt, _describe_conflict(merged, answer.text)]
    _give_up(view, settings, result["output"])
    return "done" if view.request else "failed"


def _find_last_answer(messages: list[Message]) -> str:
    """Return the harness's text from the turn whose call waited for a person."""
    texts = [message["content"] for message in messages if message["role"] == "assistant"]
    return str(texts[-1]) if texts else ""


def parse_merge(result: Mapping[str, Any]) -> Json:
    """Return the outcome of a call of `merge`: `merged`, `already` or `conflict`; {} for a refused call."""
    try:
        value = parse(result["output"])
    except JsonProblem:
        return {}
    return value if isinstance(value, dict) else {}


def _answer(view: TurnView, text: str, merged: Json) -> None:
    """Write the answer to the turn's request, or a report."""
    payload: Json = {"text": text or "done"}
    if merged:
        payload |= {"branch": merged["branch"], "commit": merged.get("merged") or merged["already"]}
    if view.request and view.request.request:
        view.write_entry(NewEntry("response", payload, []), view.snapshot["at"])
    elif view.remaining_entries:
        kinds = [kind for kind in view.agent.turn.kinds if kind != "response"]
        view.write_entry(NewEntry("report" if "report" in kinds else kinds[0], payload, []), view.snapshot["at"])


def _give_up(view: TurnView, settings: WorkspaceSettings, output: str) -> None:
    """Answer that the patch is not merged, with the reason: a person takes over."""
    reason = f"the patch was not merged into {settings.branch_name(view.agent.name)}: {output[:CONFLICT_CHARS]}"
    if view.request and view.request.request:
        view.fail_request(reason)
    else:
        view.fail(ProviderError(reason[:500]))


def _describe_conflict(merged: Json, text: str) -> Message:
    """Return the message that tells the harness about a conflict. Its new clone holds the branch as it is now."""
    lines = [
        "Your earlier changes conflict with changes that others made meanwhile. This folder now holds the branch with their",
        "changes and without yours. Make your changes again so that they fit. Your earlier answer was:",
        text[:CONFLICT_CHARS],
    ]
    for path, sides in merged["conflict"].items():
        for side in ("base", "branch", "worker"):
            heading = {"base": "before", "branch": "on the branch now", "worker": "as you left it"}[side]
            lines += [f"--- {path}, {heading}:", str(sides.get(side, "(no file)"))[:CONFLICT_CHARS]]
    return {"role": "user", "content": "\n".join(lines)}
