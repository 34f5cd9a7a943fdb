"""Calendars as a capability of the engine: an agent with the clock as the model sends due jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from lemming.capabilities.calendars.calendar_file import CalendarJob, find_calendar_agent
from lemming.capabilities.calendars.calendar_jobs import (
    MEMORY,
    JobSchedule,
    find_due_jobs,
    get_job_schedule,
    schedule_name,
    schedule_text,
)
from lemming.ext import (
    BuildPrompt,
    Capability,
    ClockSchedule,
    DescribeQuery,
    Interception,
    Preparation,
    ScheduleQuery,
    TickView,
)
from lemming.kernel.base.errors import RequestRejected
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.org.capability_usage import TurnPolicy
from lemming.kernel.providers import Backend, Reply, Request


class CalendarsCapability(Capability):
    """Calendars: `config/calendar.json`, the provider "clock" and the tool `keep_job`."""

    name = "calendars"
    handles = (BuildPrompt,)
    describes = (ClockSchedule,)
    turn_policy = TurnPolicy("always", is_asked=False)

    def intercept(self, effect: BuildPrompt, turn: Preparation) -> Interception:
        """Add the due jobs to the clock's prompt, as the payloads of the requests."""
        context = turn.context.tick_context
        jobs = find_due_jobs(
            TickView(context.org, context.config, context.survey, context.tick, context.at, context.since)
        )
        if turn.agent.name != find_calendar_agent(context.survey.agents, context.config):
            return None
        job_memories = [(job.job.agent, MEMORY) for job in jobs if job.name.startswith(f"{job.job.agent}.")]
        return (yield effect.change(jobs=[job.payload for job in jobs], job_memories=job_memories))

    def describe(self, query: DescribeQuery) -> Iterator[ClockSchedule]:
        """Yield the schedule of each job: the first clock agent by name sends it. Raises `ConfigError`."""
        if not isinstance(query, ScheduleQuery):
            return
        tick = query.tick
        jobs, zone_name, sender = get_job_schedule(tick), tick.config.org.timezone, min(tick.agents)
        for name, job in jobs.jobs.items():
            text = schedule_text(job, zone_name) if job.cron else ""
            is_due, iter_times = partial(_is_due, jobs, name, job), partial(_iter_times, jobs, job)
            description = f"job {name}: {job.text}"
            yield ClockSchedule(schedule_name(name), sender, text, description, is_due, iter_times, job.agent)


def _is_due(jobs: JobSchedule, name: str, job: CalendarJob, _: str) -> bool:
    return jobs.find_due_job(name, job) is not None


def _iter_times(jobs: JobSchedule, job: CalendarJob, start: datetime) -> Iterator[datetime]:
    return iter(()) if job.paused else jobs.next_occurrences(job, start)


TAG = "calendar"


class ClockProvider(Backend):
    """Answers with a request for each due job in the turn's values."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return the requests as entries of the contract. Raises `RequestRejected` for a prompt in prose."""
        try:
            values = parse(request.messages[-1]["content"])
            entries = [{"kind": "request", "payload": payload, "tags": [TAG]} for payload in values.get("jobs", ())]
        except (JsonProblem, AttributeError) as error:
            hint = 'set "prompt": "values" in its entry in config/models.json'
            raise RequestRejected('the clock requires "prompt": "values"', where=request.agent, hint=hint) from error
        text = dump_compact({"outbox_entries": entries, "tool_calls": [], "memory_updates": [], "notes": ""})
        return Reply(text.decode(), input_tokens=0, output_tokens=0)
