"""Validation of gates that ask persons: unknown persons, and missing permissions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lemming.capabilities.gates.gate_format import Gate, GateRule
from lemming.capabilities.gates.gate_settings import find_approvers, rules_for_agent
from lemming.ext import Problem, find_people, has_model_turns
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tools import Tool, get_toolset

Agents = Mapping[str, Agent]


def validate_approvers(base: OrgPath, config: Config, only: str | None = None) -> Iterator[Problem]:
    """Yield problems that prevent gates from asking anybody. `only`: restrict the check to one agent."""
    org = Organisation.from_path(base)
    survey = survey_agents(org)
    people = sorted(find_people(survey, config))
    reported: set[str] = set()
    for name, agent in survey.agents.items():
        if only not in (None, name) or not has_model_turns(agent, config):
            continue
        rules = rules_for_agent(agent, config.org)
        if not any(rule.gate.then == "ask" for rule in rules):
            continue
        tools = [
            tool
            for tool in get_toolset(config.org, org).for_agent(name).values()
            if not tool.refusal_reason(agent, config.org)
        ]
        for rule in rules:
            if rule.gate.then == "ask" and _can_concern(rule.gate, tools):
                if rule.line not in reported:
                    yield from _unknown_names(rule, people)
                reported.add(rule.line)
                yield from _missing_permissions(rule, agent, survey.agents, people)


def _can_concern(gate: Gate, tools: list[Tool]) -> bool:
    """Return True if a gate can ever ask about an agent with these tools."""
    return gate.at != "call" or any(gate.concerns_tool(tool.name, tool.tool_class) for tool in tools)


def _unknown_names(rule: GateRule, people: list[str]) -> Iterator[Problem]:
    file, _, pointer = rule.line.partition("#")
    if not people:
        hint = "create a person with `lemming agents new human --model human`, or let the gate block"
        yield Problem("the gate asks for approval, and there is no person who can approve", file, 0, 0, pointer, hint)


def _missing_permissions(rule: GateRule, agent: Agent, agents: Agents, people: list[str]) -> Iterator[Problem]:
    """Yield the missing permissions if a gate can ask nobody for an agent."""
    named = [name for name in people if not rule.gate.persons or name in rule.gate.persons]
    if not named or find_approvers(people, agents, agent.name, rule.gate.persons):
        return
    for reader, author in ((named[0], agent.name), (agent.name, named[0])):
        if reader in agents and not agents[reader].may_read(author):
            yield Problem(
                f"{rule.line} asks for approval, and {reader} may not read {author}: the call is refused",
                paths.resume_file(reader),
                pointer="/permissions/read_outboxes",
                hint=f'add "{author}" to its read_outboxes',
                code="LMG-301",
            )
