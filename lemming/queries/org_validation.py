"""Validation of an organisation before it runs: problems with their location."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from lemming.kernel.agents import Agent, Survey, list_agent_folders, suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, LemmingError, Problem, UnknownModel
from lemming.kernel.base.jsontext import correct_typo
from lemming.kernel.base.problems import make_warning
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.org.capability_usage import find_used_capabilities, resolve_credits
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import missing_for_provider, missing_reason
from lemming.kernel.plugins.capability_table import SHIPPED
from lemming.kernel.plugins.plugin_registry import find_unimported
from lemming.kernel.providers import make_provider
from lemming.kernel.tick.validation.agent_validation import locate_problem, validate_survey
from lemming.kernel.tick.validation.checks import AgentSubject, Check, CheckSubject, Scope, find_check
from lemming.queries.capability_status import call_status_lines, isolate_capability, list_capability_names, map_users
from lemming.queries.checks.agent_checks import AGENT_CHECKS, DEFAULT_PROMPT_FORM, find_unloaded_files
from lemming.queries.credit_accounts import has_credit_override
from lemming.queries.model_readiness import find_plaintext_secret

VALUE_PROVIDERS = ("plan", "clock")
"""Providers that read no prose: in a prompt that is not `values` each of their turns fails."""


def validate_config(base: OrgPath, config: Config) -> Iterator[Problem]:
    """Yield the problems of the settings, beyond errors that prevent loading."""
    subject = CheckSubject(org=Organisation.from_path(base), config=config)
    yield from find_settings_problems(subject)
    for name in list_capability_names(config, ()):
        yield from find_capability_problems(name, subject)


def find_settings_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield the problems of the settings, without problems that capabilities find."""
    base, config = subject.org, subject.config
    if subject.only is not None:
        return
    yield from config.warnings
    for key, entry in config.models.items():
        try:
            provider = make_provider(entry.provider, entry.options, base=Path(base), plugins=config.org.plugins)
            if provider.remark:
                yield Problem(provider.remark, paths.MODELS_FILE, pointer=f"/{key}", severity="warning")
        except LemmingError as error:
            if isinstance(error, UnknownModel) and find_unimported(config.org.plugins):
                continue  # it may be a plugin's
            is_here = not missing_for_provider(entry.provider)  # otherwise reported for an agent that has it
            place = error.problems[0].pointer if isinstance(error, ConfigError) else "/provider"
            yield Problem(
                f'model key "{key}": {error.message}',
                paths.MODELS_FILE,
                pointer=f"/{key}{place}",
                hint=error.hint,
                severity="error" if is_here else "warning",
            )
        if entry.provider in VALUE_PROVIDERS and entry.prompt != "values":
            prompt_form = entry.prompt or DEFAULT_PROMPT_FORM
            message = (
                f'model key "{key}": prompt must be "values" for {entry.provider}, got "{prompt_form}"; '
                "every turn fails"
            )
            yield Problem(message, paths.MODELS_FILE, pointer=f"/{key}", hint='add "prompt": "values" next to provider')
        if secret := find_plaintext_secret(entry):
            message = f'model key "{key}": {secret} is sent over plain http to another machine'
            hint = "use https, or a tunnel to this machine"
            yield make_warning(message, f"/{key}/options", hint, paths.MODELS_FILE)
    for key, command in (("on_failure", config.org.on_failure), ("on_waiting", config.org.on_waiting)):
        program = command[0] if command else ""
        is_there = os.access(base / program, os.X_OK) if "/" in program else shutil.which(program)
        if command and not is_there:
            hint = "write a list of texts: a program on PATH or an absolute path, then its arguments"
            yield make_warning(f'program "{program}" does not exist here', f"/{key}/0", hint, paths.ORG_FILE)
    yield from validate_survey(base, config, survey_agents(base)).settings_problems
    yield from _validate_allocations(base, config)
    yield from find_unloaded_files(base)
    yield from _find_misnamed_files(base)


_SETTINGS_FILES = ("org.json", "models.json", "credits.json", "calendar.json", "mcp.json", "mcp.lock.json")


def _find_misnamed_files(base: OrgPath) -> Iterator[Problem]:
    """Yield a warning for each file of `config/` whose name is a typo, because nothing reads it."""
    names = fs.list_names(base / "config") if (base / "config").is_dir() else []
    for name in sorted({*names} - {*_SETTINGS_FILES}):
        if suggestion := correct_typo(name, _SETTINGS_FILES):
            hint = f"rename it to config/{suggestion}, or remove it"
            yield make_warning("nothing reads a file of this name", hint=hint, file=f"config/{name}")


def _validate_allocations(base: OrgPath, config: Config) -> Iterator[Problem]:
    """Yield a warning for each allocation without an agent, and for each allocation that overrides a resume."""
    for name, agent in survey_agents(base).agents.items():
        resume_limit = agent.credits.max_credits
        if resume_limit is not None and has_credit_override(config, name, agent.credits):
            allowed = resolve_credits(config, name, agent.credits).max_credits
            message = f"{name} may spend {allowed:.10g}, not the {resume_limit:.10g} in {paths.resume_file(name)}"
            hint = "remove the line to undo it: this file overrides resumes (`lemming credits grant` writes it)"
            yield make_warning(message, f"/{name}/max_credits", hint, paths.CREDITS_FILE)
    folders = list_agent_folders(base)
    for name, allocation in config.allocations.items():
        if not (name in folders or allocation.may_be_absent or correct_typo(name, folders)):  # that one is an error
            hint = suggest_agent(name, folders)
            yield make_warning(f'agent "{name}" does not exist', f"/{name}", hint, paths.CREDITS_FILE)


def validate_agents(base: OrgPath, config: Config | None, only: str | None = None) -> Iterator[Problem]:
    """Yield the problems of resumes and of agents' use of capabilities; `only` restricts the search to one agent."""
    org = Organisation.from_path(base)
    yield from find_resume_problems(org, config, only)
    if config:
        for name in list_capability_names(config, survey_agents(base).agents.values()):
            yield from find_agents_problems(name, CheckSubject(org=org, config=config, only=only))


def find_resume_problems(org: Organisation, config: Config | None, only: str | None) -> Iterator[Problem]:
    """Yield the problems of resumes, without problems that capabilities find.

    Without settings, because the settings are broken, each resume is only checked by itself.
    """
    survey, folders = survey_agents(org), list_agent_folders(org)
    broken_agents = validate_survey(org, config, survey).survey.broken if config else survey.broken
    warnings: dict[str, list[Problem]] = {}
    for warning in survey.warnings:
        warnings.setdefault(warning.file, []).append(warning)
    names = CheckSubject(org=org, config=config).names if config else None
    for name in folders if only is None else [only]:
        yield from broken_agents[name].problems if name in broken_agents else warnings.get(paths.resume_file(name), ())
        if config and name in survey.agents:  # not without a resume: it is ignored
            subject = AgentSubject(org=org, config=config, agent=survey.agents[name], inventory=names)
            yield from _drop_reported(find_agent_problems(subject), broken_agents.get(name))


def validate_resume(base: OrgPath, agent: Agent, config: Config, raw: bytes | None = None) -> Iterator[Problem]:
    """Yield the problems of a resume in combination with the settings; `raw` is its content if not yet written."""
    subject = AgentSubject(org=Organisation.from_path(base), config=config, agent=agent)
    yield from find_agent_problems(subject, raw)
    for name in list_capability_names(config, [agent]):
        yield from run_capability_check(name, "agent", subject)


def find_agent_problems(subject: AgentSubject, raw: bytes | None = None) -> Iterator[Problem]:
    """Yield the located problems of a resume, without problems of capabilities."""
    for find in AGENT_CHECKS:
        for problem in find(subject):
            yield locate_problem(replace(problem, file=subject.file), subject.org, raw)


def _drop_reported(problems: Iterable[Problem], error: ConfigError | None) -> Iterator[Problem]:
    """Yield the problems at places of which a broken agent's error does not tell."""
    pointers = {problem.pointer for problem in error.problems} if error else ()
    yield from (problem for problem in problems if problem.pointer not in pointers)


def run_capability_check(name: str, scope: Scope, subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems found by a capability in a subject; a broken capability is a problem, too."""
    check = isolate_capability(lambda: find_check(name, scope, subject.config.org.plugins))
    if isinstance(check, str):
        yield _broken_capability(name, check, subject.file)
    elif callable(check):  # otherwise its absence is reported elsewhere
        yield from _call_check(name, check, subject)


def _call_check(
    name: str, check: Callable[[CheckSubject], Iterable[Problem]], subject: CheckSubject
) -> Iterator[Problem]:
    """Yield the problems found by a check.

    A plugin's capability gets the agents that use it, a shipped one all: keys and files may be there without a use.
    """
    agent, config = subject.agent, subject.config

    def find() -> list[Problem]:
        is_concerned = agent is None or name in SHIPPED
        if agent and not is_concerned:
            is_concerned = config.has_model_turns(agent) and name in find_used_capabilities(agent, config)
        problems = check(subject) if is_concerned else ()
        problems = [*problems] if isinstance(problems, Iterable) else [problems]
        if wrong := [item for item in problems if not isinstance(item, Problem)]:
            raise TypeError(f"a check must yield problems, got {type(wrong[0]).__name__}")
        return [replace(problem, file=problem.file or subject.file) for problem in problems]

    result = isolate_capability(find)
    if isinstance(result, list):
        yield from result
    elif isinstance(result, str):
        yield _broken_capability(name, result, subject.file)


def _broken_capability(name: str, text: str, file: str, severity: str = "error") -> Problem:
    hint = "fix the capability, or report the error to its author"
    return Problem(f'capability "{name}" failed: {text}', file, hint=hint, severity=severity)


def list_capability_checks(config: Config, survey: Survey) -> list[Check]:
    """Return a check for each capability, of resumes, settings and files."""

    def find(name: str, subject: CheckSubject) -> Iterator[Problem]:
        yield from find_capability_problems(name, subject)
        yield from find_agents_problems(name, subject)

    return [
        Check(name, "files", "organisation", f"resumes, settings and files of {name}", partial(find, name))
        for name in list_capability_names(config, survey.agents.values())
    ]


def find_capability_problems(name: str, subject: CheckSubject) -> Iterator[Problem]:
    """Yield problems a capability finds in the organisation's use of it."""
    org, config, spec = subject.org, subject.config, SHIPPED.get(name)
    for file, role in spec.files.items() if spec and subject.only is None and missing_reason(name) else ():
        if role == "settings" and path_exists(f"{org}/{file}"):
            hint = "install lemming-engine again, or remove the file"
            yield Problem(f"the file needs a capability that is not installed: {missing_reason(name)}", file, hint=hint)
    yield from run_capability_check(name, "organisation", subject)
    if subject.only is None and name not in SHIPPED:
        users = map_users(config, survey_agents(org)).get(name)
        status_lines = call_status_lines(org, config, name, users) if users else ""
        if status_lines and isinstance(status_lines, str):
            yield _broken_capability(name, status_lines, paths.ORG_FILE, "warning")


def find_agents_problems(name: str, subject: CheckSubject) -> Iterator[Problem]:
    """Yield the problems a capability finds in its use by each agent, except problems already reported as fatal."""
    org, config, survey = subject.org, subject.config, survey_agents(subject.org)
    check = isolate_capability(lambda: find_check(name, "agent", config.org.plugins))
    if isinstance(check, str):
        yield _broken_capability(name, f"its check of agents cannot be loaded: {check}", paths.ORG_FILE)
    if not callable(check):
        return  # a missing capability is reported for the organisation
    broken_agents = validate_survey(org, config, survey).survey.broken
    for agent in survey.agents.values() if subject.only is None else filter(None, [survey.agents.get(subject.only)]):
        agent_subject = AgentSubject(org=org, config=config, agent=agent, inventory=subject.names)
        yield from _drop_reported(_call_check(name, check, agent_subject), broken_agents.get(agent.name))
