"""Calendars as a capability of the engine: an agent with the clock as the model sends due jobs."""

from __future__ import annotations

from collections.abc import Iterator

from lemming.capabilities.calendars.calendar_file import find_calendar_agent, validate_calendar
from lemming.capabilities.calendars.calendar_jobs import MEMORY, find_due_jobs
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_hooks import TickView
from lemming.kernel.turn.check_subjects import CheckSubject, OrgCheck
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.turn_hooks import Capability, ContextProvider, TurnContext, VisibleContext


class CalendarsCapability(Capability):
    """Calendars: `config/calendar.json`, the provider "clock" and the tool `keep_job`."""

    name = "calendars"
    turn_policy = TurnPolicy("always", is_asked=False)

    def context_provider(self, context: TurnContext) -> ContextProvider:
        """Return the context provider of the clock."""
        return CalendarContextProvider(context)

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield problems of the calendar."""
        if isinstance(subject, OrgCheck) and subject.only is None:
            org, agents = Organisation.from_path(subject.base), survey_agents(subject.base).agents
            try:
                yield from validate_calendar(org, agents, subject.config)
            except ConfigError as error:
                yield from error.problems


class CalendarContextProvider(ContextProvider):
    """Adds the due jobs to the clock's prompt."""

    def annotate_prompt(self, prompt_input: PromptInput, visible: VisibleContext) -> None:
        """Add the payloads of the requests to the turn's values."""
        tick_context = self.context.tick_context
        jobs = find_due_jobs(
            TickView(
                tick_context.org,
                tick_context.config,
                tick_context.survey,
                tick_context.tick,
                tick_context.at,
                tick_context.since,
            )
        )
        if self.context.agent.name == find_calendar_agent(tick_context.survey.agents, tick_context.config):
            prompt_input.jobs = [job.payload for job in jobs]
            prompt_input.job_memories = [
                (due_job.job.agent, MEMORY) for due_job in jobs if due_job.name.startswith(f"{due_job.job.agent}.")
            ]
