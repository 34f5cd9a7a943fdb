"""Validation of the structure of an organisation: predictable problems in the combination of its agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import PurePosixPath

from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.problems import make_warning
from lemming.kernel.org.capability_usage import resolve_credits, resolve_turn_policy
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import fire_point
from lemming.kernel.tick.validation.checks import CheckSubject
from lemming.kernel.tools import Tool, get_toolset


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
        name: [
            tool
            for tool in toolset.for_agent(name).values()
            if tool.tool_class != "read" and not tool.refusal_reason(agent, config.org)
        ]
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
        readers = (other for other in agents.values() if other.may_read(name))
        if not any(_is_granted_effect(tool, agent) for tool in tools[name]) and not any(readers):
            hint = f'add "{name}" to the read_outboxes of its reader, or pause it'
            yield make_warning(f"no agent reads the entries of {name}", "/name", hint, paths.resume_file(name))


def _is_granted_effect(tool: Tool, agent: Agent) -> bool:
    return tool.tool_class != "read" and tool.name in agent.permissions.tools


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
        name: sorted({path for tool in tools[name] for path in _list_write_targets(tool, agent, config)})
        for name, agent in working.items()
    }
    writers: dict[str, list[str]] = {}
    for name, paths_of_agent in write_paths.items():
        for path in paths_of_agent:
            writers.setdefault(path, []).append(name)
    for writer, paths_of_agent in write_paths.items():
        conflicts = {
            (other, path)
            for path in filter(partial(_is_file, org), paths_of_agent)
            for root in accumulate(path.split("/"), "{}/{}".format)
            for other in writers.get(root, ())
            if other != writer and (writer < other or path not in write_paths[other])
        }
        for other, path in sorted(conflicts):
            message = f"{other} may also write {path}: the last writer overwrites the other"
            hint = "let one of them write it and the other ask, or give each its own file"
            yield make_warning(message, "/permissions/file_access/allow_write", hint, paths.resume_file(writer))


def _list_write_targets(tool: Tool, agent: Agent, config: Config) -> Iterable[str]:
    return tool.write_paths(agent, config.org) if tool.tool_class == "write" else ()


def _is_file(org: Organisation, path: str) -> bool:
    return bool(PurePosixPath(path).suffix) or (org / path).is_file()
