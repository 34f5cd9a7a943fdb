"""The agents that may run, and what stops all: each file held against what there is, when that has changed.

What is not understood in a gate, grant, limit or trust rule blocks. In a resume it takes that agent out, as a
resume that is no JSON does; in the settings it stops the run. Whoever shows or runs agents goes by this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import is_
from types import GenericAlias
from typing import Any, Literal, NamedTuple

from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, Survey, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import escaped, locate, nearest
from lemming.kernel.files import fs
from lemming.kernel.files.documents import problems_of, value_of
from lemming.kernel.files.unknown import unknown_keys
from lemming.kernel.org.config import CREDITS_FILE, ORG_FILE, Config, Org, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capabilities import brought, in_order
from lemming.kernel.plugins.registry import load_installed_plugins, not_imported
from lemming.kernel.plugins.shipped import LISTED, PREFIXES
from lemming.kernel.tick.soundness.inventory import Fault, Inventory
from lemming.kernel.tick.soundness.readers import readers_of
from lemming.kernel.tick.soundness.rules import (
    wrong_with_agent,
    wrong_with_allocations,
    wrong_with_creators,
)
from lemming.kernel.tools import server_sources, toolset_of
from lemming.kernel.tools.toolset import OwnToolset, Toolset

CODE = "LMG-308"
NONE_NAMED: Mapping[str, Any] = {}


class SoundSurvey(NamedTuple):
    """The agents as they may run, those out among `broken`, and what is wrong with the settings."""

    survey: Survey
    stops: tuple[Problem, ...]
    is_sound: bool

    def require_sound_settings(self) -> None:
        """Raise `ConfigError` with all that stops the run."""
        if self.stops:
            raise ConfigError(str(self.stops[0]), problems=self.stops)


def judged(base: OrgPath, config: Config, survey: Survey) -> SoundSurvey:
    """Return what becomes of agents and settings; the very same value while nothing changes."""
    return Organisation.at(base).own(_Latest).of(config, survey)


def sound_survey(base: OrgPath) -> Survey:
    """Return the agents as they may run. Raises `ConfigError` for settings that cannot be read."""
    org = Organisation.at(base)
    return judged(org, load_config(org), survey_agents(org)).survey


def who_may_run(org: Organisation, config: Config, survey: Survey) -> Survey:
    """Return the agents as they may run; what is missing may be the tool of a package that is installed.

    Raises `ConfigError` for settings that nobody understands.
    """
    found = judged(org, config, survey)
    if not found.is_sound:
        load_installed_plugins()
        found = judged(org, config, survey)
        found.require_sound_settings()
    return found.survey


class _Latest:
    """What was judged last, and what it was made of."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._parts: tuple[Any, ...] = ()
        self._judged: SoundSurvey | None = None

    def of(self, config: Config, survey: Survey) -> SoundSurvey:
        toolset = _toolset_of(self._org, config) if _is_about_tools(config, survey) else None
        capabilities = _capabilities_of(config, survey)
        parts = (config, survey, toolset, capabilities, *_known_of_servers(self._org, config, survey))
        if self._judged is None or not all(map(is_, parts, self._parts)):
            self._judged = _judge(Inventory(self._org, config, survey, toolset, capabilities))
            self._parts = parts
        return self._judged


def _is_about_tools(config: Config, survey: Survey) -> bool:
    is_named = bool(survey.by_tool or survey.further or config.org.further)
    return is_named or bool(config.org.tool_files)


def _capabilities_of(config: Config, survey: Survey) -> Mapping[str, Any]:
    """Return the capabilities that do not ship; who names none does not look for any."""
    if not (config.org.capabilities or survey.names_capabilities):
        return NONE_NAMED
    return brought(config.org.plugins)


def _known_of_servers(org: Organisation, config: Config, survey: Survey) -> list[object]:
    """Return what is known of servers, where somebody's tools are theirs."""
    named = [*survey.by_tool]
    both: list[Org | Agent] = [config.org, *survey.agents.values()]
    for said in both:
        named += [tool for reader in readers_of(said) for tool in reader.tools_named(said)]
    if not any(tool.startswith(PREFIXES) for tool in named):
        return []
    return [source.known for source in server_sources(org).values()]


def _toolset_of(org: Organisation, config: Config) -> Toolset | None:
    """Return the tools; None where not all are known here. No file of tools is loaded to know them."""
    settings = config.org
    if not_imported(settings.plugins) or load_config(org).org.tool_files != settings.tool_files:
        return None
    if settings.tool_files and not org.own(OwnToolset).has_looked:
        return None
    try:
        return toolset_of(settings, org)
    except ConfigError:
        return None


def _judge(known: Inventory) -> SoundSurvey:
    survey = known.survey
    stops = (
        *_problems(known.org, ORG_FILE, _wrong_with_settings(known)),
        *_problems(known.org, CREDITS_FILE, wrong_with_allocations(known)),
    )
    out: dict[str, ConfigError] = {}
    without_tools = known.toolset.out if known.toolset else {}
    for name, agent in survey.agents.items():
        if of_tools := without_tools.get(name):
            out[name] = ConfigError(str(of_tools[0]), problems=tuple(of_tools))
            continue
        wrong = [*wrong_with_agent(agent, known)]
        if agent.capabilities:
            wrong += wrong_with_blocks(agent.capabilities, "resume_settings", known)
        wrong += [Fault(*it) for reader in readers_of(agent) for it in reader.wrong_with(agent, known)]
        if wrong:
            problems = tuple(_problems(known.org, paths.resume_file(name), wrong))
            out[name] = ConfigError(str(problems[0]), problems=problems)
    if not out:
        return SoundSurvey(survey, stops, is_sound=not stops)
    agents = {name: agent for name, agent in survey.agents.items() if name not in out}
    broken = dict(sorted({**survey.broken, **out}.items()))
    return SoundSurvey(replace(survey, agents=agents, broken=broken), stops, is_sound=False)


def _wrong_with_settings(known: Inventory) -> Iterator[Fault]:
    settings = known.config.org
    for reader in readers_of(settings):
        yield from (Fault(*it) for it in reader.wrong_with(None, known))
    if settings.capabilities or known.survey.names_capabilities:
        yield from wrong_with_blocks(settings.capabilities, "settings", known)
        yield from wrong_with_order(known)
    yield from wrong_with_creators(known)


def _problems(org: Organisation, file: str, found: Iterable[Fault]) -> Iterator[Problem]:
    text = ""
    for wrong in found:
        try:
            text = text or fs.read_bytes(org / file, RESUME_LIMIT_BYTES * 4).decode("utf-8", "replace")
        except OSError:  # it has gone since, or stands for the default
            text = " "
        text = text.removeprefix("\ufeff")
        line, column = locate(text, wrong.at)
        if not line:  # what is missing has the place of what should have it
            line, column = locate(text, wrong.at.rpartition("/")[0])
        yield Problem(wrong.message, file, line, column, wrong.at, wrong.hint, code=CODE)


def wrong_with_blocks(
    blocks: Mapping[str, Any], kind: Literal["settings", "resume_settings"], known: Inventory
) -> Iterator[Fault]:
    """Yield what nobody here understands; where a plugin is not imported, a name may be that of its own."""
    plugins = known.config.org.plugins
    for name, plain in blocks.items():
        at = f"/capabilities/{escaped(name)}"
        if name in LISTED:
            keys = ", ".join(f'"{key}"' for key in LISTED[name].resume)
            hint = f"its keys in a resume: {keys}" if keys else "it has keys of its own"
            yield Fault(at, f'"{name}" ships, and has no block here', hint)
        elif name in known.capabilities:
            yield from _misfits(name, getattr(known.capabilities[name], kind), plain)
        elif not not_imported(plugins):
            hint = "install what brings it, or name its module in plugins of config/org.json"
            meant = nearest(name, [*known.capabilities])
            yield Fault(at, f'no capability "{name}" is installed', meant or hint)


def _misfits(name: str, kind: type[Any], plain: dict[str, Any]) -> Iterator[Fault]:
    at = f"/capabilities/{name}"
    for unknown in unknown_keys({name: plain}, GenericAlias(dict, (str, kind))):
        yield Fault(f"/capabilities{unknown.pointer}", unknown.message, unknown.hint)
    try:
        value_of(kind, plain)
    except TypeError as error:  # somebody's own class
        yield Fault(at, f"its settings cannot come from JSON: {error}", "that is for who wrote it to mend")
    except ValueError:
        for problem in problems_of(kind, plain):
            yield Fault(f"{at}{problem.pointer}", problem.message, problem.hint)


def wrong_with_order(known: Inventory) -> Iterator[Fault]:
    """Yield those that come after each other in a circle."""
    agents = known.survey.agents.values()
    named = {*known.config.org.capabilities, *(name for agent in agents for name in agent.capabilities)}
    try:
        in_order(named & known.capabilities.keys(), known.config.org.plugins)
    except ConfigError as error:
        yield Fault("/capabilities", error.message, "take one of them out")
