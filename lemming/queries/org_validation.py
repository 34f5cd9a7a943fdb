"""Validation of an organisation before it runs: problems with their location."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lemming.kernel.access.agent_files import read_allowed_text
from lemming.kernel.access.allowed_paths import Access, resolve_path
from lemming.kernel.access.context_files import expand_context
from lemming.kernel.access.grant_syntax import grant_error
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, list_agent_folders, suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, PermissionDenied, Problem, ToolError, UnknownModel
from lemming.kernel.base.jsontext import correct_typo, locate
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files import fs
from lemming.kernel.memory import load_memories
from lemming.kernel.org.config import CREDITS_FILE, MODELS_FILE, ORG_FILE, Config
from lemming.kernel.org.credit_limits import has_credit_override, resolve_credits
from lemming.kernel.org.model_entries import PROVIDERS_WITHOUT_MODEL
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import ContextFile, FileAccess
from lemming.kernel.plugins.capability_loader import missing_for_provider
from lemming.kernel.plugins.capability_table import PREFIXES
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.providers import is_channel, is_person, make_provider
from lemming.kernel.tick.firing_plan import has_model_turns
from lemming.kernel.tick.retention import max_retention
from lemming.kernel.tick.validation.agent_validation import validate_survey
from lemming.kernel.tools import get_toolset, missing_server_tool_reason
from lemming.kernel.turn.forms.form_choice import CONTRACT_KEYS
from lemming.kernel.turn.forms.reply_form import MEMORY_WRITE, is_granted
from lemming.queries.capability_status import (
    list_capability_names,
    validate_agent_use,
    validate_agents_use,
    validate_org,
)
from lemming.queries.model_readiness import find_plaintext_secret
from lemming.queries.tool_sources import explain_unloaded_tool, find_unloaded_files

DEFAULT_PROMPT_FORM = "fit"
"""The prompt of a line that does not say which."""
_WANTS_MEMORY = re.compile(r"\bremember|\bmemori[sz]e|\byour memory\b", re.IGNORECASE)
VALUE_PROVIDERS = ("plan", "clock")
"""Providers that read no prose: in a prompt that is not `values` each of their turns fails."""


@dataclass(frozen=True)
class _ResumeLocation:
    """A resume, for problems with a location in its text; `raw` is its future content, if not yet written."""

    org: OrgPath
    file: str
    raw: bytes | None = None

    def make_problem(self, pointer: str, message: str, hint: str, *, severity: str = "error") -> Problem:
        raw = fs.read_bytes(self.org / self.file, RESUME_LIMIT_BYTES) if self.raw is None else self.raw
        text = raw.decode("utf-8", "replace")
        line, column = locate(text.removeprefix("\ufeff"), pointer)
        return Problem(message, self.file, line, column, pointer, hint, severity=severity)


def validate_config(base: OrgPath, config: Config) -> Iterator[Problem]:
    """Yield the problems of the settings, beyond errors that prevent loading."""
    yield from validate_settings(base, config)
    for name in list_capability_names(config, ()):
        yield from validate_org(name, base, config, None)


def validate_settings(base: OrgPath, config: Config) -> Iterator[Problem]:
    """Yield the problems of the settings, without problems that capabilities find."""
    yield from config.warnings
    for key, entry in config.models.items():
        try:
            provider = make_provider(entry.provider, entry.options, base=Path(base), plugins=config.org.plugins)
            if provider.remark:
                yield Problem(provider.remark, MODELS_FILE, pointer=f"/{key}", severity="warning")
        except LemmingError as error:
            if isinstance(error, UnknownModel) and find_unimported(config.org.plugins):
                continue  # it may be a plugin's
            is_here = not missing_for_provider(entry.provider)  # otherwise reported for an agent that has it
            yield Problem(
                f'model key "{key}": {error.message}',
                MODELS_FILE,
                pointer=f"/{key}",
                hint=error.hint,
                severity="error" if is_here else "warning",
            )
        if entry.provider in VALUE_PROVIDERS and entry.prompt != "values":
            prompt_form = entry.prompt or DEFAULT_PROMPT_FORM
            message = (
                f'model key "{key}": prompt must be "values" for {entry.provider}, got "{prompt_form}"; '
                "every turn fails"
            )
            yield Problem(message, MODELS_FILE, pointer=f"/{key}", hint='add "prompt": "values" next to provider')
        if secret := find_plaintext_secret(entry):
            message = f'model key "{key}": {secret} is sent over plain http to another machine'
            hint = "use https, or a tunnel to this machine"
            yield _make_warning(MODELS_FILE, f"/{key}/options", message, hint)
    for key, command in (("on_failure", config.org.on_failure), ("on_waiting", config.org.on_waiting)):
        if command and not _is_program(base, command[0]):
            hint = "write a list of texts: a program on PATH or an absolute path, then its arguments"
            yield _make_warning(ORG_FILE, f"/{key}/0", f'program "{command[0]}" does not exist here', hint)
    yield from validate_survey(base, config, survey_agents(base)).settings_problems
    yield from _validate_allocations(base, config)
    yield from find_unloaded_files(base)


def _is_program(base: OrgPath, program: str) -> bool:
    """Return True if the program is on PATH, or exists at this path relative to the folder."""
    return os.access(base / program, os.X_OK) if "/" in program else bool(shutil.which(program))


def _validate_allocations(base: OrgPath, config: Config) -> Iterator[Problem]:
    """Yield a warning for each allocation without an agent, and for each allocation that overrides a resume."""
    for name, agent in survey_agents(base).agents.items():
        resume_limit = agent.credits.max_credits
        if resume_limit is not None and has_credit_override(config, name, agent.credits):
            allowed = resolve_credits(config, name, agent.credits).max_credits
            message = f"{name} may spend {allowed:g}, not the {resume_limit:g} in {paths.resume_file(name)}"
            hint = "remove the line to undo it: this file overrides resumes (`lemming credits grant` writes it)"
            yield _make_warning(CREDITS_FILE, f"/{name}/max_credits", message, hint)
    folders = list_agent_folders(base)
    for name, allocation in config.allocations.items():
        if not (name in folders or allocation.may_be_absent or correct_typo(name, folders)):  # that one is an error
            hint = suggest_agent(name, folders)
            yield _make_warning(CREDITS_FILE, f"/{name}", f'agent "{name}" does not exist', hint)


def validate_agents(base: OrgPath, config: Config | None, only: str | None) -> Iterator[Problem]:
    """Yield the problems of resumes and of agents' use of capabilities; `only` restricts the search to one agent.

    Without settings, because the settings are broken, each resume is only checked by itself.
    """
    yield from validate_resumes(base, config, only)
    if config:
        for name in list_capability_names(config, survey_agents(base).agents.values()):
            yield from validate_agents_use(name, base, config, only)


def validate_resumes(base: OrgPath, config: Config | None, only: str | None) -> Iterator[Problem]:
    """Yield the problems of resumes, without problems that capabilities find."""
    survey, folders = survey_agents(base), list_agent_folders(base)
    broken_agents = validate_survey(base, config, survey).survey.broken if config else {}
    warnings: dict[str, list[Problem]] = {}
    for warning in survey.warnings:
        warnings.setdefault(warning.file, []).append(warning)
    for name in folders if only is None else [only]:
        if name in survey.broken:
            yield from survey.broken[name].problems
            continue
        if config and name in broken_agents:
            yield from broken_agents[name].problems
        else:
            yield from warnings.get(paths.resume_file(name), ())
        if config and name in survey.agents:  # not without a resume: it is ignored
            reported_pointers = (
                {problem.pointer for problem in broken_agents[name].problems} if name in broken_agents else ()
            )
            resume_problems = _validate_resume(base, survey.agents[name], config, folders)
            yield from (problem for problem in resume_problems if problem.pointer not in reported_pointers)


def validate_resume(
    base: OrgPath, agent: Agent, config: Config, folders: list[str], raw: bytes | None = None
) -> Iterator[Problem]:
    """Yield the problems of a resume in combination with the settings; `raw` is its content if not yet written."""
    yield from _validate_resume(base, agent, config, folders, raw)
    for name in list_capability_names(config, [agent]):
        yield from validate_agent_use(name, base, agent, config)


def _validate_resume(
    base: OrgPath, agent: Agent, config: Config, folders: list[str], raw: bytes | None = None
) -> Iterator[Problem]:
    location = _ResumeLocation(base, paths.resume_file(agent.name), raw)
    if message := paths.new_agent_name_error(agent.name):
        hint = "rename it with `lemming agents rename`: no entry can be addressed to it"
        yield location.make_problem("/name", message, hint, severity="warning")
    yield from _validate_model(location, agent, config)
    yield from _validate_readers(location, agent, folders)
    yield from _validate_retention(location, agent, config)
    yield from _validate_schedule(location, agent, config)
    yield from _validate_tools(location, agent, config, base)
    yield from _validate_file_access(location, agent, base)
    if has_model_turns(agent, config):
        yield from _validate_context(location, agent, base)
        yield from _validate_memory(location, agent, base)


def _validate_model(location: _ResumeLocation, agent: Agent, config: Config) -> Iterator[Problem]:
    keys = [("/model/key", agent.model.key)]
    keys += [(f"/model/fallback/{index}", key) for index, key in enumerate(agent.model.fallback)]
    for pointer, key in keys:
        try:
            config.model(key)
        except UnknownModel as error:
            yield location.make_problem(pointer, error.message, f"{error.hint} ({MODELS_FILE})")
    for index, (message, hint) in _find_useless_fallbacks(agent, config).items():
        yield location.make_problem(f"/model/fallback/{index}", message, hint)


def _find_useless_fallbacks(agent: Agent, config: Config) -> dict[int, tuple[str, str]]:
    """Return the useless keys in `model.fallback`, by index, each with the reason and a fix."""
    reasons: dict[int, tuple[str, str]] = {}
    previous_keys = [agent.model.key]
    for index, key in enumerate(agent.model.fallback):
        if key in previous_keys:
            reasons[index] = (
                f'model key "{key}" has already been tried',
                "name each model key once, and not model.key",
            )
        elif reason := _explain_invalid_fallback(key, agent, config):
            reasons[index] = (reason, "choose a fallback model that reads the same prompt")
        previous_keys.append(key)
    return reasons


def _explain_invalid_fallback(key: str, agent: Agent, config: Config) -> str:
    entry, primary_entry = config.models.get(key), config.models.get(agent.model.key)
    if entry is None or primary_entry is None:  # reported separately
        return ""
    plugins = config.org.plugins
    if (
        is_person(primary_entry.provider, plugins)
        or is_channel(primary_entry.provider, plugins)
        or primary_entry.provider in PROVIDERS_WITHOUT_MODEL
    ):
        return f'model key "{agent.model.key}" is not a model, so a fallback is never used'
    if (
        is_person(entry.provider, plugins)
        or is_channel(entry.provider, plugins)
        or entry.provider in PROVIDERS_WITHOUT_MODEL
    ):
        return f'model key "{key}" is not a model, so it is never called'
    if "values" in (entry.prompt, primary_entry.prompt) and entry.prompt != primary_entry.prompt:
        fallback_form, primary_form = (entry.prompt or DEFAULT_PROMPT_FORM, primary_entry.prompt or DEFAULT_PROMPT_FORM)
        return f'prompt of model key "{key}" must be "{primary_form}" as the agent\'s, got "{fallback_form}"'
    return ""


def _validate_memory(location: _ResumeLocation, agent: Agent, base: OrgPath) -> Iterator[Problem]:
    """Yield a warning if the instructions mention remembering but the agent cannot write memories."""
    if not _WANTS_MEMORY.search(agent.instructions) or is_granted(agent, MEMORY_WRITE):
        return
    if not CONTRACT_KEYS.search(agent.instructions) and not load_memories(base, agent.name).values:
        message = "the instructions speak of remembering, but the agent may not write memories"
        hint = f'add "{MEMORY_WRITE}" to permissions.tools'
        yield location.make_problem("/instructions", message, hint, severity="warning")


def _validate_readers(location: _ResumeLocation, agent: Agent, folders: list[str]) -> Iterator[Problem]:
    for index, name in enumerate(agent.permissions.read_outboxes):
        pointer = f"/permissions/read_outboxes/{index}"
        if name == agent.name:
            hint = "remove it: an agent always sees its own latest entries"
            yield location.make_problem(pointer, "an agent must not read itself", hint, severity="warning")
        elif name != "*" and name not in folders:
            message = f'agent "{name}" does not exist'
            yield location.make_problem(pointer, message, suggest_agent(name, folders), severity="warning")


def _validate_schedule(location: _ResumeLocation, agent: Agent, config: Config) -> Iterator[Problem]:
    if agent.schedule.cron is not None and (agent.schedule.timezone or config.org.timezone) is None:
        hint = 'add "timezone": "Europe/Berlin" here, or for all in config/org.json'
        yield location.make_problem("/schedule/cron", "a cron expression must have a time zone, got none", hint)
    if agent.schedule.cron is None and agent.schedule.missed != "once":
        yield location.make_problem(
            "/schedule/missed", '"missed" needs a cron expression, got none', "add cron", severity="warning"
        )


def _validate_retention(location: _ResumeLocation, agent: Agent, config: Config) -> Iterator[Problem]:
    interval, retention = agent.schedule.run_every_n_ticks, config.org.retention_ticks
    is_reader = agent.permissions.read_outboxes and has_model_turns(agent, config)
    if not (is_reader and 0 < retention < interval):
        return
    longest = max_retention(retention, interval)
    outcome = "they are kept longer for it" if longest > interval else "some are removed before it sees them"
    yield location.make_problem(
        "/schedule/run_every_n_ticks",
        (f"due every {interval} ticks, but entries are kept for {retention} (unseen ones up to {longest}): {outcome}"),
        'raise "retention_ticks" in config/org.json, or let the agent run more often',
        severity="warning",
    )


def _validate_tools(location: _ResumeLocation, agent: Agent, config: Config, base: OrgPath) -> Iterator[Problem]:
    tools = get_toolset(config.org, base).for_agent(agent.name)
    for index, name in enumerate(agent.permissions.tools):
        pointer = f"/permissions/tools/{index}"
        if name.startswith(PREFIXES):
            if server_error := missing_server_tool_reason(base, name, today=True):
                yield location.make_problem(pointer, *server_error)
            continue
        if "*" in name and any(is_match(tool_name, name) for tool_name in tools):
            continue
        try:
            tool = tools.find(name)
        except ToolError as error:
            if unloaded_tool := explain_unloaded_tool(base, agent.name, name):
                reason, hint, is_wrong = unloaded_tool
                yield location.make_problem(pointer, reason, hint, severity="error" if is_wrong else "warning")
            elif not find_unimported(config.org.plugins):  # otherwise it may belong to a plugin
                yield location.make_problem(pointer, error.message, error.hint)
            continue
        if reason := tool.refusal_reason(agent, config.org):
            message = f"{agent.name} may not call {name}, in spite of its resume"
            hint = f"change the reason or remove {name} here: {reason}"
            yield location.make_problem(pointer, message, hint, severity="warning")


def _validate_file_access(location: _ResumeLocation, agent: Agent, base: OrgPath) -> Iterator[Problem]:
    files = agent.permissions.file_access
    if files == FileAccess():  # as nearly every agent has
        return
    grants: list[tuple[Access, list[str], Callable[[list[str]], FileAccess]]] = [
        ("read", files.allow_read, lambda folder_list: FileAccess(allow_read=folder_list, allow_write=[])),
        ("write", files.allow_write, lambda folder_list: FileAccess(allow_read=[], allow_write=folder_list)),
    ]
    for access, folders, make_access in grants:
        for index, folder in enumerate(folders):
            pointer = f"/permissions/file_access/allow_{access}/{index}"
            permissions = replace(agent.permissions, file_access=make_access([folder]))
            sample_path = f"{folder.rstrip('/')}/any"
            try:
                reason = grant_error(folder)
                if not reason:
                    restricted_agent = replace(agent, permissions=permissions)
                    resolve_path(restricted_agent, Path(base), sample_path, access, caller="file_access")
            except PermissionDenied as error:
                reason = error.message
            if reason:
                hint = "use ./workspace, ./shared, a folder in one of them, or an absolute path"
                message = f'"{folder}" grants nothing: {reason}'
                yield location.make_problem(pointer, message, hint, severity="warning")
                continue
            if folder.startswith("/") and not Path(folder).is_dir():
                yield location.make_problem(pointer, f"folder {folder} does not exist", "make it", severity="warning")


def _validate_context(location: _ResumeLocation, agent: Agent, base: OrgPath) -> Iterator[Problem]:
    for index, item in enumerate(agent.context):
        try:
            for context_file in expand_context(_with_only_context(agent, item), Path(base), {}).context:
                read_allowed_text(agent, Path(base), context_file.file)
        except ToolError as error:
            yield location.make_problem(f"/context/{index}/file", f"{error.message}; every turn would fail", error.hint)


def _with_only_context(agent: Agent, item: ContextFile) -> Agent:
    """Return the agent with this context file only, and without memories of other agents."""
    return replace(agent, context=[item], permissions=replace(agent.permissions, read_memories=[]))


def _make_warning(file: str, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, file, pointer=pointer, hint=hint, severity="warning")
