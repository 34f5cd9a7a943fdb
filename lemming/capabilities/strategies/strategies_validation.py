"""Validate the strategy in a resume before any turn uses the strategy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lemming.capabilities.strategies.reflexion import ReflexionOptions as Reflexion
from lemming.ext import ConfigError, Problem
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.libraries.strategy_registry import get_strategy, load_strategies


def validate_strategy(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield the problems of an agent's strategy, none without a strategy."""
    name, options = agent.turn.strategy, agent.turn.options
    file, plugins = paths.resume_file(agent.name), tuple(config.org.plugins)
    if name is None:
        if options:
            hint = 'add a strategy, such as "strategy": "reflexion"'
            yield Problem('"options" requires "strategy"', file, pointer="/turn/options", hint=hint)
        return
    if name not in load_strategies(plugins) and find_unimported(plugins):
        return  # it may be a plugin's
    try:
        strategy = get_strategy(name, plugins)
    except ConfigError as error:
        yield Problem(error.message, file, pointer="/turn/strategy", hint=error.hint)
        return
    try:
        strategy_options = strategy.parse_options(options)
    except ConfigError as error:
        yield from (replace(problem, file=file) for problem in error.problems)
        return
    entry = config.models.get(agent.model.key)
    if entry and entry.prompt not in (None, "fit", "full") and name in ("plan_execute", "reflexion"):
        message = f'strategy "{name}" requires a model with "prompt": "full", got "{agent.model.key}"'
        hint = f'choose another model key ("{agent.model.key}" has "prompt": "{entry.prompt}") or the strategy "react"'
        yield Problem(message, file, pointer="/turn/strategy", hint=hint, severity="warning")
    if isinstance(strategy_options, Reflexion):
        yield from _validate_critic(base, agent, config, strategy_options)


def _validate_critic(base: OrgPath, agent: Agent, config: Config, options: Reflexion) -> Iterator[Problem]:
    """Yield the problems of the critic in a strategy's options."""
    file = paths.resume_file(agent.name)
    if options.model and options.model not in config.models:
        hint = did_you_mean(options.model, list(config.models)) or "name a key of config/models.json"
        yield Problem(f'there is no model key "{options.model}"', file, pointer="/turn/options/model", hint=hint)
    if options.agent:
        agents = survey_agents(base).agents
        if options.agent not in agents:
            hint = did_you_mean(options.agent, list(agents)) or "name an agent with a valid resume"
            yield Problem(f'there is no agent "{options.agent}"', file, pointer="/turn/options/agent", hint=hint)
    if options.command and not any(is_match("shell", pattern) for pattern in agent.permissions.tools):
        hint = 'add "shell" to permissions.tools'
        message = 'a critic that is a command requires the tool "shell"'
        yield Problem(message, file, pointer="/turn/options/command", hint=hint)
