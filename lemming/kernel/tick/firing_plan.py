"""Who takes a turn in a tick, in what order, and why the others do not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.clock import is_timestamp
from lemming.kernel.journal.records import TickStarted
from lemming.kernel.journal.report import Reason, TurnReport, Why
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import LOCAL_MODEL
from lemming.kernel.org.schedule import AgentSchedule, is_due
from lemming.kernel.providers import is_channel, is_person

FOR_A_PERSON = "a person speaks for it"
FOR_A_CHANNEL = "a channel speaks for it"
FOR_OTHERS = frozenset({FOR_A_PERSON, FOR_A_CHANNEL})
_WORDS: dict[str, Why] = {FOR_A_PERSON: "person", FOR_A_CHANNEL: "channel"}
NOBODY: Mapping[str, str] = {}
_WHY_RUN = frozenset({"at", "since", "at_once", "chosen", "left_out"})
DUE, NOT_DUE = Reason("due"), Reason("not_due")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The order of one tick. It is the first line of the tick's journal.

    `order`: agents that are due. `not_due`: those whose schedule says another tick. `skipped`: why any other
    agent takes no turn. `broken`: what is wrong with a resume. `at` is the tick's reading of the clock, and
    `since` the one up to which the ticks before it went (empty: not known, or not needed). `at_once`: it is
    run for what was asked, and that makes a difference to who has a turn, or to what persons were given.
    `chosen`: the agents that somebody named for this tick, whatever their schedules say; empty: schedules
    decide. `left_out`: agents that were due by the clock and were not named; the next tick sees to them.
    """

    tick: int
    order: list[str]
    not_due: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    at: str = ""
    since: str = ""
    at_once: bool = False
    chosen: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def everyone(self) -> set[str]:
        """The names of all agents there were, due or not, broken or not."""
        return {*self.order, *self.not_due, *self.skipped, *self.broken}

    @property
    def reasons(self) -> dict[str, Reason]:
        """Why each agent is to take a turn or none, as far as schedules and resumes tell."""
        by_schedule = {**dict.fromkeys(self.order, DUE), **dict.fromkeys(self.not_due, NOT_DUE)}
        return {**by_schedule, **self._kept_out}

    @property
    def _kept_out(self) -> dict[str, Reason]:
        return {
            **{name: Reason(_WORDS.get(text, "paused"), text) for name, text in self.skipped.items()},
            **{name: Reason("broken", text, "ConfigError") for name, text in self.broken.items()},
        }

    def turns_not_taken(self) -> list[TurnReport]:
        """Return the reports of the agents that can have no turn in this tick, due or not."""
        return [reason.report(name) for name, reason in self._kept_out.items()]

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, without the readings of the clock, and why it is run."""
        return {key: value for key, value in vars(self).items() if key not in _WHY_RUN}

    @classmethod
    def of(cls, started: TickStarted) -> Plan:
        """Return the plan that a journal's first record holds."""
        fields = {key: getattr(started, key) for key in cls.__dataclass_fields__}
        readings = {key: it if is_timestamp(it := fields[key]) else "" for key in ("at", "since")}
        return cls(**{**fields, **readings})


def make_plan(
    tick: int,
    survey: Survey,
    config: Config,
    *,
    at: str = "",
    since: str = "",
    resting: Mapping[str, str] = NOBODY,
) -> Plan:
    """Return the plan of a tick for the agents found.

    Those `resting` have no turn, as capabilities say (`tick.seams`): a word of theirs is what is wrong.
    """
    skipped = {**_paused(survey, config), **dict.fromkeys(people_in(survey, config), FOR_A_PERSON)}
    if config.has_channels:
        skipped |= dict.fromkeys(channels_in(survey, config), FOR_A_CHANNEL)
    due = {
        name
        for (every, offset), names in survey.by_schedule.items()
        if is_due(AgentSchedule(run_every_n_ticks=every, phase_offset=offset), tick)
        for name in names
    }
    due.difference_update(resting)
    at_fault = {name: why for name, why in resting.items() if why}
    due.difference_update(skipped)
    order = [name for name in survey.order if name in due] if due else []
    idle = due | skipped.keys() | at_fault.keys()
    not_due = [name for name in survey.agents if name not in idle] if idle else list(survey.agents)
    broken = {**{name: str(error) for name, error in survey.broken.items()}, **at_fault}
    return Plan(
        tick=tick,
        order=order,
        not_due=not_due,
        skipped=dict(sorted(skipped.items())),
        broken=broken,
        at=at,
        since=since,
    )


def _paused(survey: Survey, config: Config) -> dict[str, str]:
    """Return the agents that are paused, alone or with all others, and how a person is told so."""
    if config.org.paused:
        return dict.fromkeys(survey.agents, f"the organisation is {pause_reason(config.org.paused)}")
    return {name: pause_reason(text) for name, text in survey.paused.items()}


def pause_reason(text: str) -> str:
    """Return how a plan says that somebody is paused.

    >>> pause_reason("since 2026-11-22T09:00:00.000Z by ada"), pause_reason("too dear")
    ('paused since 2026-11-22T09:00:00.000Z by ada', 'paused: too dear')
    """
    return f"paused {text}" if text.startswith("since ") else f"paused: {text}"


def people_in(survey: Survey, config: Config) -> list[str]:
    """Return the agents that persons speak for."""
    keys = (key for key in survey.by_model if is_for_people(key, config))
    return [name for key in keys for name in survey.by_model[key]]


def callers_in(survey: Survey, config: Config) -> list[str]:
    """Return the agents that wait for the answer to whatever they ask: people, channels, programs."""
    keys = (key for key in survey.by_model if _waits_for_all(key, config))
    return [name for key in keys for name in survey.by_model[key]]


def _waits_for_all(key: str, config: Config) -> bool:
    return is_for_people(key, config) or is_for_channels(key, config) or takes_values(key, config)


def takes_values(model_key: str, config: Config) -> bool:
    """Return whether a program answers for the agents of a model key: it gets values, not a prompt."""
    entry = config.models.get(model_key)
    return entry is not None and entry.prompt == "values"


def channels_in(survey: Survey, config: Config) -> list[str]:
    """Return the agents that channels speak for."""
    keys = (key for key in survey.by_model if is_for_channels(key, config))
    return [name for key in keys for name in survey.by_model[key]]


def takes_turns(agent: Agent, config: Config) -> bool:
    """Return whether a model is asked for the agent: neither a person nor a channel speaks for it."""
    return not (is_for_people(agent.model.key, config) or is_for_channels(agent.model.key, config))


def is_for_a_person(agent: Agent, config: Config) -> bool:
    """Return whether the agent's entries come from a person and no model is ever asked."""
    return is_for_people(agent.model.key, config)


def is_for_people(model_key: str, config: Config) -> bool:
    """Return whether a model key stands for a person."""
    entry = config.models.get(model_key)
    return entry is not None and is_person(entry.provider, config.org.plugins)


def is_for_channels(model_key: str, config: Config) -> bool:
    """Return whether a model key stands for a channel."""
    entry = config.models.get(model_key)
    return entry is not None and is_channel(entry.provider, config.org.plugins)


WITH_TOOLS = "`lemming models list` has others, `lemming models use KEY` takes one"


def warn_of_tools(agent: Agent, config: Config) -> str:
    """Return a warning where a model is too small for the tools that a resume grants; else empty."""
    entry = config.models.get(agent.model.key)
    if entry is None or not agent.permissions.tools:
        return ""
    if (entry.provider, entry.model) != ("local", LOCAL_MODEL):
        return ""
    tools = ", ".join(agent.permissions.tools)
    return f'model "{agent.model.key}" is {LOCAL_MODEL}, which is too small to call tools: {tools}'
