"""Retries a tool call with an unknown outcome, by a person's decision; at most once for each decision.

    announced < run < told

A retry that was announced but never told has an unknown outcome again: the call is listed again, and retried
only after another decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lemming.journal_tools.repair.unknown_calls import RETRY, UnknownCall, require_unknown_call, tell_agent
from lemming.kernel.agents import Agent, load_agent
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import ToolError, UsageError
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files.effects import apply_effect
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_parser import find_plan
from lemming.kernel.messages import write_person_entry
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.plugins.plugin_registry import load_installed_plugins
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tools import ToolResult, get_toolset
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.tool_results import INTERRUPTED


@dataclass(frozen=True)
class CallRetry:
    """A call ready to be retried, with its agent."""

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
        raise UsageError(
            f"{agent.name} may not call {call.tool} any more", hint=f"grant it in permissions.tools, or {alternative}"
        )
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
    plan = find_plan(read_journal(base, call.tick))
    context = ToolContext(
        agent=retry.agent,
        org=runtime.org,
        settings=retry.settings,
        now=runtime.now(),
        tick=call.tick,
        began_at=plan.at if plan else "",
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
