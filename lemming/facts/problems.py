"""Everything that can be known to be wrong with an organisation before it runs, as problems with a place."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lemming.facts.capabilities import (
    names_of_capabilities,
    problems_of_org,
    problems_of_use,
    problems_with_agents,
)
from lemming.facts.readiness import seen_on_the_way
from lemming.facts.tool_sources import explain_unloaded_tool, find_unloaded_files
from lemming.kernel.access.allowed_paths import Access, resolve
from lemming.kernel.access.context_files import with_context_found
from lemming.kernel.access.grants import why_no_grant
from lemming.kernel.access.open import read_allowed_text
from lemming.kernel.agents import RESUME_LIMIT_BYTES, Agent, agent_folders, nearest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, PermissionDenied, Problem, ToolError, UnknownModel
from lemming.kernel.base.jsontext import locate, meant
from lemming.kernel.base.patterns import is_named
from lemming.kernel.files import fs
from lemming.kernel.memory import read_memories
from lemming.kernel.org.config import CREDITS_FILE, MODELS_FILE, ORG_FILE, Config, credits_of, is_overridden
from lemming.kernel.org.models import ANSWERS_KNOWN
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import ContextFile, FileAccess
from lemming.kernel.plugins.capabilities import missing_for_provider
from lemming.kernel.plugins.registry import not_imported
from lemming.kernel.plugins.shipped import PREFIXES
from lemming.kernel.providers import is_channel, is_person, make_provider
from lemming.kernel.tick.firing_plan import takes_turns
from lemming.kernel.tick.retention import longest_kept
from lemming.kernel.tick.soundness.judged import judged
from lemming.kernel.tools import toolset_of, why_no_server
from lemming.kernel.turn.forms.choosing import CONTRACT_KEYS
from lemming.kernel.turn.forms.own_actions import MEMORY_WRITE, is_granted

FIT = "fit"
"""The prompt of a line that does not say which."""
_WANTS_MEMORY = re.compile(r"\bremember|\bmemori[sz]e|\byour memory\b", re.IGNORECASE)
READ_VALUES = ("plan", "clock")
"""Providers that read no prose: in a prompt that is not `values` each of their turns fails."""


@dataclass(frozen=True)
class _Place:
    """A resume, for problems that name a place in it; `raw`: what will stand there, if it does not yet."""

    org: OrgPath
    file: str
    raw: bytes | None = None

    def problem(self, pointer: str, message: str, hint: str, *, severity: str = "error") -> Problem:
        raw = fs.read_bytes(self.org / self.file, RESUME_LIMIT_BYTES) if self.raw is None else self.raw
        text = raw.decode("utf-8", "replace")
        line, column = locate(text.removeprefix("\ufeff"), pointer)
        return Problem(message, self.file, line, column, pointer, hint, severity=severity)


def problems_of_config(base: OrgPath, config: Config) -> Iterator[Problem]:
    """Yield what is wrong with the settings, beyond what stops them from being read."""
    yield from problems_of_settings(base, config)
    for name in names_of_capabilities(config, ()):
        yield from problems_of_org(name, base, config, None)


def problems_of_settings(base: OrgPath, config: Config) -> Iterator[Problem]:
    """Yield what is wrong with the settings beside what capabilities find."""
    yield from config.warnings
    for key, entry in config.models.items():
        try:
            make_provider(entry.provider, entry.options, base=Path(base), plugins=config.org.plugins)
        except LemmingError as error:
            if isinstance(error, UnknownModel) and not_imported(config.org.plugins):
                continue  # it may be a plugin's
            is_here = not missing_for_provider(entry.provider)  # else an agent that has it is told of
            yield Problem(
                f'model key "{key}": {error.message}',
                MODELS_FILE,
                pointer=f"/{key}",
                hint=error.hint,
                severity="error" if is_here else "warning",
            )
        if entry.provider in READ_VALUES and entry.prompt != "values":
            form = entry.prompt or FIT
            message = f'model key "{key}": {entry.provider} reads "values", and not "{form}": no turn works'
            yield Problem(message, MODELS_FILE, pointer=f"/{key}", hint='"prompt": "values" beside provider')
        if secret := seen_on_the_way(entry):
            message = f'model key "{key}": {secret} is sent over plain http to another machine'
            hint = "use https, or a tunnel to this machine"
            yield _warning(MODELS_FILE, f"/{key}/options", message, hint)
    for key, command in (("on_failure", config.org.on_failure), ("on_waiting", config.org.on_waiting)):
        if command and not _is_program(base, command[0]):
            hint = "a program on PATH, or an absolute path, and its arguments: a list of texts"
            yield _warning(ORG_FILE, f"/{key}/0", f'there is no program "{command[0]}" here', hint)
    yield from judged(base, config, survey_agents(base)).stops
    yield from _about_allocations(base, config)
    yield from find_unloaded_files(base)


def _is_program(base: OrgPath, word: str) -> bool:
    """Return whether there is a program of this name, or at this place as seen from the folder."""
    return os.access(base / word, os.X_OK) if "/" in word else bool(shutil.which(word))


def _about_allocations(base: OrgPath, config: Config) -> Iterator[Problem]:
    """Yield a warning for each allocation of no agent, and for each that overrides another in a resume."""
    for name, agent in survey_agents(base).agents.items():
        own = agent.credits.max_credits
        if own is not None and is_overridden(config, name, agent.credits):
            allowed = credits_of(config, name, agent.credits).max_credits
            message = f"{name} may spend {allowed:g}, not the {own:g} that {paths.resume_file(name)} says"
            hint = (
                "this file overrides resumes (`lemming credits grant` writes it); remove the line to undo it"
            )
            yield _warning(CREDITS_FILE, f"/{name}/max_credits", message, hint)
    there = agent_folders(base)
    for name, allocation in config.allocations.items():
        if not (name in there or allocation.may_be_absent or meant(name, there)):  # that one is an error
            hint = nearest_agent(name, there)
            yield _warning(CREDITS_FILE, f"/{name}", f'there is no agent "{name}"', hint)


def problems_of_agents(base: OrgPath, config: Config | None, only: str | None) -> Iterator[Problem]:
    """Yield what is wrong with resumes (or one of them), and with how agents use capabilities.

    Without settings, because they are broken themselves, resumes are only checked alone.
    """
    yield from problems_of_resumes(base, config, only)
    if config:
        for name in names_of_capabilities(config, survey_agents(base).agents.values()):
            yield from problems_with_agents(name, base, config, only)


def problems_of_resumes(base: OrgPath, config: Config | None, only: str | None) -> Iterator[Problem]:
    """Yield what is wrong with resumes beside what capabilities find."""
    survey, folders = survey_agents(base), agent_folders(base)
    out = judged(base, config, survey).survey.broken if config else {}
    warnings: dict[str, list[Problem]] = {}
    for warning in survey.warnings:
        warnings.setdefault(warning.file, []).append(warning)
    for name in folders if only is None else [only]:
        if name in survey.broken:
            yield from survey.broken[name].problems
            continue
        if config and name in out:
            yield from out[name].problems
        else:
            yield from warnings.get(paths.resume_file(name), ())
        if config and name in survey.agents:  # not without a resume: it is ignored
            told = {problem.pointer for problem in out[name].problems} if name in out else ()
            others = _problems_of_resume(base, survey.agents[name], config, folders)
            yield from (problem for problem in others if problem.pointer not in told)


def problems_of_resume(
    base: OrgPath, agent: Agent, config: Config, folders: list[str], raw: bytes | None = None
) -> Iterator[Problem]:
    """Yield what is wrong with a resume beside the settings; `raw`: its bytes, where not yet written."""
    yield from _problems_of_resume(base, agent, config, folders, raw)
    for name in names_of_capabilities(config, [agent]):
        yield from problems_of_use(name, base, agent, config)


def _problems_of_resume(
    base: OrgPath, agent: Agent, config: Config, folders: list[str], raw: bytes | None = None
) -> Iterator[Problem]:
    place = _Place(base, paths.resume_file(agent.name), raw)
    if why := paths.why_no_new_agent(agent.name):
        hint = "nothing can be addressed to it: `lemming agents rename` gives it another name"
        yield place.problem("/name", why, hint, severity="warning")
    yield from _about_model(place, agent, config)
    yield from _about_readers(place, agent, folders)
    yield from _about_retention(place, agent, config)
    yield from _about_time(place, agent, config)
    yield from _about_tools(place, agent, config, base)
    yield from _about_files(place, agent, base)
    if takes_turns(agent, config):
        yield from _about_context(place, agent, base)
        yield from _about_memory(place, agent, base)


def _about_model(place: _Place, agent: Agent, config: Config) -> Iterator[Problem]:
    keys = [("/model/key", agent.model.key)]
    keys += [(f"/model/fallback/{index}", key) for index, key in enumerate(agent.model.fallback)]
    for pointer, key in keys:
        try:
            config.model(key)
        except UnknownModel as error:
            yield place.problem(pointer, error.message, f"{error.hint} ({MODELS_FILE})")
    for index, (why, hint) in _fallbacks_that_help_nobody(agent, config).items():
        yield place.problem(f"/model/fallback/{index}", why, hint)


def _fallbacks_that_help_nobody(agent: Agent, config: Config) -> dict[int, tuple[str, str]]:
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
        form, own_form = entry.prompt or FIT, own.prompt or FIT
        return f'model key "{key}" reads "prompt": "{form}", and this agent\'s "{own_form}"'
    return ""


def _about_memory(place: _Place, agent: Agent, base: OrgPath) -> Iterator[Problem]:
    """Yield that instructions want something remembered, which the agent is not asked to do."""
    if not _WANTS_MEMORY.search(agent.instructions) or is_granted(agent, MEMORY_WRITE):
        return
    if not CONTRACT_KEYS.search(agent.instructions) and not read_memories(base, agent.name).values:
        message = "the instructions speak of remembering, and the agent is not offered to remember anything"
        hint = f'name "{MEMORY_WRITE}" in permissions.tools'
        yield place.problem("/instructions", message, hint, severity="warning")


def _about_readers(place: _Place, agent: Agent, folders: list[str]) -> Iterator[Problem]:
    for index, name in enumerate(agent.permissions.read_outboxes):
        pointer = f"/permissions/read_outboxes/{index}"
        if name == agent.name:
            hint = "an agent always sees its own latest entries; take it out"
            yield place.problem(pointer, "an agent does not read itself", hint, severity="warning")
        elif name != "*" and name not in folders:
            message = f'there is no agent "{name}"'
            yield place.problem(pointer, message, nearest_agent(name, folders), severity="warning")


def _about_time(place: _Place, agent: Agent, config: Config) -> Iterator[Problem]:
    if agent.schedule.cron is not None and (agent.schedule.timezone or config.org.timezone) is None:
        hint = 'add "timezone": "Europe/Berlin" here, or for all in config/org.json'
        yield place.problem("/schedule/cron", "a cron expression needs a time zone, and none is set", hint)
    if agent.schedule.cron is None and agent.schedule.missed != "once":
        yield place.problem(
            "/schedule/missed", '"missed" is about cron, and there is none', "add cron", severity="warning"
        )


def _about_retention(place: _Place, agent: Agent, config: Config) -> Iterator[Problem]:
    every, retention = agent.schedule.run_every_n_ticks, config.org.retention_ticks
    is_reader = agent.permissions.read_outboxes and takes_turns(agent, config)
    if not (is_reader and 0 < retention < every):
        return
    longest = longest_kept(retention, every)
    outcome = "they are kept longer for it" if longest > every else "some are removed before it sees them"
    yield place.problem(
        "/schedule/run_every_n_ticks",
        f"due every {every} ticks, while entries are kept for {retention} (for who has not seen them, up to "
        f"{longest}): {outcome}",
        'raise "retention_ticks" in config/org.json, or let the agent run more often',
        severity="warning",
    )


def _about_tools(place: _Place, agent: Agent, config: Config, base: OrgPath) -> Iterator[Problem]:
    tools = toolset_of(config.org, base).of(agent.name)
    for index, name in enumerate(agent.permissions.tools):
        pointer = f"/permissions/tools/{index}"
        if name.startswith(PREFIXES):
            if wrong := why_no_server(base, name, today=True):
                yield place.problem(pointer, *wrong)
            continue
        if "*" in name and any(is_named(each, name) for each in tools):
            continue
        try:
            tool = tools.find(name)
        except ToolError as error:
            if unloaded := explain_unloaded_tool(base, agent.name, name):
                why, hint, is_wrong = unloaded
                yield place.problem(pointer, why, hint, severity="error" if is_wrong else "warning")
            elif not not_imported(config.org.plugins):  # else it may be a plugin's
                yield place.problem(pointer, error.message, error.hint)
            continue
        if why := tool.why_refused(agent, config.org):
            message = f"{agent.name} may not call {name}, whatever its resume says"
            hint = f"{why}; change that, or take {name} away here"
            yield place.problem(pointer, message, hint, severity="warning")


def _about_files(place: _Place, agent: Agent, base: OrgPath) -> Iterator[Problem]:
    files = agent.permissions.file_access
    if files == FileAccess():  # as nearly everybody has
        return
    grants: list[tuple[Access, list[str], Callable[[list[str]], FileAccess]]] = [
        ("read", files.allow_read, lambda only: FileAccess(allow_read=only, allow_write=[])),
        ("write", files.allow_write, lambda only: FileAccess(allow_read=[], allow_write=only)),
    ]
    for access, folders, alone in grants:
        for index, folder in enumerate(folders):
            pointer = f"/permissions/file_access/allow_{access}/{index}"
            permissions = replace(agent.permissions, file_access=alone([folder]))
            inside = f"{folder.rstrip('/')}/any"
            try:
                why = why_no_grant(folder)
                if not why:
                    alone_with_it = replace(agent, permissions=permissions)
                    resolve(alone_with_it, Path(base), inside, access, caller="file_access")
            except PermissionDenied as error:
                why = error.message
            if why:
                hint = "use ./workspace, ./shared, a folder in one of them, or an absolute path"
                message = f'"{folder}" grants nothing, and only it: {why}'
                yield place.problem(pointer, message, hint, severity="warning")
                continue
            if folder.startswith("/") and not Path(folder).is_dir():
                yield place.problem(pointer, f"there is no folder {folder}", "make it", severity="warning")


def _about_context(place: _Place, agent: Agent, base: OrgPath) -> Iterator[Problem]:
    for index, item in enumerate(agent.context):
        try:
            for it in with_context_found(_bare(agent, item), Path(base), {}).context:
                read_allowed_text(agent, Path(base), it.file)
        except ToolError as error:
            yield place.problem(
                f"/context/{index}/file", f"{error.message}; every turn would fail", error.hint
            )


def _bare(agent: Agent, item: ContextFile) -> Agent:
    """Return an agent whose prompts show this file, and nothing besides."""
    return replace(agent, context=[item], permissions=replace(agent.permissions, read_memories=[]))


def _warning(file: str, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, file, pointer=pointer, hint=hint, severity="warning")
