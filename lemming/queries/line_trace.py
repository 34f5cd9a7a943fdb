"""Trace of a line in a workspace's repository: commit, turn of the worker, request and approval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lemming.journal_tools.recorded_tick import RecordedTurn, ToolUse, load_tick_record
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.kernel.base.integers import parse_int
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, turn_key
from lemming.kernel.journal.capability_queries import find_call_notes
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import find_fact
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_view import RequestView
from lemming.queries.views.feed_view import find_entry

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LineTrace:
    """A line and its origin.

    `revision`: the branch read, or HEAD. `commit`, `author`, `at`: from git. `agent` and the fields after it are empty
    for a line not written by a worker. `tick`: of the turn that ran the harness. `merge_tick`: of the merge.
    `harness`: with version. `request`: identity of the turn's request, with its text in `text`; `asked_by`: the agent or
    person who began the chain of requests, by the request `first_request`. `approved_by`, `approval`: person and entry of a
    decision. `problem`: the reason for an unknown turn.
    """

    repository: str
    revision: str
    path: str
    line: int
    content: str
    commit: str
    author: str
    at: str
    agent: str = ""
    tick: int = 0
    merge_tick: int = 0
    harness: str = ""
    model: str = ""
    summary: str = ""
    patch: str = ""
    request: str = ""
    asked_by: str = ""
    first_request: str = ""
    text: str = ""
    approved_by: str = ""
    approval: str = ""
    is_edited: bool = False
    problem: str = ""

    def as_json(self) -> Json:
        """Return the trace as JSON values."""
        return vars(self)


def trace_line(org: Organisation, target: str, *, branch: str = "") -> LineTrace | None:
    """Return the trace of the line `PATH:LINE`, or None if the target names no line of a workspace's repository.

    `branch`: branch to read, by default the one that is checked out. Raises `UsageError` for a file without the line.
    """
    find_line = find_fact("workers.find_line")
    line = find_line(org, target, branch) if find_line else None
    if line is None:
        return None
    trace: LineTrace = line[0]
    if not trace.agent:
        return trace
    try:
        turn, call = _find_call(org, line[1], trace.patch)
    except (UsageError, CorruptState) as error:
        return replace(trace, problem=str(error))
    return replace(trace, **_describe_turn(org, turn, call))


def _find_call(org: Organisation, name: str, patch: str) -> tuple[RecordedTurn, ToolUse]:
    """Return the turn and the call that merged a patch. Raises `UsageError` if no journal here has the call."""
    tick, agent, index = [*name.split("/"), "", ""][:3]
    turn_tick, number = parse_int(tick), parse_int(index)
    if turn_tick is not None and number is not None:
        turn = load_tick_record(org, turn_tick).find_turn(turn_key(agent, number // NUMBERS_PER_TURN))
        for call in turn.tools if turn else ():
            if turn and call.index == number and isinstance(call.args, dict) and call.args.get("patch") == patch:
                return turn, call
    raise UsageError(f"call {name} is in no journal of this organisation")


def _describe_turn(org: Organisation, turn: RecordedTurn, call: ToolUse) -> Json:
    note = next(find_call_notes(call.kept), None)
    asked_call = next((str(state["id"]) for state in call.kept.values() if "id" in state), "")
    tick = parse_int(asked_call.partition("/")[0]) or turn.tick
    decision = find_entry(org, note.entry) if note else None
    snapshots = turn.started.given.values() if turn.started else ()
    snapshot: Json = next((values for values in snapshots if "harness" in values), {})
    reported = turn.report.model if turn.report else ""
    model = next((model_call.model for model_call in reversed(turn.calls)), "") or reported
    request_id = turn.report.request if turn.report else ""
    requests = load_requests(org).requests
    request: RequestView | None = requests.find_served(request_id)
    first = requests.get_root(request) if request else None
    return {
        "tick": tick,
        "harness": f"{snapshot.get('harness', '')} {snapshot.get('version', '')}".strip(),
        "model": model,
        "summary": str(call.args.get("summary", "")),
        "approved_by": note.by if note else "",
        "approval": note.entry if note else "",
        "is_edited": bool(decision and decision.payload.get("args")),
        "request": request_id,
        "asked_by": first.asker if first else request_id.partition("/")[0],
        "first_request": first.identity if first else request_id,
        "text": first.text if first else "",
    }
