"""A tool call whose outcome is unknown, run again because a person decided so; at most once a decision.

    announced < run < told

What is announced and never told is unknown again: it is listed again, and run again only if a person says
so again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lemming.kernel.agents import Agent, load_agent
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import ToolError, UsageError
from lemming.kernel.base.redaction.secrets import redact_values
from lemming.kernel.files.effects import apply_effect
from lemming.kernel.journal.file import read_journal
from lemming.kernel.journal.lookup import plan_in
from lemming.kernel.messages import send
from lemming.kernel.org.config import Org
from lemming.kernel.plugins.registry import load_installed_plugins
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tools import ToolResult, toolset_of
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.results import INTERRUPTED
from lemming.timeline.repair.unknown import RETRY, UnknownCall, tell_agent, unknown_call


@dataclass(frozen=True)
class Retry:
    """A call that can be run again now, and on whose behalf."""

    call: UnknownCall
    agent: Agent
    settings: Org


def plan_retry(runtime: Runtime, call_id: str) -> Retry:
    """Return a call that may be run again, without changing anything.

    Raises `UsageError` when it may not: it is not unknown, its agent may not call the tool any more, the tool
    would not take these arguments; and `ConfigError` when its agent's resume is broken.
    """
    call = unknown_call(runtime.base, call_id)
    org = runtime.load_config().org
    load_installed_plugins()
    agent = load_agent(runtime.org, call.agent)
    instead = f"say what you found out: `lemming repair --mark done {call.id}` or `--mark failed {call.id}`"
    toolset = toolset_of(org, runtime.org).of(agent.name)
    if call.tool not in toolset:
        raise UsageError(f'no tool "{call.tool}"', hint=f"load the plugin that has it, or {instead}")
    tool = toolset.allowed(agent, org).get(call.tool)
    if tool is None:
        raise UsageError(
            f"{agent.name} may not call {call.tool} any more",
            hint=f"grant it in permissions.tools, or {instead}",
        )
    if not isinstance(call.args, dict):
        raise UsageError(f"what {call.tool} was called with is not recorded", hint=instead)
    try:
        tool.check(call.args)
    except ToolError as error:
        raise UsageError(f"the call cannot be run as it was: {error.message}", hint=instead) from error
    return Retry(call, agent, org)


def run_again(runtime: Runtime, retry: Retry) -> ToolResult:
    """Run the call, let its agent know, and return the result; a call that fails is a result too.

    Raises `DiskError`. Once announced, and if no end is recorded, the call is unknown again.
    """
    base, call = runtime.base, retry.call
    began = f"A person has had this call of tick {call.tick} run again."
    # before it runs: if the engine dies in it, the call is unknown again, and never run without a word
    tell_agent(base, call, success=False, output=f"{began} {INTERRUPTED.output}", **{RETRY: "started"})
    plan = plan_in(read_journal(base, call.tick))
    context = ToolContext(
        agent=retry.agent,
        org=runtime.org,
        settings=retry.settings,
        now=runtime.now(),
        tick=call.tick,
        began_at=plan.at if plan else "",
        index=call.index,
    )
    given = runtime.use_tool(call.index, ToolCall(call.tool, call.args), context)
    result = replace(given, output=redact_values(given.output))
    for effect in result.effects:
        # before its end is told: what an agent reads to have happened is on disk
        apply_effect(base, effect, again=True, sync=True)
    for new in result.entries:
        about: dict[str, Any] = {"kind": new.kind, "payload": new.payload, "tags": new.tags}
        send(base, call.agent, tick=load_tick(base), created_at=context.now, sync=True, **about)
    if result.outcome == "interrupted":  # that is what the agent has been told
        return result
    told = f"{began}\n{result.output}"
    tell_agent(base, call, success=result.success, output=told, **{RETRY: "finished"})
    return result
