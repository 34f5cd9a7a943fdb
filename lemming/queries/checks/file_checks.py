"""Checks of hand-written files, and of predictable failures of these files: the selection of `lemming validate`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lemming.journal_tools.outbox_validation import select_newest, validate_outbox, validate_outbox_files
from lemming.kernel.agents import suggest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, LemmingError, Problem
from lemming.kernel.base.jsontext import locate
from lemming.kernel.base.problems import make_warning
from lemming.kernel.files import fs
from lemming.kernel.memory import load_memories
from lemming.kernel.messages import OutboxEntry, parse_file_names
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tick.validation.checks import Check
from lemming.kernel.turn.addressing import find_unknown_targets
from lemming.libraries.outbox_files import read_entry
from lemming.libraries.store_values import validate_store
from lemming.operations.lock_holder import parse_tick
from lemming.operations.misplaced_files import future_tick_problems
from lemming.operations.next_tick import explain_skipped_ticks
from lemming.queries.case_format import SAME_ORG, Case, case_file, list_case_names
from lemming.queries.case_validation import load_case
from lemming.queries.checks.check_registry import CheckRun, to_problem
from lemming.queries.org_validation import find_resume_problems, find_settings_problems
from lemming.queries.structure_validation import find_structure_problems

_DESCRIPTION_BYTES = 4096


def _check_tick_counter(run: CheckRun) -> Iterator[Problem]:
    try:
        problem = explain_skipped_ticks(load_tick(run.org), load_last_tick(run.org))
    except CorruptState as error:
        yield to_problem(error)
        return
    if problem:
        yield problem


def _check_entries(run: CheckRun) -> Iterator[Problem]:
    newest, tick = run.entries_per_outbox, None
    with contextlib.suppress(LemmingError):  # a check of its own tells
        tick = load_tick(run.org)
    for number, name in enumerate(filter(paths.AGENT_NAME.match, run.agent_names)):
        run.steps("outboxes", number, len(run.agent_names))
        files = run.list_outbox_files(name)
        if files is None:
            yield from validate_outbox(run.org, name)
            continue
        yield from validate_outbox_files(run.org, name, files, newest=newest)
        run.unopened_entries += 0 if newest is None else max(0, len(files) - newest)
        if tick is not None:
            yield from future_tick_problems(name, files, tick)


def _check_memories(run: CheckRun) -> Iterator[Problem]:
    for name in filter(paths.AGENT_NAME.match, run.agent_names):
        yield from load_memories(run.org, name).problems


def _check_cases(run: CheckRun) -> Iterator[Problem]:
    """Yield the problems of each case, and a warning for each unknown agent named in a case."""
    for name in list_case_names(run.org):
        try:
            document = load_case(run.org, name)
        except ConfigError as error:
            yield from error.problems
            continue
        yield from document.warnings
        if document.value.start != SAME_ORG:  # its agents belong to another folder
            continue
        for pointer, agent in _iter_case_agents(document.value):
            if agent not in run.agent_folders:
                line, column = locate(document.raw.decode(), pointer)
                yield Problem(
                    f'agent "{agent}" does not exist',
                    case_file(name),
                    line,
                    column,
                    pointer,
                    hint=suggest_agent(agent, run.agent_folders),
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


MAX_ENTRIES_CHECKED = 3
"""Maximum entries of an agent that are checked, of its newest tick."""


def _check_targets(run: CheckRun) -> Iterator[Problem]:
    """Yield a warning for each of an agent's newest entries with an unknown target."""
    survey = run.survey
    known_agents = [*survey.agents, *survey.broken]
    for name in survey.agents if run.agent is None else [run.agent]:
        for entry in _iter_newest_entries(run, name):
            for target, reason in find_unknown_targets(entry, known_agents, ()).items():
                message, hint = f'{name} wrote to "{target}", but {reason}', "name the other agents in its instructions"
                yield make_warning(message, "/payload/target", hint, entry.file, "LMG-301")


def _iter_newest_entries(run: CheckRun, author: str) -> Iterator[OutboxEntry]:
    """Yield the last readable entries of an author's newest tick."""
    files = run.list_outbox_files(author) if paths.AGENT_NAME.match(author) else []
    for newest in select_newest(files or [], 1):  # their names alone are parsed: an outbox may hold very many
        of_tick = [file for file in files or [] if file.startswith(newest.partition("_")[0])]
        for name in parse_file_names(author, of_tick)[-MAX_ENTRIES_CHECKED:]:
            with contextlib.suppress(ConfigError, FileNotFoundError):
                yield read_entry(run.org, name)


FILE_CHECKS = (
    Check("settings", "files", "settings", "config/*.json and everything they name", find_settings_problems),
    Check("counter", "files", "files", "tick.json", _check_tick_counter, is_org_wide=True),
    Check("resumes", "files", "files", "each resume, against settings and other agents",
          lambda run: find_resume_problems(run.org, run.config, run.agent)),
    Check("entries", "files", "files", "the newest entries of each outbox, and all file names", _check_entries),
    Check("targets", "files", "files", "targets of the newest entries", _check_targets),
    Check("store", "files", "files", "values in the shared store", lambda run: validate_store(run.org), is_org_wide=True),
    Check("memories", "files", "files", "memories", _check_memories),
)  # fmt: skip
CHECKS = (
    *FILE_CHECKS,
    Check("cases", "files", "files", "the cases in evals/", _check_cases, is_org_wide=True),
    Check("structure", "files", "organisation", "outboxes without readers, endless loops, files with two writers",
          find_structure_problems),
)  # fmt: skip
"""The selection of `lemming validate`, which also runs the checks of capabilities."""


def load_last_tick(base: OrgPath) -> int | None:
    """Return the next tick as recorded by the last engine at its exit.

    Returns None while an engine runs, after a killed engine, and without a record.
    """
    try:
        raw = fs.read_bytes(f"{base}/{paths.LOCK_FILE}", _DESCRIPTION_BYTES)
    except OSError:
        return None
    return parse_tick(raw)
