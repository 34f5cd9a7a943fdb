"""What capabilities say to people: of what is wrong with how agents use them, and of how things stand.

One that breaks, or is not known here, says so in its own place, and in nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from lemming.kernel.agents import Agent, Survey, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import ConfigError, CorruptState, Problem
from lemming.kernel.files.fields import Json
from lemming.kernel.files.stamps import is_there
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.config import ORG_FILE, Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.uses import named_by
from lemming.kernel.plugins.capabilities import capability, why_missing
from lemming.kernel.plugins.errors import place_of, words_of
from lemming.kernel.plugins.shipped import SHIPPED, WITHIN
from lemming.kernel.tick.edge import tried
from lemming.kernel.tick.firing_plan import takes_turns
from lemming.kernel.tick.soundness.judged import judged
from lemming.kernel.tick.soundness.readers import readers_of, readers_of_turn
from lemming.kernel.turn.seams import Capability, Fact, InUse

T = TypeVar("T")


def names_of_capabilities(config: Config, agents: Iterable[Agent]) -> list[str]:
    """Return the capabilities that ship, and those that the settings or resumes name."""
    named = dict.fromkeys(name for agent in agents for name in sorted(agent.capabilities))
    within = {name: it for name, it in WITHIN.items() if it.brings and it.brings(config.org, None)}
    return [*{**SHIPPED, **within, **config.org.capabilities, **named}]


def problems_of_org(name: str, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
    """Yield what one finds wrong with how the organisation uses it; `only`: about one agent."""
    listed = SHIPPED.get(name)
    for file in listed.files if listed and only is None and why_missing(name) else ():
        if is_there(f"{base}/{file}"):
            hint = "install lemming-engine again, or take the file away"
            yield Problem(f"nobody here reads it: {why_missing(name)}", file, hint=hint)

    def find(asked: Capability) -> list[Problem]:
        is_read = only is None and asked in readers_of(config.org)
        of_key = asked.problems_of_key(base, None, config) if is_read else ()
        return [*asked.problems_of_org(base, config, only), *of_key]

    yield from _problems(name, _asked_safely(name, config, find), ORG_FILE)
    if only is None and name not in SHIPPED:
        users = _users(config, survey_agents(base)).get(name)
        found = _facts_told(Organisation.at(base), config, name, users) if users else ""
        if found and isinstance(found, str):
            hint = "a mistake in its facts, for who wrote the capability to mend"
            why = f'capability "{name}" broke: {found}'
            yield Problem(why, ORG_FILE, hint=hint, severity="warning")


def problems_with_agents(name: str, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
    """Yield what one finds wrong with how each agent uses it, beside what keeps that agent from running."""
    hooks = ("problems", "problems_of_files", "problems_of_key")
    if _asked_safely(name, config, lambda asked: any(_is_own(asked, hook) for hook in hooks)) is not True:
        return  # that it is not here, or breaks, is told of the organisation
    survey = survey_agents(base)
    out = judged(base, config, survey).survey.broken
    for agent in survey.agents.values() if only is None else filter(None, [survey.agents.get(only)]):
        told = {problem.pointer for problem in out[agent.name].problems} if agent.name in out else ()
        found = problems_of_use(name, base, agent, config)
        yield from (problem for problem in found if problem.pointer not in told)


def problems_of_use(name: str, base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what one finds wrong with how an agent uses it, and with files of its that it does not use."""
    listed = SHIPPED.get(name)

    def find(asked: Capability) -> Iterator[Problem]:
        if listed:
            yield from asked.problems_of_files(base, agent, config)
            if asked in (*readers_of(agent), *readers_of_turn(agent)):
                yield from asked.problems_of_key(base, agent, config)
        if _is_own(asked, "problems") and takes_turns(agent, config) and name in named_by(agent, config):
            yield from asked.problems(agent, config)

    yield from _problems(
        name, _asked_safely(name, config, lambda asked: [*find(asked)]), paths.resume_file(agent.name)
    )


def _is_own(asked: Capability, hook: str) -> bool:
    """Return whether a capability has something to say at a moment; who has not need not be asked."""
    return getattr(type(asked), hook, None) is not getattr(Capability, hook)


def _problems(name: str, found: list[Problem] | ConfigError | str, file: str) -> Iterator[Problem]:
    if isinstance(found, list):
        yield from found
    elif isinstance(found, str):  # else it is told where it stands that it is not here
        hint = "a mistake in the capability, for who wrote it to mend"
        yield Problem(f'capability "{name}" broke: {found}', file, hint=hint)


def facts_of(base: OrgPath, config: Config, survey: Survey) -> dict[str, list[Fact]]:
    """Return what the capabilities that are in use say to screens, by name, those that say anything."""
    users = _users(config, survey)
    said = {name: _facts_from(Organisation.at(base), config, name, users[name]) for name in sorted(users)}
    return {name: facts for name, facts in said.items() if facts}


def _users(config: Config, survey: Survey) -> dict[str, dict[str, Agent]]:
    """Return the agents that use a capability, by its name."""
    users: dict[str, dict[str, Agent]] = {}
    for agent in survey.agents.values():
        for name in named_by(agent, config) if takes_turns(agent, config) else ():
            users.setdefault(name, {})[agent.name] = agent
    return users


def _facts_told(
    org: Organisation, config: Config, name: str, agents: dict[str, Agent]
) -> list[Fact] | ConfigError | str:
    def facts(asked: Capability) -> list[Fact]:
        if not _is_own(asked, "facts"):
            return []
        kept = {it: _kept_by(org, it, name) for it in agents}
        return [*asked.facts(InUse(org, config, agents, kept, timestamp(SystemClock().now())))]

    return _asked_safely(name, config, facts)


def _facts_from(org: Organisation, config: Config, name: str, agents: dict[str, Agent]) -> list[Fact]:
    found = _facts_told(org, config, name, agents)
    if isinstance(found, list):
        return found
    if isinstance(found, ConfigError):
        return [Fact("", f"says nothing here: {found.message}")]
    return [Fact("", f"broke: {found}")]


def _kept_by(org: Organisation, agent: str, name: str) -> Json:
    try:
        return read_state(org, agent).kept.get(name, {})
    except CorruptState:  # which is told elsewhere
        return {}


def _asked_safely(name: str, config: Config, ask: Callable[[Capability], T]) -> T | ConfigError | str:
    """Return what a capability says when it is asked, why it is not here, or in words how it broke."""
    found = tried(lambda: ask(capability(name, config.org.plugins)))
    if isinstance(found, Exception) and not isinstance(found, ConfigError):
        return f"{words_of(found)}, at {place_of(found)}"
    return found
