"""Validate agents and settings: each file is checked against the organisation after a change.

An unknown name in a gate, grant, limit or trust rule blocks. In a resume it takes the agent out, as invalid
JSON does; in the settings it stops the run. Every command that shows or runs agents uses this validation.
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
from lemming.kernel.base.jsontext import did_you_mean, escape_pointer_key, locate
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import find_problems, to_value
from lemming.kernel.files.unknown_keys import unknown_keys
from lemming.kernel.org.config import CREDITS_FILE, ORG_FILE, Config, OrgSettings, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import plugin_capabilities, sort_capabilities
from lemming.kernel.plugins.capability_table import LISTED, PREFIXES
from lemming.kernel.plugins.plugin_registry import find_unimported, load_installed_plugins
from lemming.kernel.tick.validation.grant_rules import validate_agent, validate_allocations, validate_creators
from lemming.kernel.tick.validation.inventory import Inventory, PointerProblem
from lemming.kernel.tick.validation.key_readers import capabilities_with_keys
from lemming.kernel.tools import get_server_sources, get_toolset
from lemming.kernel.tools.toolset import OrgToolset, Toolset

CODE = "LMG-308"
NONE_NAMED: Mapping[str, Any] = {}


class ValidatedSurvey(NamedTuple):
    """The runnable agents, with invalid agents among `broken`, and the problems in the settings."""

    survey: Survey
    settings_problems: tuple[Problem, ...]
    is_valid: bool

    def require_valid_settings(self) -> None:
        """Raise `ConfigError` with all problems that stop the run."""
        if self.settings_problems:
            raise ConfigError(str(self.settings_problems[0]), problems=self.settings_problems)


def validate_survey(base: OrgPath, config: Config, survey: Survey) -> ValidatedSurvey:
    """Return the validation of agents and settings; the same object while nothing changes."""
    return Organisation.from_path(base).get_cache(_ValidationCache).validate(config, survey)


def load_validated_survey(base: OrgPath) -> Survey:
    """Return the runnable agents. Raises `ConfigError` for unreadable settings."""
    org = Organisation.from_path(base)
    return validate_survey(org, load_config(org), survey_agents(org)).survey


def require_valid_survey(org: Organisation, config: Config, survey: Survey) -> Survey:
    """Return the runnable agents, loading installed packages if tools are missing.

    Raises `ConfigError` for invalid settings.
    """
    validated = validate_survey(org, config, survey)
    if not validated.is_valid:
        load_installed_plugins()
        validated = validate_survey(org, config, survey)
        validated.require_valid_settings()
    return validated.survey


class _ValidationCache:
    """The last validation result and its inputs."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._inputs: tuple[Any, ...] = ()
        self._result: ValidatedSurvey | None = None

    def validate(self, config: Config, survey: Survey) -> ValidatedSurvey:
        toolset = _load_toolset(self._org, config) if _should_load_toolset(config, survey) else None
        capabilities = _plugin_capabilities(config, survey)
        inputs = (config, survey, toolset, capabilities, *_server_catalogues(self._org, config, survey))
        if self._result is None or not all(map(is_, inputs, self._inputs)):
            self._result = _validate(Inventory(self._org, config, survey, toolset, capabilities))
            self._inputs = inputs
        return self._result


def _should_load_toolset(config: Config, survey: Survey) -> bool:
    mentions_tools = bool(survey.by_tool or survey.extension_keys or config.org.extensions)
    return mentions_tools or bool(config.org.tool_files)


def _plugin_capabilities(config: Config, survey: Survey) -> Mapping[str, Any]:
    """Return the external capabilities; none are loaded if no file names any."""
    if not (config.org.capabilities or survey.has_plugin_capabilities):
        return NONE_NAMED
    return plugin_capabilities(config.org.plugins)


def _server_catalogues(org: Organisation, config: Config, survey: Survey) -> list[object]:
    """Return the catalogues of servers, if any agent names server tools."""
    named = [*survey.by_tool]
    key_sources: list[OrgSettings | Agent] = [config.org, *survey.agents.values()]
    for reader in dict.fromkeys(reader for key_source in key_sources for reader in capabilities_with_keys(key_source)):
        from lemming.kernel.turn.descriptions import OrgQuery, ToolReference  # only imported where one has keys

        query = OrgQuery(ToolReference, org, survey.agents, config)
        named += [reference.pattern for reference in query.ask(reader)]
    if not any(tool.startswith(PREFIXES) for tool in named):
        return []
    return [source.catalogue for source in get_server_sources(org).values()]


def _load_toolset(org: Organisation, config: Config) -> Toolset | None:
    """Return the tools, or None if not all tools are known. Loads no tool file."""
    settings = config.org
    if find_unimported(settings.plugins) or load_config(org).org.tool_files != settings.tool_files:
        return None
    if settings.tool_files and not org.get_cache(OrgToolset).is_loaded:
        return None
    try:
        return get_toolset(settings, org)
    except ConfigError:
        return None


def _validate(inventory: Inventory) -> ValidatedSurvey:
    survey = inventory.survey
    settings_problems = (
        *_to_problems(inventory.org, ORG_FILE, _validate_settings(inventory)),
        *_to_problems(inventory.org, CREDITS_FILE, validate_allocations(inventory)),
    )
    broken_agents: dict[str, ConfigError] = {}
    without_tools = inventory.toolset.broken_agents if inventory.toolset else {}
    for name, agent in survey.agents.items():
        if tool_problems := without_tools.get(name):
            broken_agents[name] = ConfigError(str(tool_problems[0]), problems=tuple(tool_problems))
            continue
        faults = [*validate_agent(agent, inventory)]
        if agent.capabilities:
            faults += validate_blocks(agent.capabilities, "agent_settings_type", inventory)
        faults += _validate_references(agent, inventory)
        if faults:
            problems = tuple(_to_problems(inventory.org, paths.resume_file(name), faults))
            broken_agents[name] = ConfigError(str(problems[0]), problems=problems)
    if not broken_agents:
        return ValidatedSurvey(survey, settings_problems, is_valid=not settings_problems)
    agents = {name: agent for name, agent in survey.agents.items() if name not in broken_agents}
    broken = dict(sorted({**survey.broken, **broken_agents}.items()))
    return ValidatedSurvey(replace(survey, agents=agents, broken=broken), settings_problems, is_valid=False)


def _validate_settings(inventory: Inventory) -> Iterator[PointerProblem]:
    settings = inventory.config.org
    yield from _validate_references(None, inventory)
    if settings.capabilities or inventory.survey.has_plugin_capabilities:
        yield from validate_blocks(settings.capabilities, "org_settings_type", inventory)
        yield from validate_order(inventory)
    yield from validate_creators(inventory)


def _validate_references(agent: Agent | None, inventory: Inventory) -> Iterator[PointerProblem]:
    for reader in capabilities_with_keys(agent or inventory.config.org):
        from lemming.kernel.turn.descriptions import ReferenceCheck  # only imported where a capability has keys

        for problem in reader.check(ReferenceCheck(agent, inventory)):
            yield PointerProblem(problem.pointer, problem.message, problem.hint)


def _to_problems(org: Organisation, file: str, faults: Iterable[PointerProblem]) -> Iterator[Problem]:
    text = ""
    for fault in faults:
        try:
            text = text or fs.read_bytes(org / file, RESUME_LIMIT_BYTES * 4).decode("utf-8", "replace")
        except OSError:  # it has gone since, or stands for the default
            text = " "
        text = text.removeprefix("\ufeff")
        line, column = locate(text, fault.at)
        if not line:  # a missing key has the location of its parent
            line, column = locate(text, fault.at.rpartition("/")[0])
        yield Problem(fault.message, file, line, column, fault.at, fault.hint, code=CODE)


def validate_blocks(
    blocks: Mapping[str, Any], kind: Literal["org_settings_type", "agent_settings_type"], inventory: Inventory
) -> Iterator[PointerProblem]:
    """Yield problems in capability blocks; with an unimported plugin, an unknown name may be valid."""
    plugins = inventory.config.org.plugins
    for name, raw_block in blocks.items():
        at = f"/capabilities/{escape_pointer_key(name)}"
        if name in LISTED:
            keys = ", ".join(f'"{key}"' for key in LISTED[name].keys_at("resume"))
            hint = f"use its keys in a resume: {keys}" if keys else "use the keys in config/org.json"
            yield PointerProblem(at, f'capability "{name}" is part of LeMMing and has no block here', hint)
        elif name in inventory.capabilities:
            yield from _validate_block(name, getattr(inventory.capabilities[name], kind), raw_block)
        elif not find_unimported(plugins):
            hint = "install its package, or add its module to plugins in config/org.json"
            suggestion = did_you_mean(name, [*inventory.capabilities])
            yield PointerProblem(at, f'capability "{name}" is not installed', suggestion or hint)


def _validate_block(name: str, kind: type[Any], raw_block: dict[str, Any]) -> Iterator[PointerProblem]:
    at = f"/capabilities/{name}"
    for unknown_key in unknown_keys({name: raw_block}, GenericAlias(dict, (str, kind))):
        yield PointerProblem(f"/capabilities{unknown_key.pointer}", unknown_key.message, unknown_key.hint)
    try:
        to_value(kind, raw_block)
    except TypeError as error:  # a custom class
        yield PointerProblem(
            at, f"settings of the capability must come from JSON: {error}", "tell the author of the capability"
        )
    except ValueError:
        for problem in find_problems(kind, raw_block):
            yield PointerProblem(f"{at}{problem.pointer}", problem.message, problem.hint)


def validate_order(inventory: Inventory) -> Iterator[PointerProblem]:
    """Yield the problem of capabilities with a cyclic order."""
    agents = inventory.survey.agents.values()
    named = {*inventory.config.org.capabilities, *(name for agent in agents for name in agent.capabilities)}
    try:
        sort_capabilities(named & inventory.capabilities.keys(), inventory.config.org.plugins)
    except ConfigError as error:
        yield PointerProblem("/capabilities", error.message, "remove one of them")
