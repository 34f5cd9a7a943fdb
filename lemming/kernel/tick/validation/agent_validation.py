"""Validate agents and settings: each file is checked against the organisation after a change.

An unknown name in a gate, grant, limit or trust rule blocks. In a resume it takes the agent out, as invalid
JSON does; in the settings it stops the run. Every command that shows or runs agents uses this validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from operator import is_
from types import GenericAlias
from typing import Any, NamedTuple

from lemming.kernel.access.allowed_paths import MEMORY_GRANT, grant_error
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, Survey, suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import correct_typo, did_you_mean, escape_pointer_key, locate
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import find_problems, to_value
from lemming.kernel.files.unknown_keys import unknown_keys
from lemming.kernel.org.config import Config, OrgSettings, load_config
from lemming.kernel.org.model_entries import has_model_key
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.resume import has_turn_key
from lemming.kernel.plugins.capability_loader import (
    get_capability,
    missing_for_provider,
    missing_keys,
    plugin_capabilities,
    sort_capabilities,
)
from lemming.kernel.plugins.capability_table import (
    LISTED,
    NO_MODELS,
    ORG_KEYS,
    PREFIXES,
    RESUME_KEYS,
    SHIPPED,
    find_key_owners,
    find_member_capabilities,
)
from lemming.kernel.plugins.plugin_registry import find_unimported, load_installed_plugins
from lemming.kernel.tick.validation.checks import AgentSubject, Check, CheckSubject, Inventory, find_check, load_toolset
from lemming.kernel.tools import get_server_sources
from lemming.kernel.tools.toolset import OrgToolset

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
    """Return the runnable agents; installed packages are loaded if tools are missing. Raises `ConfigError`."""
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
        names_tools = bool(survey.by_tool or survey.extension_keys or config.org.extensions)
        # No tool file has to be loaded for the names of tools.
        can_load = self._org.get_cache(OrgToolset).is_loaded if config.org.tool_files else names_tools
        toolset = load_toolset(self._org, config) if can_load else None
        names_plugins = config.org.capabilities or survey.has_plugin_capabilities
        capabilities = plugin_capabilities(config.org.plugins) if names_plugins else NONE_NAMED
        inputs = (config, survey, toolset, capabilities, *_server_catalogues(self._org, config, survey))
        if self._result is None or not all(map(is_, inputs, self._inputs)):
            self._result = _validate(Inventory(self._org, config, survey, toolset, capabilities))
            self._inputs = inputs
        return self._result


def _server_catalogues(org: Organisation, config: Config, survey: Survey) -> list[object]:
    """Return the catalogues of servers, if any agent names server tools."""
    named = [*survey.by_tool]
    key_sources: list[OrgSettings | Agent] = [config.org, *survey.agents.values()]
    names = dict.fromkeys(name for source in key_sources for name in _find_key_readers(source))
    for reader in map(get_capability, names):
        from lemming.kernel.turn.descriptions import OrgQuery, ToolReference  # only imported where one has keys

        query = OrgQuery(ToolReference, org, survey.agents, config)
        named += [reference.pattern for reference in query.ask(reader)]
    if not any(tool.startswith(PREFIXES) for tool in named):
        return []
    return [source.catalogue for source in get_server_sources(org).values()]


def _validate(inventory: Inventory) -> ValidatedSurvey:
    survey = inventory.survey
    subject = partial(AgentSubject, org=inventory.org, config=inventory.config, inventory=inventory)
    settings_problems = (
        *_find_problems(CheckSubject(org=inventory.org, config=inventory.config, inventory=inventory)),
    )
    broken_agents: dict[str, ConfigError] = {}
    without_tools = inventory.toolset.broken_agents if inventory.toolset else {}
    for name, agent in survey.agents.items():
        problems = tuple(without_tools.get(name, ())) or (*_find_problems(subject(agent=agent)),)
        if problems:
            broken_agents[name] = ConfigError(str(problems[0]), problems=problems)
    if not broken_agents:
        return ValidatedSurvey(survey, settings_problems, is_valid=not settings_problems)
    agents = {name: agent for name, agent in survey.agents.items() if name not in broken_agents}
    broken = dict(sorted({**survey.broken, **broken_agents}.items()))
    return ValidatedSurvey(replace(survey, agents=agents, broken=broken), settings_problems, is_valid=False)


def _find_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield the located problems of the checks of scope `resume`, or of scope `settings` without an agent."""
    for check in RESUME_CHECKS if subject.agent else SETTINGS_CHECKS:
        for problem in check.find(subject):
            problem = replace(problem, file=problem.file or subject.file, code=CODE)
            yield locate_problem(problem, subject.org)


def locate_problem(problem: Problem, base: OrgPath, raw: bytes | None = None) -> Problem:
    """Return a problem with the line and column of the pointer in the file.

    `raw`: the content of the file, if it is not yet written. A missing key has the location of its parent.
    """
    if problem.line or not problem.pointer:
        return problem
    try:
        raw = fs.read_bytes(base / problem.file, RESUME_LIMIT_BYTES * 4) if raw is None else raw
    except OSError:  # it has gone since, or stands for the default
        return problem
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    line, column = locate(text, problem.pointer)
    if not line:
        line, column = locate(text, problem.pointer.rpartition("/")[0])
    return replace(problem, line=line, column=column)


def _find_key_readers(source: OrgSettings | Agent) -> list[str]:
    """Return the shipped capabilities with keys in the settings or the resume; no other is loaded."""
    if not source.extensions:
        return []
    is_agent = isinstance(source, Agent)
    names = {*find_key_owners(RESUME_KEYS if is_agent else ORG_KEYS, source.extensions)}
    if is_agent:
        names.update(find_member_capabilities(source))
    return [name for name in SHIPPED if name in names]


def _find_reference_typos(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems found by capabilities in keys of settings and resumes."""
    for name in _find_key_readers(subject.agent or subject.config.org):
        if find := find_check(name, "resume" if subject.agent else "settings"):
            yield from find(subject)


def _find_block_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems in capability blocks; with an unimported plugin, an unknown name may be valid."""
    kind = "agent_settings_type" if subject.agent else "org_settings_type"
    inventory, plugins = subject.names, subject.config.org.plugins
    for name, raw_block in (subject.agent or subject.config.org).capabilities.items():
        pointer = f"/capabilities/{escape_pointer_key(name)}"
        if name in LISTED:
            keys = ", ".join(f'"{key}"' for key in LISTED[name].keys_at("resume"))
            hint = f"use its keys in a resume: {keys}" if keys else "use the keys in config/org.json"
            message = f'capability "{name}" is part of LeMMing and has no block here'
            yield Problem(message, pointer=pointer, hint=hint)
        elif name in inventory.capabilities:
            yield from _validate_block(name, getattr(inventory.capabilities[name], kind), raw_block)
        elif not find_unimported(plugins):
            hint = "install its package, or add its module to plugins in config/org.json"
            suggestion = did_you_mean(name, [*inventory.capabilities])
            yield Problem(f'capability "{name}" is not installed', pointer=pointer, hint=suggestion or hint)


def _validate_block(name: str, kind: type[Any], raw_block: dict[str, Any]) -> Iterator[Problem]:
    pointer = f"/capabilities/{name}"
    for unknown_key in unknown_keys({name: raw_block}, GenericAlias(dict, (str, kind))):
        yield Problem(unknown_key.message, pointer=f"/capabilities{unknown_key.pointer}", hint=unknown_key.hint)
    try:
        to_value(kind, raw_block)
    except TypeError as error:  # a custom class
        message = f"settings of the capability must come from JSON: {error}"
        yield Problem(message, pointer=pointer, hint="tell the author of the capability")
    except ValueError:
        for problem in find_problems(kind, raw_block):
            yield Problem(problem.message, pointer=f"{pointer}{problem.pointer}", hint=problem.hint)


def _find_order_problem(subject: CheckSubject) -> Iterator[Problem]:
    """Yield the problem of capabilities with a cyclic order."""
    agents = subject.names.survey.agents.values()
    named = {*subject.config.org.capabilities, *(name for agent in agents for name in agent.capabilities)}
    try:
        sort_capabilities(named & subject.names.capabilities.keys(), subject.config.org.plugins)
    except ConfigError as error:
        yield Problem(error.message, pointer="/capabilities", hint="remove one of them")


_LATER = 'set "may_be_absent": true for a later agent'


def find_creator_typos(subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems of unknown model keys and agents in the settings for creating agents."""
    settings, keys, names = subject.config.org, [*subject.config.models], subject.names.agent_names
    for index, key in enumerate(settings.create_agent_models):
        if key not in keys:
            hint = did_you_mean(key, keys) or f"use one of the keys: {', '.join(sorted(keys))}"
            yield Problem(f'model key "{key}" does not exist', pointer=f"/create_agent_models/{index}", hint=hint)
    for index, name in enumerate(settings.create_agent_allowed):
        if name not in names and (suggestion := correct_typo(name, names)):
            yield _missing_agent(name, f"/create_agent_allowed/{index}", f'did you mean "{suggestion}"?')


def _missing_agent(name: str, pointer: str, hint: str, file: str = "") -> Problem:
    return Problem(f'agent "{name}" does not exist', file, pointer=pointer, hint=hint)


def find_allocation_typos(subject: CheckSubject) -> Iterator[Problem]:
    """Yield allocations that name an agent nearly. That of a removed agent is kept, for its return."""
    allocations, names = subject.config.allocations, subject.names.agent_names
    unallocated = [name for name in names if name not in allocations]
    for name, allocation in allocations.items():
        if name in names:
            continue
        if not paths.AGENT_NAME.match(name):
            hint = suggest_agent(name, names)
            yield Problem(f'"{name}" is not a valid agent name', paths.CREDITS_FILE, pointer=f"/{name}", hint=hint)
        elif (suggestion := correct_typo(name, unallocated)) and not allocation.may_be_absent:
            yield _missing_agent(name, f"/{name}", f'did you mean "{suggestion}"? {_LATER}', paths.CREDITS_FILE)


def find_missing_readers(subject: AgentSubject) -> Iterator[Problem]:
    """Yield keys and models of a resume whose capability is not installed."""
    agent, models = subject.agent, subject.config.models
    for key, missing in missing_keys("turn").items():
        if has_turn_key(agent.turn, key):
            message = f'key "{key}" needs a capability that is not installed: {missing}'
            yield Problem(message, pointer=f"/turn/{key}", hint="remove the key")
    if missing := missing_for_provider(subject.names.agent_provider(agent.name)):
        yield Problem(missing, pointer="/model/key", hint="choose another model key")
    for model, (key, missing) in product((agent.model.key, *agent.model.fallback), missing_keys("model").items()):
        entry = models.get(model)
        if entry and entry.provider not in NO_MODELS and has_model_key(entry, key):
            line = f'key "{key}" of the line "{model}" in {paths.MODELS_FILE}'
            message = f"{line} needs a capability that is not installed: {missing}"
            yield Problem(message, pointer="/model", hint="remove the key there")


def find_grant_typos(subject: AgentSubject) -> Iterator[Problem]:
    """Yield problems of unknown names in an agent's grants.

    A missing tool or agent in a grant may be added later and grants nothing until then: a warning elsewhere
    reports it. A name that resembles an existing tool or agent is a problem.
    """
    permissions, inventory = subject.agent.permissions, subject.names
    agent_names = inventory.agent_names
    for index, name in enumerate(() if permissions.may_be_absent else permissions.tools):
        pointer = f"/permissions/tools/{index}"
        if not (problem := inventory.missing_tool_reason(name)):
            continue
        if suggestion := correct_typo(name, sorted(inventory.tool_names)):
            gaps = f"{inventory.toolset.gaps}; " if inventory.toolset and inventory.toolset.gaps else ""
            hint = f'{gaps}did you mean "{suggestion}"?'
            yield Problem(f'tool "{name}" does not exist', pointer=pointer, hint=hint)
        elif "*" in name or name.startswith(PREFIXES):
            yield Problem(problem[0], pointer=pointer, hint=f"{problem[1]}; {_LATER}")
    for index, name in enumerate(() if permissions.may_be_absent else permissions.read_outboxes):
        pointer = f"/permissions/read_outboxes/{index}"
        if name in ("*", *agent_names):
            continue
        if "*" in name:
            hint = 'use names of agents, or "*" alone for all'
            yield Problem(f'must be the name of an agent, got "{name}"', pointer=pointer, hint=hint)
        elif suggestion := correct_typo(name, agent_names):
            yield _missing_agent(name, pointer, f'did you mean "{suggestion}"?')
    for index, grant in enumerate(permissions.read_memories):
        pointer, match = f"/permissions/read_memories/{index}", MEMORY_GRANT.fullmatch(grant)
        if match is None:
            hint = 'write for example "planner/goal" or "planner/*"'
            yield Problem(f'must be AGENT/KEY, got "{grant}"', pointer=pointer, hint=hint)
        elif match["owner"] not in agent_names and not permissions.may_be_absent:
            yield _missing_agent(match["owner"], pointer, did_you_mean(match["owner"], sorted(agent_names)) or _LATER)
    files = permissions.file_access
    for key, grants in (("allow_read", files.allow_read), ("allow_write", files.allow_write)):
        for index, grant in enumerate(grants):
            if reason := grant_error(grant):
                hint = "use ./workspace, ./shared, a folder in one of them, or an absolute path"
                pointer = f"/permissions/file_access/{key}/{index}"
                yield Problem(f'"{grant}" grants nothing: {reason}', pointer=pointer, hint=hint)


_settings, _resume = partial(Check, cost="files", scope="settings"), partial(Check, cost="files", scope="resume")
SETTINGS_CHECKS = (
    _settings("keys", description="names in keys of capabilities", find=_find_reference_typos),
    _settings("blocks", description="blocks of capabilities", find=_find_block_problems),
    _settings("order", description="the order of capabilities", find=_find_order_problem),
    _settings("creators", description="agents and models for new agents", find=find_creator_typos),
    _settings("allocations", description="agents in config/credits.json", find=find_allocation_typos),
)
RESUME_CHECKS = (
    _resume("readers", description="keys and models whose capability is missing", find=find_missing_readers),
    _resume("grants", description="tools, agents, memories and folders in grants", find=find_grant_typos),
    _resume("blocks", description="blocks of capabilities", find=_find_block_problems),
    _resume("keys", description="names in keys of capabilities", find=_find_reference_typos),
)
"""Run by every reader of resumes before a tick: an agent with errors of them is broken."""
