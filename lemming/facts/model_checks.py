"""What can be known to be wrong with whom an agent asks, before it asks."""

from __future__ import annotations

from lemming.agents import Agent
from lemming.org.config import Config
from lemming.org.models import ANSWERS_KNOWN
from lemming.providers import is_channel, is_person

READ_VALUES = ("plan", "clock")
"""Providers that read no prose: in a prompt that is not `values` each of their turns fails."""


def fallbacks_that_help_nobody(agent: Agent, config: Config) -> dict[int, tuple[str, str]]:
    """Return why keys of a `model.fallback` cannot stand in for the model, and what to do, by their place."""
    found: dict[int, tuple[str, str]] = {}
    before = [agent.model.key]
    for index, key in enumerate(agent.model.fallback):
        if key in before:
            found[index] = (f'"{key}" has been asked by then', "name each model key once, and not model.key")
        elif why := _why_no_stand_in(key, agent, config):
            found[index] = (why, "a fallback is a model that reads the same prompt")
        before.append(key)
    return found


def _why_no_stand_in(key: str, agent: Agent, config: Config) -> str:
    entry, own = config.models.get(key), config.models.get(agent.model.key)
    if entry is None or own is None:  # which is told by itself
        return ""
    plugins = config.org.plugins
    if is_person(own.provider, plugins) or is_channel(own.provider, plugins) or own.provider in ANSWERS_KNOWN:
        return f'model key "{agent.model.key}" is no model that could fail: nobody stands in for it'
    if (
        is_person(entry.provider, plugins)
        or is_channel(entry.provider, plugins)
        or entry.provider in ANSWERS_KNOWN
    ):
        return f'model key "{key}" is no model: nobody is asked'
    if "values" in (entry.prompt, own.prompt) and entry.prompt != own.prompt:
        return f'model key "{key}" reads "prompt": "{entry.prompt}", and this agent\'s "{own.prompt}"'
    return ""
