"""Checks of hand-written files, and of predictable failures of these files: the selection of `lemming validate`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from lemming.journal_tools.outbox_validation import validate_outbox, validate_outbox_files
from lemming.kernel.agents import suggest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, LemmingError, Problem
from lemming.kernel.base.jsontext import locate
from lemming.kernel.files import fs
from lemming.kernel.inboxes.misplaced_entries import future_tick_problems
from lemming.kernel.memory import load_memories
from lemming.kernel.tick.lock_holder import load_last_tick
from lemming.kernel.tick.tick_counter import explain_skipped_ticks, load_tick
from lemming.libraries.store_values import validate_store
from lemming.queries.capability_status import list_capability_names, validate_agents_use, validate_org
from lemming.queries.case_format import SAME_ORG, Case, case_file, list_case_names
from lemming.queries.case_validation import load_case
from lemming.queries.checks.check_registry import Check, CheckScope, to_problem
from lemming.queries.checks.targets import check_targets
from lemming.queries.org_validation import validate_resumes, validate_settings
from lemming.queries.structure_validation import validate_structure


def _check_settings(scope: CheckScope) -> Iterator[Problem]:
    if scope.config and scope.agent is None:
        yield from validate_settings(scope.org, scope.config)
    elif scope.config is None:
        error = scope.config_error
        yield from error.problems if isinstance(error, ConfigError) else [to_problem(error)]


def _check_tick_counter(scope: CheckScope) -> Iterator[Problem]:
    try:
        problem = explain_skipped_ticks(load_tick(scope.org), load_last_tick(scope.org))
    except CorruptState as error:
        yield to_problem(error)
        return
    if problem:
        yield problem


def _check_entries(scope: CheckScope) -> Iterator[Problem]:
    newest, tick = scope.entries_per_outbox, None
    with contextlib.suppress(LemmingError):  # a check of its own tells
        tick = load_tick(scope.org)
    for number, name in enumerate(filter(paths.AGENT_NAME.match, scope.agent_names)):
        scope.steps("outboxes", number, len(scope.agent_names))
        try:
            files = fs.list_names(f"{scope.org}/{paths.outbox_folder(name)}")
        except OSError:
            yield from validate_outbox(scope.org, name)
            continue
        yield from validate_outbox_files(scope.org, name, files, newest=newest)
        scope.unopened_entries += 0 if newest is None else max(0, len(files) - newest)
        if tick is not None:
            yield from future_tick_problems(name, files, tick)


def _check_memories(scope: CheckScope) -> Iterator[Problem]:
    for name in filter(paths.AGENT_NAME.match, scope.agent_names):
        yield from load_memories(scope.org, name).problems


def _check_cases(scope: CheckScope) -> Iterator[Problem]:
    """Yield the problems of each case, and a warning for each unknown agent named in a case."""
    for name in list_case_names(scope.org):
        try:
            document = load_case(scope.org, name)
        except ConfigError as error:
            yield from error.problems
            continue
        yield from document.warnings
        if document.value.start != SAME_ORG:  # its agents belong to another folder
            continue
        for pointer, agent in _iter_case_agents(document.value):
            if agent not in scope.agent_folders:
                line, column = locate(document.raw.decode(), pointer)
                yield Problem(
                    f'agent "{agent}" does not exist',
                    case_file(name),
                    line,
                    column,
                    pointer,
                    hint=suggest_agent(agent, scope.agent_folders),
                    severity="warning",
                    code="LMG-301",
                )


def _iter_case_agents(case: Case) -> Iterator[tuple[str, str]]:
    """Yield each agent named in a case, with the JSON pointer of the name."""
    pairs = [(f"/send/{index}/to", message.to) for index, message in enumerate(case.send)]
    pairs += [(f"/send/{index}/from", message.author) for index, message in enumerate(case.send)]
    if case.ask:
        pairs += [("/ask/to", case.ask.to), ("/ask/from", case.ask.author)]
    for index, expectation in enumerate(case.expect):
        expect_pointer = f"/expect/{index}"
        if expectation.entry:
            pairs.append((f"{expect_pointer}/entry/author", expectation.entry.author))
        if expectation.no_entry:
            pairs.append((f"{expect_pointer}/no_entry/author", expectation.no_entry.author))
        if expectation.tool_called:
            pairs.append((f"{expect_pointer}/tool_called/agent", expectation.tool_called.agent))
    yield from ((pointer, agent) for pointer, agent in pairs if agent)


def _check_capability(name: str, scope: CheckScope) -> Iterator[Problem]:
    yield from validate_org(name, scope.org, scope.settings, scope.agent)
    yield from validate_agents_use(name, scope.org, scope.settings, scope.agent)


FILE_CHECKS = (
    Check("settings", "files", "config/*.json and everything they name", _check_settings),
    Check("counter", "files", "tick.json", _check_tick_counter, is_org_wide=True),
    Check("resumes", "files", "each resume, against settings and other agents",
          lambda check_scope: validate_resumes(check_scope.org, check_scope.config, check_scope.agent)),
    Check("entries", "files", "the newest entries of each outbox, and all file names", _check_entries),
    Check("targets", "files", "targets of the newest entries", check_targets),
    Check("store", "files", "values in the shared store", lambda check_scope: validate_store(check_scope.org), is_org_wide=True),
    Check("memories", "files", "memories", _check_memories),
)  # fmt: skip
CHECKS = (
    *FILE_CHECKS,
    Check("cases", "files", "the cases in evals/", _check_cases, is_org_wide=True),
    Check("structure", "files", "outboxes without readers, endless loops, files with two writers",
          lambda check_scope: validate_structure(check_scope.org, check_scope.settings, check_scope.agent)),
)  # fmt: skip


def of_capabilities(scope: CheckScope) -> list[Check]:
    """Return a check for each capability, which reports problems in the use of the capability."""
    if not scope.config:
        return []
    names = list_capability_names(scope.config, scope.survey.agents.values())
    return [
        Check(
            check_scope,
            "files",
            f"resumes, settings and files of {check_scope}",
            partial(_check_capability, check_scope),
        )
        for check_scope in names
    ]
