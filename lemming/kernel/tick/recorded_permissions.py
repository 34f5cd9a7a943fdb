"""Check the journal of an unfinished tick against the agent's current permissions.

A journal is a file. Editing a journal must not grant more than the agent's resume and the settings allow: no
file outside the agent's paths, and no model that `config/models.json` does not name for the agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.journal.journal_records import Record, ToolFinished, TurnStarted
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.org.credit_limits import resolve_credits
from lemming.kernel.org.resume import AgentPermissions, FileAccess
from lemming.kernel.plugins.capability_table import LISTED, STRATEGIES
from lemming.kernel.tick.recorded_answers import restore_result
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tick.validation.checks import TurnSubject, find_check
from lemming.kernel.tools import get_toolset
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.interceptor_chain import starting_capabilities
from lemming.kernel.turn.turn_inputs import from_record
from lemming.kernel.turn.turn_values import TurnInputs

NO_LONGER_ALLOWED = "NoLongerAllowed"
"""The `error` of a turn with recorded calls that its agent may no longer make."""

NOTHING = AgentPermissions(read_outboxes=[], tools=[], file_access=FileAccess(allow_read=[], allow_write=[]))


def restore_inputs(started: TurnStarted, snapshot: Snapshot) -> TurnInputs:
    """Return the inputs of a recorded turn, with the current permissions, model and credit limit.

    The prompt, the parsing of replies and the warnings stay as recorded. An agent with a missing or broken
    resume has no permissions.
    """
    inputs = from_record(started, snapshot.tick)
    config, agent = snapshot.config, snapshot.survey.agents.get(inputs.agent.name)
    if agent is None:
        problem = UnknownModel(f"the resume of {inputs.agent.name} is missing or broken: no model is called")
        return replace(inputs, agent=replace(inputs.agent, permissions=NOTHING), problem=problem)
    model = replace(agent.model, temperature=inputs.agent.model.temperature)
    inputs = replace(
        inputs,
        agent=replace(agent, model=model, turn=inputs.agent.turn),
        allocation=replace(
            inputs.allocation, max_credits=resolve_credits(config, agent.name, agent.credits).max_credits
        ),
    )
    if reason := _missing_critic_reason(inputs, agent, snapshot):
        return replace(inputs, problem=UnknownModel(reason))
    try:
        return replace(inputs, model=config.model(agent.model.key))
    except UnknownModel as error:
        return replace(inputs, problem=error)


def _missing_critic_reason(inputs: TurnInputs, agent: Agent, snapshot: Snapshot) -> str:
    """Return the reason a turn can call no model because its strategy or critic changed, or an empty text."""
    recorded_turn = inputs.agent.turn
    if recorded_turn.strategy is None:
        return ""
    if (recorded_turn.strategy, recorded_turn.options) != (agent.turn.strategy, agent.turn.options):
        return f"the strategy of {agent.name} has changed during its turn: no model is called"
    critic = snapshot.survey.agents.get(str(recorded_turn.options.get("agent")))
    key = inputs.given.get(STRATEGIES, {}).get("needs", {}).get("model")
    if key and (critic is None or critic.model.key != key):
        return f"the critic of {agent.name} has changed during its turn: no model is called"
    return ""


def find_refused_paths(snapshot: Snapshot, agent: Agent, records: Iterable[Record]) -> dict[str, str]:
    """Return the reasons recorded files of a turn's tools cannot be written now, by `FileEffect.path_key`."""
    refused = {}
    context = ToolContext(agent=agent, org=snapshot.org, settings=snapshot.config.org, now="")
    for record in records:
        if not isinstance(record, ToolFinished):
            continue
        for effect in restore_result(record).effects:
            try:
                _require_allowed(context, record.tool, effect)
            except FILE_ERRORS as error:
                refused[effect.path_key] = str(error)
    return refused


def _require_allowed(context: ToolContext, name: str, effect: FileEffect) -> None:
    """Raise an error unless the agent's tool may write this file now."""
    tool = get_toolset(context.settings, context.org).require_allowed(name, context.agent, context.settings)
    tool.require_writable(context, effect)


def resume_blocker(inputs: TurnInputs, snapshot: Snapshot) -> str:
    """Return the reason an interrupted turn cannot resume, or an empty string."""
    plugins = snapshot.config.org.plugins
    extra_names = (
        find_used_capabilities(inputs.agent, snapshot.config) & LISTED.keys()
    )  # applies now and is not in its record
    for item in starting_capabilities(inputs, plugins, extra_names):
        find = find_check(item.name, "turn", plugins)
        for problem in find(TurnSubject(inputs, snapshot)) if find else ():
            return problem.message
    return ""
