"""What capabilities say to people: of what is wrong with how agents use them, and of how things stand.

One that breaks, or is not known here, says so in its own place, and in nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from lemming.agents import Agent, Survey
from lemming.base import paths
from lemming.base.clock import SystemClock, timestamp
from lemming.base.errors import ConfigError, CorruptState, Problem
from lemming.files.fields import Json
from lemming.files.stamps import is_there
from lemming.journal.ledger import read_state
from lemming.org.config import ORG_FILE, Config
from lemming.org.organisation import Organisation, OrgPath
from lemming.org.uses import named_by
from lemming.plugins.capabilities import capability, why_missing
from lemming.plugins.errors import place_of, words_of
from lemming.plugins.shipped import SHIPPED
from lemming.tick.edge import tried
from lemming.tick.plan import takes_turns
from lemming.turn.seams import Capability, Fact, InUse

T = TypeVar("T")


def problems_of_capabilities(agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what capabilities find wrong with how an agent uses them, beside what stops it from running."""
    for name in sorted(named_by(agent, config)):
        found = _told(name, config, lambda asked: [*asked.problems(agent, config)])
        yield from _problems(name, found, paths.resume_file(agent.name))


def problems_of_files(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what capabilities find wrong with files of theirs, of an agent that uses them or not."""
    for name in SHIPPED:
        found = _told(name, config, lambda asked: [*asked.problems_of_files(base, agent, config)])
        yield from _problems(name, found, paths.resume_file(agent.name))


def capability_problems_of_org(base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
    """Yield what capabilities find wrong with how the organisation uses them; `only`: about one agent."""
    for name, listed in SHIPPED.items():
        for file in listed.files if only is None and why_missing(name) else ():
            if is_there(f"{base}/{file}"):
                hint = "install lemming-engine again, or take the file away"
                yield Problem(f"nobody here reads it: {why_missing(name)}", file, hint=hint)
    for name in {**SHIPPED, **config.org.capabilities}:
        found = _told(name, config, lambda asked: [*asked.problems_of_org(base, config, only)])
        yield from _problems(name, found, ORG_FILE)


def _problems(name: str, found: list[Problem] | ConfigError | str, file: str) -> Iterator[Problem]:
    if isinstance(found, list):
        yield from found
    elif isinstance(found, str):  # else it is told where it stands that it is not here
        hint = "a mistake in the capability, for who wrote it to mend"
        yield Problem(f'capability "{name}" broke: {found}', file, hint=hint)


def facts_of(base: OrgPath, config: Config, survey: Survey) -> dict[str, list[Fact]]:
    """Return what the capabilities that are in use say to screens, by name, those that say anything."""
    users: dict[str, dict[str, Agent]] = {}
    for agent in survey.agents.values():
        for name in named_by(agent, config) if takes_turns(agent, config) else ():
            users.setdefault(name, {})[agent.name] = agent
    said = {name: _said(Organisation.at(base), config, name, users[name]) for name in sorted(users)}
    return {name: facts for name, facts in said.items() if facts}


def _said(org: Organisation, config: Config, name: str, agents: dict[str, Agent]) -> list[Fact]:
    def facts(asked: Capability) -> list[Fact]:
        if type(asked).facts is Capability.facts:
            return []
        kept = {it: _kept(org, it, name) for it in agents}
        return [*asked.facts(InUse(org, config, agents, kept, timestamp(SystemClock().now())))]

    found = _told(name, config, facts)
    if isinstance(found, list):
        return found
    if isinstance(found, ConfigError):
        return [Fact("", f"says nothing here: {found.message}")]
    return [Fact("", f"broke: {found}")]


def _kept(org: Organisation, agent: str, name: str) -> Json:
    try:
        return read_state(org, agent).kept.get(name, {})
    except CorruptState:  # which is told elsewhere
        return {}


def _told(name: str, config: Config, ask: Callable[[Capability], T]) -> T | ConfigError | str:
    """Return what a capability says when it is asked, why it is not here, or in words how it broke."""
    found = tried(lambda: ask(capability(name, config.org.plugins)))
    if isinstance(found, Exception) and not isinstance(found, ConfigError):
        return f"{words_of(found)}, at {place_of(found)}"
    return found
