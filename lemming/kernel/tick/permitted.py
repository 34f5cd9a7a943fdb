"""What the journal of an unfinished tick says, held against what its agent may do now.

A journal is a file, and nobody gets more by writing into it than the agent's resume and the settings allow:
no file in a place that is not the agent's, no model that `config/models.json` does not name for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.refusals import OF_A_FILE
from lemming.kernel.journal.records import Record, ToolFinished, TurnStarted
from lemming.kernel.org.config import credits_of
from lemming.kernel.org.resume import AgentPermissions, FileAccess
from lemming.kernel.plugins.shipped import STRATEGIES
from lemming.kernel.tick.recorded_answers import recorded_result
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tools import toolset_of
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.turn.on_record import from_record
from lemming.kernel.turn.values import TurnInputs

NO_LONGER_ALLOWED = "NoLongerAllowed"
"""The `error` of a turn whose journal records what its agent may not do now."""

NOTHING = AgentPermissions(read_outboxes=[], tools=[], file_access=FileAccess(allow_read=[], allow_write=[]))


def inputs_of(started: TurnStarted, snapshot: Snapshot) -> TurnInputs:
    """Return the inputs of a turn that was begun, with the permissions, model and allowance of now.

    What it saw, how its replies are read and when it is warned stay as they were. An agent whose resume is
    gone or broken may do nothing.
    """
    inputs = from_record(started, snapshot.tick)
    config, now = snapshot.config, snapshot.survey.agents.get(inputs.agent.name)
    if now is None:
        problem = UnknownModel(f"the resume of {inputs.agent.name} is gone or broken: no model is asked")
        return replace(inputs, agent=replace(inputs.agent, permissions=NOTHING), problem=problem)
    model = replace(now.model, temperature=inputs.agent.model.temperature)
    inputs = replace(
        inputs,
        agent=replace(now, model=model, turn=inputs.agent.turn),
        allocation=replace(
            inputs.allocation, max_credits=credits_of(config, now.name, now.credits).max_credits
        ),
    )
    if why := _why_no_critic(inputs, now, snapshot):
        return replace(inputs, problem=UnknownModel(why))
    try:
        return replace(inputs, model=config.model(now.model.key))
    except UnknownModel as error:
        return replace(inputs, problem=error)


def _why_no_critic(inputs: TurnInputs, now: Agent, snapshot: Snapshot) -> str:
    """Return why a turn may ask nobody any more, where its strategy could ask whom its agent may not now."""
    begun = inputs.agent.turn
    if begun.strategy is None:
        return ""
    if (begun.strategy, begun.options) != (now.turn.strategy, now.turn.options):
        return f"the strategy of {now.name} has changed during its turn: no model is asked"
    critic = snapshot.survey.agents.get(str(begun.options.get("agent")))
    key = inputs.given.get(STRATEGIES, {}).get("needs", {}).get("model")
    if key and (critic is None or critic.model.key != key):
        return f"the critic of {now.name} has changed during its turn: no model is asked"
    return ""


def refused_places(snapshot: Snapshot, agent: Agent, records: Iterable[Record]) -> dict[str, str]:
    """Return why files that a turn's tools recorded may not be written now, by `FileEffect.place`."""
    refused = {}
    context = ToolContext(agent=agent, org=snapshot.org, settings=snapshot.config.org, now="")
    for record in records:
        if not isinstance(record, ToolFinished):
            continue
        for effect in recorded_result(record).effects:
            try:
                _require_allowed(context, record.tool, effect)
            except OF_A_FILE as error:
                refused[effect.place] = str(error)
    return refused


def _require_allowed(context: ToolContext, name: str, effect: FileEffect) -> None:
    """Raise unless this tool of this agent may write this file now, as when it is called."""
    tool = toolset_of(context.settings, context.org).require(name, context.agent, context.settings)
    tool.require_writable(context, effect)
