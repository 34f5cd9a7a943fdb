"""The strategies capability: a strategy named in the resume drives the turn in place of `react`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from lemming.capabilities.strategies.reflexion import ReflexionOptions as Reflexion
from lemming.ext import (
    AgentSubject,
    Capability,
    ConfigError,
    Interception,
    Preparation,
    Problem,
    RunTurn,
    SelectContext,
    describe_task,
    make_warning,
)
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.plugins.capability_table import STRATEGIES
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.libraries.strategy_registry import StrategyInputs, get_strategy, load_strategies

if TYPE_CHECKING:
    from lemming.ext import TurnView

_PLAN = re.compile(r"plan(-[0-9a-f]{12})?")
"""Memory key for plans of `plan_execute`; its prompts show the current plan."""


class StrategiesCapability(Capability):
    """Strategies, selected by the key `turn.strategy` of a resume."""

    name = STRATEGIES
    handles = (SelectContext,)

    def intercept(self, effect: SelectContext, turn: Preparation) -> Interception:
        """Note the content, and hide the plan of `plan_execute`, which the strategy itself presents."""
        turn.get_cache(_StrategyContext).selected, values = effect, effect.memories.values
        memories = effect.memories
        if turn.agent.turn.strategy == "plan_execute":
            memories = memories._replace(values={key: values[key] for key in values if not _PLAN.fullmatch(key)})
        return (yield replace(effect, memories=memories, other_memories=[*effect.other_memories, *values]))

    def prepare(self, turn: Preparation) -> Json:
        """Return the strategy's name and inputs. Raises `ConfigError` for an invalid strategy."""
        tick_context, agent, selected = turn.context.tick_context, turn.agent, turn.get_cache(_StrategyContext).selected
        assert agent.turn.strategy, "agents without a strategy do not use this capability"
        assert selected, "SelectContext precedes prepare"
        assert turn.context.prompt, "BuildPrompt precedes prepare"
        request_entry = selected.task.request if selected.task else None
        request = (request_entry.payload.get("hands_on") or request_entry.id) if request_entry else ""
        damaged = frozenset(PurePosixPath(p.file).name.removesuffix(".json") for p in selected.memories.problems)
        try:
            strategy = get_strategy(agent.turn.strategy, tuple(tick_context.config.org.plugins))
            options = strategy.parse_options(agent.turn.options)
            resumes = tick_context.mail.resumes
            tell_task = partial(describe_task, turn.context.prompt, pending_indexes=selected.pending_indexes)
            memories = selected.memories.values
            inputs = StrategyInputs(agent, options, str(request), memories, damaged, resumes, tell_task)
            return {"name": strategy.name, "needs": strategy.given(inputs) if strategy.given else {}}
        except ConfigError as error:
            where = error.where or paths.resume_file(agent.name)
            raise ConfigError(error.message, where=where, hint=error.hint) from error

    def wrap_turn(self, turn: TurnView, run: RunTurn) -> End:
        """Run the turn by the steps of the strategy."""
        strategy_turn = turn.strategy_turn
        strategy = get_strategy(turn.snapshot["name"], strategy_turn.plugins)
        strategy_turn.options = strategy.parse_options(turn.agent.turn.options)
        strategy_turn.snapshot = turn.snapshot["needs"]
        return run(strategy.steps(strategy_turn))


class _StrategyContext:
    """The content of one turn, before anything was hidden from the prompt."""

    def __init__(self, turn: Preparation) -> None:
        self.selected: SelectContext | None = None


def find_strategy_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the problems of an agent's strategy, none without a strategy."""
    agent, config = subject.agent, subject.config
    name, options, plugins = agent.turn.strategy, agent.turn.options, tuple(config.org.plugins)
    if name is None:
        if options:
            hint = 'add a strategy, such as "strategy": "reflexion"'
            yield Problem('"options" requires "strategy"', pointer="/turn/options", hint=hint)
        return
    if name not in load_strategies(plugins) and find_unimported(plugins):
        return  # it may be a plugin's
    try:
        strategy = get_strategy(name, plugins)
    except ConfigError as error:
        yield Problem(error.message, pointer="/turn/strategy", hint=error.hint)
        return
    try:
        strategy_options = strategy.parse_options(options)
    except ConfigError as error:
        yield from (replace(problem, file=subject.file) for problem in error.problems)
        return
    entry = config.models.get(agent.model.key)
    if entry and entry.prompt not in (None, "fit", "full") and name in ("plan_execute", "reflexion"):
        message = f'strategy "{name}" requires a model with "prompt": "full", got "{agent.model.key}"'
        hint = f'choose another model key ("{agent.model.key}" has "prompt": "{entry.prompt}") or the strategy "react"'
        yield make_warning(message, "/turn/strategy", hint)
    if isinstance(strategy_options, Reflexion):
        yield from _validate_critic(subject, strategy_options)


def _validate_critic(subject: AgentSubject, options: Reflexion) -> Iterator[Problem]:
    models = subject.config.models
    if options.model and options.model not in models:
        hint = did_you_mean(options.model, list(models)) or "name a key of config/models.json"
        yield Problem(f'there is no model key "{options.model}"', pointer="/turn/options/model", hint=hint)
    if options.agent:
        agents = survey_agents(subject.org).agents
        if options.agent not in agents:
            hint = did_you_mean(options.agent, list(agents)) or "name an agent with a valid resume"
            yield Problem(f'there is no agent "{options.agent}"', pointer="/turn/options/agent", hint=hint)
    if options.command and not any(is_match("shell", pattern) for pattern in subject.agent.permissions.tools):
        hint = 'add "shell" to permissions.tools'
        message = 'a critic that is a command requires the tool "shell"'
        yield Problem(message, pointer="/turn/options/command", hint=hint)
