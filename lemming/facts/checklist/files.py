"""The files that people write, and what is bound to go wrong with them: what `lemming validate` asks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from lemming.capabilities.store.values import store_problems
from lemming.facts.capabilities import names_of_capabilities, problems_of_org, problems_with_agents
from lemming.facts.cases import HERE, Case, case_file, case_names, load_case
from lemming.facts.checklist.check import Check, CheckScope, problem_of
from lemming.facts.checklist.targets import problems_of_targets
from lemming.facts.problems import problems_of_resumes, problems_of_settings
from lemming.facts.structure_problems import problems_of_structure
from lemming.kernel.agents import nearest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState, LemmingError, Problem
from lemming.kernel.base.jsontext import locate
from lemming.kernel.files import fs
from lemming.kernel.mail.misplaced import future_tick_problems
from lemming.kernel.memory import read_memories
from lemming.kernel.tick.counter import explain_skipped_ticks, load_tick
from lemming.kernel.tick.holder import tick_left
from lemming.timeline.outbox_problems import outbox_problems, problems_in


def _settings(scope: CheckScope) -> Iterator[Problem]:
    if scope.config and scope.agent is None:
        yield from problems_of_settings(scope.org, scope.config)
    elif scope.config is None:
        error = scope.why_no_config
        yield from error.problems if isinstance(error, ConfigError) else [problem_of(error)]


def _counter(scope: CheckScope) -> Iterator[Problem]:
    try:
        ahead = explain_skipped_ticks(load_tick(scope.org), tick_left(scope.org))
    except CorruptState as error:
        yield problem_of(error)
        return
    if ahead:
        yield ahead


def _entries(scope: CheckScope) -> Iterator[Problem]:
    newest, tick = scope.entries_of_each, None
    with contextlib.suppress(LemmingError):  # a check of its own tells
        tick = load_tick(scope.org)
    for number, name in enumerate(filter(paths.AGENT_NAME.match, scope.names)):
        scope.steps("outboxes", number, len(scope.names))
        try:
            files = fs.list_names(f"{scope.org}/{paths.outbox_folder(name)}")
        except OSError:
            yield from outbox_problems(scope.org, name)
            continue
        yield from problems_in(scope.org, name, files, newest=newest)
        scope.entries_left += 0 if newest is None else max(0, len(files) - newest)
        if tick is not None:
            yield from future_tick_problems(name, files, tick)


def _memories(scope: CheckScope) -> Iterator[Problem]:
    for name in filter(paths.AGENT_NAME.match, scope.names):
        yield from read_memories(scope.org, name).problems


def _cases(scope: CheckScope) -> Iterator[Problem]:
    """Yield what is wrong with each case, and a warning for each agent it names that there is not."""
    for name in case_names(scope.org):
        try:
            document = load_case(scope.org, name)
        except ConfigError as error:
            yield from error.problems
            continue
        yield from document.warnings
        if document.value.start != HERE:  # its agents are those of another folder
            continue
        for pointer, agent in _agents_in(document.value):
            if agent not in scope.folders:
                line, column = locate(document.raw.decode(), pointer)
                yield Problem(
                    f'there is no agent "{agent}"',
                    case_file(name),
                    line,
                    column,
                    pointer,
                    hint=nearest_agent(agent, scope.folders),
                    severity="warning",
                    code="LMG-301",
                )


def _agents_in(case: Case) -> Iterator[tuple[str, str]]:
    """Yield each agent that a case names, with the place where it does."""
    found = [(f"/send/{index}/to", sent.to) for index, sent in enumerate(case.send)]
    found += [(f"/send/{index}/from", sent.author) for index, sent in enumerate(case.send)]
    if case.ask:
        found += [("/ask/to", case.ask.to), ("/ask/from", case.ask.author)]
    for index, wanted in enumerate(case.expect):
        place = f"/expect/{index}"
        if wanted.entry:
            found.append((f"{place}/entry/author", wanted.entry.author))
        if wanted.no_entry:
            found.append((f"{place}/no_entry/author", wanted.no_entry.author))
        if wanted.tool_called:
            found.append((f"{place}/tool_called/agent", wanted.tool_called.agent))
    yield from ((pointer, agent) for pointer, agent in found if agent)


def _capability(name: str, scope: CheckScope) -> Iterator[Problem]:
    yield from problems_of_org(name, scope.org, scope.settings, scope.agent)
    yield from problems_with_agents(name, scope.org, scope.settings, scope.agent)


OF_FILES = (
    Check("settings", "files", "config/*.json, and what they name", _settings),
    Check("counter", "files", "tick.json", _counter, of_all=True),
    Check("resumes", "files", "each resume, beside the settings and the other agents",
          lambda it: problems_of_resumes(it.org, it.config, it.agent)),
    Check("entries", "files", "the newest entries of each outbox, and the names of all", _entries),
    Check("targets", "files", "whom the newest entries of each agent are addressed to", problems_of_targets),
    Check("store", "files", "what tools keep in common", lambda it: store_problems(it.org), of_all=True),
    Check("memories", "files", "what each agent remembers", _memories),
)  # fmt: skip
CHECKS = (
    *OF_FILES,
    Check("cases", "files", "the cases in evals/", _cases, of_all=True),
    Check("structure", "files", "what is read by nobody, never ends, or has two writers",
          lambda it: problems_of_structure(it.org, it.settings, it.agent)),
)  # fmt: skip


def of_capabilities(scope: CheckScope) -> list[Check]:
    """Return a check for each capability that there is: it says what is wrong with how it is used."""
    if not scope.config:
        return []
    names = names_of_capabilities(scope.config, scope.survey.agents.values())
    return [
        Check(it, "files", f"what resumes, settings and files say of {it}", partial(_capability, it))
        for it in names
    ]
