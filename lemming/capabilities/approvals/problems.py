"""Gates that ask persons: whom they ask, whether these can be asked, and which line is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lemming.capabilities.gates.format import Gate, Rule
from lemming.capabilities.gates.keys import rules_for, whom_to_ask
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.firing_plan import people_in, takes_turns
from lemming.kernel.tools import Tool, toolset_of

Agents = Mapping[str, Agent]


def problems_of_asking(base: OrgPath, config: Config, only: str | None = None) -> Iterator[Problem]:
    """Yield what keeps gates from asking anybody; `only`: about one agent."""
    org = Organisation.at(base)
    survey = survey_agents(org)
    people = sorted(people_in(survey, config))
    told: set[str] = set()
    for name, agent in survey.agents.items():
        if only not in (None, name) or not takes_turns(agent, config):
            continue
        rules = rules_for(agent, config.org)
        if not any(rule.gate.then == "ask" for rule in rules):
            continue
        tools = [
            it
            for it in toolset_of(config.org, org).of(name).values()
            if not it.why_refused(agent, config.org)
        ]
        for rule in rules:
            if rule.gate.then == "ask" and _concerns(rule.gate, tools):
                if rule.line not in told:
                    yield from _unknown_names(rule, people)
                told.add(rule.line)
                yield from _missing_lines(rule, agent, survey.agents, people)


def _concerns(gate: Gate, tools: list[Tool]) -> bool:
    """Return whether a gate may ever ask something of an agent with these tools."""
    return gate.at != "call" or any(gate.concerns_tool(tool.name, tool.tool_class) for tool in tools)


def _unknown_names(rule: Rule, people: list[str]) -> Iterator[Problem]:
    file, _, pointer = rule.line.partition("#")
    if not people:
        hint = "make one with `lemming agents new human --model human`, or let it block"
        yield Problem(
            "it asks for approval, and there is no person who could approve it", file, 0, 0, pointer, hint
        )


def _missing_lines(rule: Rule, agent: Agent, agents: Agents, people: list[str]) -> Iterator[Problem]:
    """Yield which line is missing where nobody can be asked whom a gate asks for an agent."""
    named = [name for name in people if not rule.gate.persons or name in rule.gate.persons]
    if not named or whom_to_ask(people, agents, agent.name, rule.gate.persons):
        return
    for reader, author in ((named[0], agent.name), (agent.name, named[0])):
        if reader in agents and not agents[reader].may_read(author):
            yield Problem(
                f"{rule.line} asks for approval, and {reader} cannot read {author}: the call is refused",
                paths.resume_file(reader),
                pointer="/permissions/read_outboxes",
                hint=f'add "{author}" to its read_outboxes',
                code="LMG-301",
            )
