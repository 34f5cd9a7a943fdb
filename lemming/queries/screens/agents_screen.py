"""The screen of agents: their model, schedule, readers and title."""

from __future__ import annotations

from typing import Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.schedule import AgentSchedule, fire_point
from lemming.kernel.tick.validation.agent_validation import load_validated_survey
from lemming.queries.screens.screen import OMITTED, Column, Screen


class _AgentRow(NamedTuple):
    agent: str
    resume: Agent | None
    problem: str
    config: Config


def list_agents(org: OrgPath) -> list[_AgentRow]:
    """List all agents."""
    survey, config = load_validated_survey(org), load_config(org)
    rows = [_AgentRow(name, agent, "", config) for name, agent in survey.agents.items()]
    return rows + [_AgentRow(name, None, str(error), config) for name, error in survey.broken.items()]


def _describe_schedule(row: _AgentRow) -> str:
    """Describe the agent's schedule, or name the speaker for an agent without turns."""
    agent, config = row.resume, row.config
    if agent is None:
        return "-"
    if config.is_person(agent):
        return "a person speaks"
    if not config.has_model_turns(agent):
        return "a channel speaks"
    return "paused" if agent.paused else describe_interval(agent.schedule)


def describe_interval(schedule: AgentSchedule) -> str:
    """Describe a schedule in words."""
    every = schedule.run_every_n_ticks
    text = "every tick" if every == 1 else f"every {every} ticks"
    if schedule.cron is not None:
        from lemming.libraries.cron_expressions import describe_cron

        zone = schedule.timezone or "the zone of the organisation"
        by_clock = f"{describe_cron(schedule.cron)} ({schedule.cron}, {zone})"
        text = by_clock if every == 1 else f"{by_clock} and {text}"
    if point := fire_point(schedule):
        text += f" at {point:.2f}"
    return f"{text}, if something changed" if schedule.wake == "changed" else text


def _in_details(key: str, about: str, kind: Any) -> Column:
    """Return a key that only `agents show` prints."""
    return Column(key, about=f"Only in `agents show`: {about}", type=kind, value=lambda _: OMITTED, is_optional=True)


AGENTS = Screen(
    "agents",
    kind="agent",
    title="Resumes",
    command="agents list",
    tool="agents",
    query=list_agents,
    columns=(
        Column("agent", "AGENT", "Name of the agent.", shown="agent"),
        Column("", "MODEL", "Model key of the resume.", text=lambda row: row.resume.model.key if row.resume else "-"),
        Column("", "SCHEDULE", "When the agent takes turns.", text=_describe_schedule),
        Column(
            "", "READS", "Agents whose entries it reads.",
            text=lambda row: (", ".join(row.resume.permissions.read_outboxes) if row.resume else "") or "-",
        ),
        Column(
            "", "TITLE", "Title of the resume.",
            text=lambda row: row.resume.title if row.resume else f"broken: {row.problem}",
        ),
        Column(
            "resume", about="The effective resume, or null if it is broken.", type=dict[str, Any] | None,
            value=lambda row: row.resume.as_json if row.resume else None,
        ),
        Column("problem", about="Error of the resume, or empty."),
        _in_details("readers", "Agents that may read its entries.", list[str]),
        _in_details("state", "The ledger.", dict[str, Any]),
        _in_details("account", "Spending and limits, as in `credits show`.", dict[str, Any]),
        _in_details("next_tick", "Tick of the next turn, or null.", int | None),
        _in_details("next_at", "Time of the next turn, or null.", str | None),
    ),
)  # fmt: skip
