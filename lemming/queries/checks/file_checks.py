"""Checks of hand-written files, and of files and agents together: the selection of `lemming validate`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import PurePosixPath

from lemming.journal_tools.outbox_validation import select_newest, validate_outbox, validate_outbox_files
from lemming.kernel.agents import Agent, suggest_agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import ConfigError, CorruptState, LemmingError, Problem
from lemming.kernel.base.jsontext import locate
from lemming.kernel.base.problems import make_warning
from lemming.kernel.files import fs
from lemming.kernel.memory import load_memories
from lemming.kernel.messages import OutboxEntry, parse_file_names
from lemming.kernel.org.capability_usage import resolve_credits, resolve_turn_policy
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import fire_point
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tick.validation.checks import Check, CheckSubject
from lemming.kernel.tools import Tool, get_toolset
from lemming.kernel.turn.addressing import find_unknown_targets
from lemming.libraries.outbox_files import read_entry
from lemming.libraries.store_values import validate_store
from lemming.operations.engine_lock import find_running_engine, parse_tick
from lemming.operations.misplaced_files import future_tick_problems
from lemming.operations.next_tick import explain_skipped_ticks, find_next_tick
from lemming.queries.case_format import SAME_ORG, Case, case_file, list_case_names, load_case
from lemming.queries.checks.check_registry import CheckRun, to_problem
from lemming.queries.org_validation import find_resume_problems, find_settings_problems
from lemming.read_model.journal_ticks import newest_journals

MAX_ENTRIES_CHECKED = 3
"""Maximum entries of an agent that are checked, of its newest tick."""
_DESCRIPTION_BYTES = 4096


def _check_tick_counter(run: CheckRun) -> Iterator[Problem]:
    last_tick = None  # as the last engine recorded at its exit; None while one runs, and after a killed one
    with contextlib.suppress(OSError):
        last_tick = parse_tick(fs.read_bytes(f"{run.org}/{paths.LOCK_FILE}", _DESCRIPTION_BYTES))
    try:
        tick = load_tick(run.org)
        yield from filter(None, [explain_skipped_ticks(tick, last_tick)])
        ticks = newest_journals(run.org, 2)
        refusal = find_next_tick(run.org, tick, ticks, boot_id=SystemClock().boot_id).to_error
        if refusal and not find_running_engine(run.org):
            yield to_problem(refusal)
    except CorruptState as error:
        yield to_problem(error)


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
        for pointer, agent in _iter_case_agents(document.value):
            is_elsewhere = document.value.start != SAME_ORG  # its agents belong to another folder
            if agent and agent not in run.agent_folders and not is_elsewhere:
                place, hint = locate(document.raw.decode(), pointer), suggest_agent(agent, run.agent_folders)
                message, about = f'agent "{agent}" does not exist', (case_file(name), *place, pointer)
                yield Problem(message, *about, hint=hint, severity="warning", code="LMG-301")


def _iter_case_agents(case: Case) -> Iterator[tuple[str, str]]:
    """Yield the names of agents in a case, possibly empty, each with its JSON pointer."""
    yield from ((f"/send/{index}/to", message.to) for index, message in enumerate(case.send))
    yield from ((f"/send/{index}/from", message.author) for index, message in enumerate(case.send))
    if case.ask:
        yield from (("/ask/to", case.ask.to), ("/ask/from", case.ask.author))
    for index, expectation in enumerate(case.expect):
        if expectation.entry:
            yield f"/expect/{index}/entry/author", expectation.entry.author
        if expectation.no_entry:
            yield f"/expect/{index}/no_entry/author", expectation.no_entry.author
        if expectation.tool_called:
            yield f"/expect/{index}/tool_called/agent", expectation.tool_called.agent


def _check_targets(run: CheckRun) -> Iterator[Problem]:
    """Yield a warning for each of an agent's newest entries with an unknown target."""
    known_agents = [*run.survey.agents, *run.survey.broken]
    for name in run.survey.agents if run.agent is None else [run.agent]:
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


def find_order_conflicts(agents: Mapping[str, Agent], config: Config, names: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each agent that reads a later agent in tick order, unless both read each other.

    `names`: the agents to report, as readers or authors. Pairs that read each other are skipped: one of the
    two always waits.
    """
    reported_names = {*names} if config.org.visibility == "order" else set()
    for name, agent in sorted(agents.items()):
        for other in agent.permissions.read_outboxes:
            author = agents.get(other)
            if author is None or not {name, other} & reported_names or not config.has_model_turns(author):
                continue
            is_first = (fire_point(agent.schedule), name) < (fire_point(author.schedule), other)
            if config.has_model_turns(agent) and is_first and name not in author.permissions.read_outboxes:
                yield (
                    f"{name} comes before {other} in a tick, by its name, and reads its entries in the "
                    "next tick: `lemming agents rename` gives it a later name"
                )


AgentMap = Mapping[str, Agent]


def find_structure_problems(subject: CheckSubject) -> Iterator[Problem]:
    """Yield warnings of agents without readers, endless cycles, files with two writers."""
    org, config, survey = subject.org, subject.config, survey_agents(subject.org)
    agents = survey.agents
    working = {name: agent for name, agent in agents.items() if config.has_model_turns(agent) and not agent.paused}
    toolset = get_toolset(config.org, org)
    tools = {
        name: [tool for tool in toolset.allowed_tools(agent, config.org).values() if tool.tool_class != "read"]
        for name, agent in working.items()
    }
    problems = [
        *(_find_unread_agents(agents, working, tools) if survey.find_people(config) else ()),
        *_find_wake_cycles(working, config),
        *_find_shared_files(org, config, working, tools),
    ]
    yield from (problem for problem in problems if subject.only in (None, problem.file.split("/")[1]))


def _find_unread_agents(agents: AgentMap, working: AgentMap, tools: Mapping[str, list[Tool]]) -> Iterator[Problem]:
    """Yield a warning for each agent whose entries have no reader and whose tools have no effect.

    Only used in organisations with people; elsewhere somebody looks into the outboxes.
    """
    for name, agent in working.items():
        has_effect = any(tool.name in agent.permissions.tools for tool in tools[name])
        if not has_effect and not any(other.may_read(name) for other in agents.values()):
            hint = f'add "{name}" to the read_outboxes of its reader, or pause it'
            yield make_warning(f"no agent reads the entries of {name}", "/name", hint, paths.resume_file(name))


def _find_wake_cycles(working: AgentMap, config: Config) -> Iterator[Problem]:
    """Yield a warning for each group of agents that wake each other in a circle without a limit."""
    waking = {
        name: agent
        for name, agent in working.items()
        if resolve_turn_policy(agent, config).wake == "changed" and not _is_bounded(agent, config)
    }
    while waking:
        reads = {name: [other for other in waking if agent.may_read(other)] for name, agent in waking.items()}
        try:
            TopologicalSorter(reads).prepare()
        except CycleError as error:
            *cycle, _ = error.args[1]
            first = min(cycle)
            yield make_warning(
                f"{', '.join(sorted(cycle))} wake each other endlessly, each by its own entries",
                "/schedule/wake",
                'set "wake": "addressed" for one of them, or give it max_credits',
                paths.resume_file(first),
            )
            for name in cycle:
                del waking[name]
        else:
            return


def _is_bounded(agent: Agent, config: Config) -> bool:
    """Return True if a limit ends the agent's spending, or the agent runs by the clock."""
    gates = (gate for settings in (config.org, agent) for gate in settings.extensions.get("gates", ()))
    has_spending_gate = any(gate.at == "spend" for gate in gates)
    max_credits = resolve_credits(config, agent.name, agent.credits).max_credits
    return has_spending_gate or max_credits is not None or agent.schedule.cron is not None


def _find_shared_files(
    org: Organisation, config: Config, working: AgentMap, tools: Mapping[str, list[Tool]]
) -> Iterator[Problem]:
    """Yield a warning for each file that an agent is assigned to write and another agent may write, too."""
    write_paths = {
        name: sorted(
            {path for tool in tools[name] if tool.tool_class == "write" for path in tool.write_paths(agent, config.org)}
        )
        for name, agent in working.items()
    }
    writers: dict[str, list[str]] = {}
    for name, paths_of_agent in write_paths.items():
        for path in paths_of_agent:
            writers.setdefault(path, []).append(name)
    for writer, paths_of_agent in write_paths.items():
        conflicts = {
            (other, path)
            for path in paths_of_agent
            if PurePosixPath(path).suffix or (org / path).is_file()
            for root in accumulate(path.split("/"), "{}/{}".format)
            for other in writers.get(root, ())
            if other != writer and (writer < other or path not in write_paths[other])
        }
        for other, path in sorted(conflicts):
            message = f"{other} may also write {path}: the last writer overwrites the other"
            hint = "let one of them write it and the other ask, or give each its own file"
            yield make_warning(message, "/permissions/file_access/allow_write", hint, paths.resume_file(writer))


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
