"""How an organisation is put together, and what is bound to go wrong with that, before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import PurePosixPath

from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.org.config import Config, credits_of
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.schedule import fire_point
from lemming.kernel.org.uses import habits_of
from lemming.kernel.tick.firing_plan import people_in, takes_turns
from lemming.kernel.tools import Tool, toolset_of


def waits_for_its_name(
    agents: Mapping[str, Agent], config: Config, concerned: Iterable[str]
) -> Iterator[str]:
    """Yield a sentence for each agent that reads one behind it in the order of a tick, and not the reverse.

    `concerned`: the agents of which something is said, as readers or as those who are read. Two who read each
    other are left out: one of them always waits.
    """
    wanted = {*concerned} if config.org.visibility == "order" else set()
    for name, agent in sorted(agents.items()):
        for other in agent.permissions.read_outboxes:
            author = agents.get(other)
            if author is None or not {name, other} & wanted or not takes_turns(author, config):
                continue
            is_first = (fire_point(agent.schedule), name) < (fire_point(author.schedule), other)
            if takes_turns(agent, config) and is_first and name not in author.permissions.read_outboxes:
                yield (
                    f"{name} comes before {other} in a tick, by its name, and reads it in the next one: "
                    f"`lemming agents rename` gives a name behind it"
                )


Agents = Mapping[str, Agent]


def problems_of_structure(base: OrgPath, config: Config, only: str | None = None) -> Iterator[Problem]:
    """Yield a warning for each agent that nobody reads, each cycle without an end, each file of two writers.

    `only`: those that concern one agent's resume.
    """
    org = Organisation.at(base)
    survey = survey_agents(org)
    everybody = survey.agents
    working = {
        name: agent for name, agent in everybody.items() if takes_turns(agent, config) and not agent.paused
    }
    toolset = toolset_of(config.org, org)
    tools = {
        name: [
            tool
            for tool in toolset.of(name).values()
            if tool.tool_class != "read" and not tool.why_refused(agent, config.org)
        ]
        for name, agent in working.items()
    }
    found = [
        *(_about_unread(everybody, working, tools) if people_in(survey, config) else ()),
        *_about_cycles(working, config),
        *_about_writers(org, config, working, tools),
    ]
    yield from (problem for problem in found if only in (None, problem.file.split("/")[1]))


def _warning(agent: str, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, paths.resume_file(agent), pointer=pointer, hint=hint, severity="warning")


def _about_unread(everybody: Agents, working: Agents, tools: Mapping[str, list[Tool]]) -> Iterator[Problem]:
    """Yield a warning for who writes for nobody; who can do something else may be there for that.

    Where there are no people, somebody looks into the outboxes.
    """
    for name, agent in working.items():
        readers = (other for other in everybody.values() if other.may_read(name))
        if not any(_acts(tool, agent) for tool in tools[name]) and not any(readers):
            hint = f'add "{name}" to the read_outboxes of who should read it, or pause it'
            yield _warning(name, "/name", f"nobody reads what {name} writes", hint)


def _acts(tool: Tool, agent: Agent) -> bool:
    return tool.tool_class != "read" and tool.name in agent.permissions.tools


def _about_cycles(working: Agents, config: Config) -> Iterator[Problem]:
    """Yield a warning for agents each of whom wakes the next one, round and round, with nothing to end it."""
    waking = {
        name: agent
        for name, agent in working.items()
        if habits_of(agent, config).wake == "changed" and not _is_bounded(agent, config)
    }
    while waking:
        reads = {name: [other for other in waking if agent.may_read(other)] for name, agent in waking.items()}
        try:
            TopologicalSorter(reads).prepare()
        except CycleError as error:
            *cycle, _ = error.args[1]
            first = min(cycle)
            yield _warning(
                first,
                "/schedule/wake",
                f"{', '.join(sorted(cycle))} wake each other without end, each by what it writes",
                'have one of them wake when it is "addressed" only, or give it max_credits',
            )
            for name in cycle:
                del waking[name]
        else:
            return


def _is_bounded(agent: Agent, config: Config) -> bool:
    """Return whether something ends what an agent spends, or it goes by the clock."""
    has_limit = any(gate.at == "spend" for it in (config.org, agent) for gate in it.further.get("gates", ()))
    allowed = credits_of(config, agent.name, agent.credits).max_credits
    return has_limit or allowed is not None or agent.schedule.cron is not None


def _about_writers(
    org: Organisation, config: Config, working: Agents, tools: Mapping[str, list[Tool]]
) -> Iterator[Problem]:
    """Yield a warning for each file that one agent is given to write, and another may write too."""
    places = {
        name: sorted({place for tool in tools[name] for place in _written_with(tool, agent, config)})
        for name, agent in working.items()
    }
    writers: dict[str, list[str]] = {}
    for name, its in places.items():
        for place in its:
            writers.setdefault(place, []).append(name)
    for one, its in places.items():
        found = {
            (other, place)
            for place in filter(partial(_is_file, org), its)
            for root in accumulate(place.split("/"), "{}/{}".format)
            for other in writers.get(root, ())
            if other != one and (one < other or place not in places[other])
        }
        for other, place in sorted(found):
            message = f"{other} may write {place}, too: the one who writes last overwrites the other"
            hint = "let one of them write it and the other ask, or give each a file of its own"
            yield _warning(one, "/permissions/file_access/allow_write", message, hint)


def _written_with(tool: Tool, agent: Agent, config: Config) -> Iterable[str]:
    return tool.writes(agent, config.org) if tool.tool_class == "write" else ()


def _is_file(org: Organisation, place: str) -> bool:
    return bool(PurePosixPath(place).suffix) or (org / place).is_file()
