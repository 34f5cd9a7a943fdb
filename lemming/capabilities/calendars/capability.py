"""Calendars, as the engine knows them: an agent whose brain is the clock asks for what is due."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.calendars.calendar import asker_in, problems_of_calendar
from lemming.capabilities.calendars.jobs import MEMORY, jobs_due
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.uses import Habits
from lemming.kernel.tick.seams import TickLook
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing
from lemming.kernel.turn.seen import Seen


class Calendars(Capability):
    """Calendars: `config/calendar.json`, the provider "clock" and the tool `keep_job`."""

    name = "calendars"

    def habits(self, agent: Agent) -> Habits:
        """Return that the clock is asked nothing: it has a turn when there is something to ask."""
        return Habits("always", agent.turn.take, is_asked=False)

    def prepare(self, moment: Moment) -> Preparation:
        """Return what the clock asks for as its turn begins."""
        return CalendarPreparation(moment)

    def problems_of_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield what is wrong with the calendar, alone and where it stands."""
        if only is None:
            try:
                yield from problems_of_calendar(Organisation.at(base), survey_agents(base).agents, config)
            except ConfigError as error:
                yield from error.problems


class CalendarPreparation(Preparation):
    """Tells the clock which jobs are due."""

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Have the values of the turn hold the requests that are to be made."""
        now = self.moment.now
        jobs = jobs_due(TickLook(now.org, now.config, now.survey, now.tick, now.at, now.since))
        if self.moment.agent.name == asker_in(now.survey.agents, now.config):
            seen.jobs = [job.payload for job in jobs]
            seen.jobs_kept = [(it.job.agent, MEMORY) for it in jobs if it.name.startswith(f"{it.job.agent}.")]
