"""Who takes a turn in a tick, in what order, and why the others do not. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lemming.agents import Agent, Survey
from lemming.config import Config
from lemming.providers import is_person
from lemming.report import TurnReport
from lemming.schedule import in_order, is_due


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The order of one tick. It is the first line of the tick's journal.

    `order`: agents that are due. `not_due`: those whose schedule says another tick. `skipped`: why any other
    agent takes no turn. `broken`: what is wrong with a resume.
    """

    tick: int
    order: list[str]
    not_due: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def everyone(self) -> set[str]:
        """The names of all agents there were, due or not, broken or not."""
        return {*self.order, *self.not_due, *self.skipped, *self.broken}

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Plan:
        """Return the plan that a journal's first record holds."""
        return cls(**{key: plain[key] for key in cls.__dataclass_fields__ if key in plain})


def make_plan(tick: int, survey: Survey, config: Config) -> Plan:
    """Return the plan of a tick for the agents found."""
    skipped: dict[str, str] = {}
    not_due: list[str] = []
    due: list[Agent] = []
    for name, agent in survey.agents.items():
        if is_for_a_person(agent, config):
            skipped[name] = "a person speaks for it"
        elif not is_due(agent.schedule, tick):
            not_due.append(name)
        else:
            due.append(agent)
    broken = {name: str(error) for name, error in survey.broken.items()}
    order = [agent.name for agent in in_order(due)]
    return Plan(tick=tick, order=order, not_due=not_due, skipped=skipped, broken=broken)


def is_for_a_person(agent: Agent, config: Config) -> bool:
    """Return whether the agent's entries come from a person and no model is ever asked."""
    entry = config.models.get(agent.model.key)
    return entry is not None and is_person(entry.provider)


def seating_order(survey: Survey) -> list[str]:
    """Return all agents in the order of a tick, due or not: the order that entries of one tick have."""
    return [agent.name for agent in in_order(survey.agents.values())]


def turns_not_taken(plan: Plan) -> list[TurnReport]:
    """Return the reports of the agents that had no turn in a tick."""
    skipped = [TurnReport(agent=name, status="skipped", reason=why) for name, why in plan.skipped.items()]
    broken = [
        TurnReport(agent=name, status="failed", reason=why, error="ConfigError")
        for name, why in plan.broken.items()
    ]
    return [*skipped, *broken]
