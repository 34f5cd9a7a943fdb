"""What is wrong with the strategy that a resume names, before a turn goes by it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lemming.capabilities.strategies.reflexion import Options as Reflexion
from lemming.capabilities.strategies.registry import strategies_of, strategy_of
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.patterns import is_named
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.registry import not_imported


def problems_of_strategy(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what is wrong; nothing for an agent that names no strategy."""
    name, options = agent.turn.strategy, agent.turn.options
    file, plugins = paths.resume_file(agent.name), tuple(config.org.plugins)
    if name is None:
        if options:
            hint = 'name one: "strategy": "reflexion"'
            yield Problem("options of no strategy", file, pointer="/turn/options", hint=hint)
        return
    if name not in strategies_of(plugins) and not_imported(plugins):
        return  # it may be a plugin's
    try:
        known = strategy_of(name, plugins)
    except ConfigError as error:
        yield Problem(error.message, file, pointer="/turn/strategy", hint=error.hint)
        return
    try:
        said = known.options_of(options)
    except ConfigError as error:
        yield from (replace(problem, file=file) for problem in error.problems)
        return
    entry = config.models.get(agent.model.key)
    if entry and entry.prompt not in (None, "fit", "full") and name in ("plan_execute", "reflexion"):
        message = f'strategy "{name}" wants a model whose prompt is full, and "{agent.model.key}" has not'
        hint = f'{agent.model.key} reads "prompt": "{entry.prompt}"; take another model key or "react"'
        yield Problem(message, file, pointer="/turn/strategy", hint=hint, severity="warning")
    if isinstance(said, Reflexion):
        yield from _critic_problems(base, agent, config, said)


def _critic_problems(base: OrgPath, agent: Agent, config: Config, options: Reflexion) -> Iterator[Problem]:
    """Yield what keeps the critic from judging."""
    file = paths.resume_file(agent.name)
    if options.model and options.model not in config.models:
        hint = nearest(options.model, list(config.models)) or "name a key of config/models.json"
        yield Problem(
            f'there is no model key "{options.model}"', file, pointer="/turn/options/model", hint=hint
        )
    if options.agent:
        agents = survey_agents(base).agents
        if options.agent not in agents:
            hint = nearest(options.agent, list(agents)) or "name an agent whose resume is sound"
            yield Problem(
                f'there is no agent "{options.agent}"', file, pointer="/turn/options/agent", hint=hint
            )
    if options.command and not any(is_named("shell", pattern) for pattern in agent.permissions.tools):
        hint = 'add "shell" to permissions.tools'
        what = "the critic is a command, and the agent may not run any"
        yield Problem(what, file, pointer="/turn/options/command", hint=hint)
