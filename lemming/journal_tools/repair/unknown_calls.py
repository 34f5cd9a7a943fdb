"""Tool calls with an unknown outcome, and notes of people about the outcome.

A person's note is added to the agent's waiting results, or to the results of the call's request while the
request is open: the last line of the ledger is replaced by a line with an additional result. The agent reads
the note in its next prompt for the request, and the journal records the note from there.

A call is retried by a person's decision, at most once for each decision: announced < run < told. A retry
announced but never told has an unknown outcome again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from lemming.journal_tools.recorded_tick import RecordedTick
from lemming.kernel.agents import Agent, list_agent_folders, load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import CorruptState, ToolError, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files.file_effects import apply_effect
from lemming.kernel.journal.journal_file import journal_ticks, read_journal
from lemming.kernel.journal.journal_parser import find_tick_started
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.plugin_registry import load_installed_plugins
from lemming.kernel.tick.recorded_answers import restore_result
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tools import ToolResult, get_toolset, interrupted_result
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.tool_results import INTERRUPTED
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.engine_lock import is_tick_incomplete

CALL = "call"
"""Key of a person's note on an earlier call; its value is the id of the call."""

RETRY = "retry"
"""Key of a call that a person had retried: "started", then "finished" once its end is known."""

Result = dict[str, Any]


@dataclass(frozen=True)
class UnknownCall:
    """A started tool call with an unknown outcome.

    `was_retried`: a person had the call retried, and the retry has no recorded end either. `request`: the
    identity of the request served by the turn, or empty. `why`: the reason the outcome is unknown.
    """

    tick: int
    agent: str
    index: int
    tool: str
    args: Any
    was_retried: bool = False
    request: str = ""
    why: str = ""

    @property
    def id(self) -> str:
        """The id `TICK/AGENT/INDEX`, the argument of `lemming repair --mark`."""
        return f"{self.tick}/{self.agent}/{self.index}"

    @property
    def summary(self) -> str:
        """The tool and its arguments on a single line."""
        return f"{self.tool} {dump_compact(self.args).decode()}"

    def as_json(self) -> dict[str, Any]:
        """Return the call as JSON values."""
        return {"id": self.id, **vars(self)}


def find_unknown_calls(base: OrgPath, ticks: Iterable[int]) -> list[UnknownCall]:
    """Return the calls of these ticks with an outcome no person has settled, oldest first."""
    calls: list[UnknownCall] = []
    notes: dict[str, Result] = {}  # the latest note on each call; notes in ledgers are the newest
    for tick in ticks:
        try:
            recorded = RecordedTick(tick, read_journal(base, tick))
        except CorruptState:
            continue
        calls += _find_unknown_calls(recorded)
        for started in recorded.started.values():
            notes |= _find_notes(started.state)
    for name in filter(paths.AGENT_NAME.match, list_agent_folders(base)):
        with contextlib.suppress(CorruptState):
            notes |= _find_notes(read_state(base, name).as_json())
    return [
        replace(call, was_retried=call.id in notes)
        for call in calls
        if call.id not in notes or notes[call.id].get(RETRY) == "started"
    ]


def require_unknown_call(base: OrgPath, call_id: str) -> UnknownCall:
    """Return an unknown call that a person may settle now; the caller must hold the organisation's lock.

    Raises `UsageError` for an id of no unknown call, and during an unfinished tick, because finishing the
    tick would rewrite the agent's state.
    """
    calls = {call.id: call for call in find_unknown_calls(base, journal_ticks(base))}
    if call_id not in calls:
        hint = f"unknown calls: {', '.join(calls)}" if calls else "no call has an unknown outcome"
        raise UsageError(f'expected a call with an unknown outcome, got "{call_id}"', hint=hint)
    if is_tick_incomplete(base, tick := load_tick(base)):
        raise UsageError(f"tick {tick} is unfinished", hint="finish it first: `lemming run-once`")
    if calls[call_id].agent not in list_agent_folders(base):
        raise UsageError(f"agent {calls[call_id].agent} does not exist any more")
    return calls[call_id]


def mark_call(base: OrgPath, call_id: str, *, happened: bool) -> UnknownCall:
    """Inform an agent of the outcome a person found out. Return the call. Raises as `require_unknown_call` does."""
    call, outcome = require_unknown_call(base, call_id), "it did happen" if happened else "it did not happen"
    text = f"A person has found out about this call of tick {call.tick}: {outcome}."
    tell_agent(base, call, success=happened, output=text)
    return call


def tell_agent(base: OrgPath, call: UnknownCall, *, success: bool, output: str, **extra_fields: Any) -> None:
    """Add a person's note on a call to the results of the agent's next prompt, replacing an earlier note.

    The note survives power loss once this function returns.
    """
    note = {"tool": call.tool, "args": call.args, "success": success, "output": output, CALL: call.id, **extra_fields}
    state = read_state(base, call.agent, before_tick=load_tick(base))

    def add_note(results: Iterable[Result]) -> tuple[Result, ...]:
        return (*(result for result in results if result.get(CALL) != call.id), note)

    served = [open_request for open_request in state.requests if call.request and open_request.request == call.request]
    requests = tuple(
        replace(open_request, results=add_note(open_request.results)) if open_request in served else open_request
        for open_request in state.requests
    )
    results = state.results if served else add_note(state.results)
    amend_state(base, call.agent, replace(state, requests=requests, results=results))


def _find_notes(state: Mapping[str, Any]) -> dict[str, Result]:
    """Return the notes by call among the results the agent has not read yet, including results of open requests."""
    request_results = (open_request.get("results", ()) for open_request in state.get("requests", ()))
    return {result[CALL]: result for result in chain(state["results"], *request_results) if CALL in result}


def without_notes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as written by the agent's own turns, without people's notes in its results."""
    own_state = {**state, "results": _exclude_notes(state["results"])}
    if state.get("requests"):
        requests = [{**request, "results": _exclude_notes(request.get("results", ()))} for request in state["requests"]]
        own_state["requests"] = [{key: value for key, value in request.items() if value} for request in requests]
    return own_state


def _exclude_notes(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if CALL not in result]


def _find_unknown_calls(recorded: RecordedTick) -> Iterator[UnknownCall]:
    for call_key, finished in recorded.tools.items():
        if restore_result(finished).outcome == "interrupted":
            announced_call, started = recorded.announced.get(call_key), recorded.started.get(call_key[0])
            request = started.task["request"] if started and started.task else ""
            prefix, _, suffix = interrupted_result("|").output.partition("|")
            reason = finished.output.removeprefix(prefix).removesuffix(suffix)
            args = announced_call.args if announced_call else None
            yield UnknownCall(recorded.tick, *call_key, finished.tool, args, request=request, why=reason)


@dataclass(frozen=True)
class CallRetry:
    """A call ready to be retried, with the agent."""

    call: UnknownCall
    agent: Agent
    settings: OrgSettings


def plan_retry(runtime: Runtime, call_id: str) -> CallRetry:
    """Return a call that may be retried, without changing anything.

    Raises `UsageError` if the outcome is known, the agent may no longer call the tool, or the tool rejects
    the arguments; and `ConfigError` if the agent's resume is broken.
    """
    call = require_unknown_call(runtime.base, call_id)
    org = runtime.load_config().org
    load_installed_plugins()
    agent = load_agent(runtime.org, call.agent)
    alternative = f"find out the outcome, then `lemming repair --mark done {call.id}` or `--mark failed {call.id}`"
    toolset = get_toolset(org, runtime.org).for_agent(agent.name)
    if call.tool not in toolset:
        raise UsageError(f'tool "{call.tool}" does not exist', hint=f"load its plugin, or {alternative}")
    tool = toolset.allowed_tools(agent, org).get(call.tool)
    if tool is None:
        hint = f"grant it in permissions.tools, or {alternative}"
        raise UsageError(f"{agent.name} may not call {call.tool} any more", hint=hint)
    if not isinstance(call.args, dict):
        raise UsageError(f"the arguments of the call of {call.tool} are not recorded", hint=alternative)
    try:
        tool.parse_arguments(call.args)
    except ToolError as error:
        raise UsageError(f"the call cannot be repeated: {error.message}", hint=alternative) from error
    return CallRetry(call, agent, org)


def retry_call(runtime: Runtime, retry: CallRetry) -> ToolResult:
    """Retry the call, inform its agent, and return the result; a failed call is a result, too.

    Raises `DiskError`. After the announcement, and until an end is recorded, the outcome is unknown again.
    """
    base, call = runtime.base, retry.call
    announcement = f"A person has had this call of tick {call.tick} run again."
    # Before it runs: if the engine dies in it, the call is unknown again and needs another decision.
    tell_agent(base, call, success=False, output=f"{announcement} {INTERRUPTED.output}", **{RETRY: "started"})
    started = find_tick_started(read_journal(base, call.tick))
    context = ToolContext(
        agent=retry.agent,
        org=runtime.org,
        settings=retry.settings,
        now=runtime.now(),
        tick=call.tick,
        began_at=started.at if started else "",
        index=call.index,
    )
    tool_result = runtime.call_tool(call.index, ToolCall(call.tool, call.args), context)
    result = replace(tool_result, output=redact_values(tool_result.output))
    for effect in result.effects:
        # Before the agent is informed: the reported change must be on disk.
        apply_effect(base, effect, is_replay=True, sync=True)
    for new_entry in result.entries:
        entry_fields: dict[str, Any] = {"kind": new_entry.kind, "payload": new_entry.payload, "tags": new_entry.tags}
        write_person_entry(base, call.agent, tick=load_tick(base), created_at=context.now, sync=True, **entry_fields)
    if result.outcome == "interrupted":  # as reported to the agent
        return result
    output = f"{announcement}\n{result.output}"
    tell_agent(base, call, success=result.success, output=output, **{RETRY: "finished"})
    return result
